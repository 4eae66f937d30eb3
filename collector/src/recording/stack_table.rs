//! The frames and stacks of a recording, each held once.

use super::ids::{FrameId, StackId};
use super::model::{RawFrame, Recording, StackNode};
use crate::intern::{Interner, Pairs};

/// Finds them in the lists that it fills.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    frames: Interner<FrameId>,
    /// By parent and frame.
    nodes: Pairs<StackId>,
    /// For each stack, and before all for none, the one that was last found with it for a parent:
    /// samples come in the order of time, and most often it is that one again.
    last: Vec<Option<StackId>>,
}

impl StackTable {
    /// For a recording that has some already.
    pub(crate) fn of(recording: &Recording) -> Self {
        Self {
            frames: Interner::of(&recording.frames),
            nodes: Pairs::of(&recording.stacks),
            last: Vec::new(),
        }
    }

    /// A frame.
    pub(crate) fn frame(&mut self, frames: &mut Vec<RawFrame>, frame: RawFrame) -> FrameId {
        self.frames.place(frames, frame)
    }

    /// The stack of a frame and its caller's stack.
    pub(crate) fn push(
        &mut self,
        stacks: &mut Vec<StackNode>,
        parent: Option<StackId>,
        frame: FrameId,
    ) -> StackId {
        let node = StackNode { parent, frame };
        let place = parent.map_or(0, |parent| parent.index() + 1);
        if self.last.len() <= place {
            self.last.resize(place + 1, None);
        }
        let last = &mut self.last[place];
        if let Some(found) = last.filter(|last| stacks[last.index()].frame == frame) {
            return found;
        }
        // The last one called nobody yet: of a new stack each frame is new.
        let is_last = |parent: StackId| parent.index() + 1 == stacks.len();
        let found = match parent.is_some_and(is_last) {
            true => self.nodes.add(stacks, node),
            false => self.nodes.place(stacks, node),
        };
        *last = Some(found);
        found
    }
}
