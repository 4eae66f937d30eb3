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
}

impl StackTable {
    /// For a recording that has some already.
    pub(crate) fn of(recording: &Recording) -> Self {
        Self {
            frames: Interner::of(&recording.frames),
            nodes: Pairs::of(&recording.stacks),
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
        // The last one called nobody yet: of a new stack each frame is new.
        let is_last = |parent: StackId| parent.index() + 1 == stacks.len();
        match parent.is_some_and(is_last) {
            true => self.nodes.add(stacks, node),
            false => self.nodes.place(stacks, node),
        }
    }
}
