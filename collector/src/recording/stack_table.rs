//! The frames and stacks of a recording, each held once.

use super::ids::{FrameId, StackId};
use super::model::{RawFrame, Recording, StackNode};
use crate::intern::Interner;

/// Finds them in the recording that it fills.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    frames: Interner<FrameId>,
    /// By frame and parent: most stacks are known, and are found in one look.
    nodes: Interner<StackId>,
}

impl StackTable {
    /// For a recording that has some already.
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut made = Self {
            frames: Interner::of(&recording.frames),
            nodes: Interner::default(),
        };
        for (place, node) in recording.stacks.iter().enumerate() {
            let frame = recording.frames[node.frame.index()];
            let code = made.nodes.code(&(node.parent, frame));
            made.nodes.insert(code, StackId::next_of(place));
        }
        made
    }

    /// A frame.
    pub(crate) fn frame(&mut self, recording: &mut Recording, frame: RawFrame) -> FrameId {
        self.frames.place(&mut recording.frames, frame)
    }

    /// The stack of a frame and its caller's stack.
    pub(crate) fn push(
        &mut self,
        recording: &mut Recording,
        parent: Option<StackId>,
        frame: RawFrame,
    ) -> StackId {
        let code = self.nodes.code(&(parent, frame));
        let same = |place: StackId| {
            let node = recording.stacks[place.index()];
            node.parent == parent && recording.frames[node.frame.index()] == frame
        };
        // The last one called nobody yet: of a new stack each frame is new.
        let is_last = |parent: StackId| parent.index() + 1 == recording.stacks.len();
        let known = match parent.is_some_and(is_last) {
            true => None,
            false => self.nodes.find(code, same),
        };
        known.unwrap_or_else(|| {
            let frame = self.frame(recording, frame);
            let place = StackId::next_of(recording.stacks.len());
            recording.stacks.push(StackNode { parent, frame });
            self.nodes.insert(code, place);
            place
        })
    }
}
