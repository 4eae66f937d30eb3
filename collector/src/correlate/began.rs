//! Where threads began that were never sampled: all that is known of where their time went.

use crate::intern::HashMap;
use crate::recording::{FrameId, Recording, StackId, StackNode};
use engine::address::RuntimeAddress;
use engine::wire::sample::{Frame, Method};

/// Gives each of them the stack of the function that it began in.
pub(super) fn find(recording: &mut Recording) {
    let mut known = HashMap::default();
    for (id, entry) in std::mem::take(&mut recording.entries) {
        let thread = &recording.threads[id.index()];
        let frame = Frame {
            pc: RuntimeAddress(entry),
            method: Method::Registers,
            ..Frame::default()
        };
        let raw = recording.raw_frame(thread.process, frame, thread.key);
        // What samples have of it is not looked for: there are few.
        let stack = *known.entry(raw).or_insert_with(|| {
            recording.frames.push(raw);
            let frame = FrameId::next_of(recording.frames.len() - 1);
            let parent = None;
            recording.stacks.push(StackNode { parent, frame });
            StackId::next_of(recording.stacks.len() - 1)
        });
        recording.began.insert(id, stack);
    }
}
