//! The frames and stacks of a recording, each held once.

use super::ids::{FrameId, StackId};
use super::model::{RawFrame, Recording, StackNode};
use crate::intern::Interner;

/// Finds them in the recording that it fills.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    frames: Interner<FrameId>,
    /// By parent and frame.
    nodes: Interner<StackId>,
}

impl StackTable {
    /// For a recording that has some already.
    pub(crate) fn of(recording: &Recording) -> Self {
        Self {
            frames: Interner::of(&recording.frames),
            nodes: Interner::of(&recording.stacks),
        }
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
        frame: FrameId,
    ) -> StackId {
        let node = StackNode { parent, frame };
        // The last one called nobody yet: of a new stack each frame is new.
        let is_last = |parent: StackId| parent.index() + 1 == recording.stacks.len();
        match parent.is_some_and(is_last) {
            true => self.nodes.add(&mut recording.stacks, node),
            false => self.nodes.place(&mut recording.stacks, node),
        }
    }
}
