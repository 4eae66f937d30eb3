//! Where threads began that were never sampled: all that is known of where their time went.

use crate::recording::{Recording, StackTable};
use engine::address::RuntimeAddress;
use engine::wire::sample::{Frame, Method};

/// Gives each of them the stack of the function that it began in.
pub(super) fn find(recording: &mut Recording) {
    let entries = std::mem::take(&mut recording.entries);
    if entries.is_empty() {
        return;
    }
    let mut table = StackTable::of(recording);
    for (id, entry) in entries {
        let thread = &recording.threads[id.index()];
        let frame = Frame {
            pc: RuntimeAddress(entry),
            method: Method::Registers,
            ..Frame::default()
        };
        let frame = recording.raw_frame(thread.process, frame, thread.key);
        let frame = table.frame(&mut recording.frames, frame);
        let stack = table.push(&mut recording.stacks, None, frame);
        recording.began.insert(id, stack);
    }
}
