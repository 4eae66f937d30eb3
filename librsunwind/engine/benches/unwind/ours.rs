//! This engine among the unwinders compared.

use crate::support::{Process, new_last_walk, own_stack};
use crate::walkers::{LONGEST, Walk};
use rsunwind_engine::last_walk::LastWalk;
use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::registers::Registers;
use rsunwind_engine::rule_cache::RuleCache;
use rsunwind_engine::unwind::Outcome;
use rsunwind_engine::wire::codec::Encoder;
use rsunwind_engine::wire::sample::{self, Frame, SampleHead};
use std::ffi::c_void;

#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// With what is remembered of the last walk.
    Reuse,
    /// The same, and writes the record.
    Record,
    /// Without.
    Full,
}

pub struct Ours {
    process: Process,
    memory: StackMemory,
    way: Way,
    last: &'static mut LastWalk<'static>,
    /// Of this walk, and of the one before.
    frames: [Vec<Frame>; 2],
    before: (SampleHead, usize),
    record: Vec<u8>,
}

impl Ours {
    pub fn new(way: Way) -> Self {
        let mut process = Process::new();
        process.cache = fresh_cache();
        let last = match way {
            Way::Full => Box::leak(Box::new(LastWalk::none())),
            _ => new_last_walk(),
        };
        Self {
            process,
            memory: own_stack(),
            way,
            last,
            frames: [(); 2].map(|()| vec![Frame::default(); LONGEST]),
            before: Default::default(),
            record: vec![0; 1 << 16],
        }
    }

    fn record(&mut self, outcome: Outcome, registers: &Registers, kept: usize) {
        let head = SampleHead {
            stop: outcome.stop,
            sp: registers.sp(),
            ..SampleHead::default()
        };
        let [frames, frames_before] = &self.frames;
        let (head_before, count) = self.before;
        let mut out = Encoder::new(&mut self.record);
        let before = Some((&head_before, &frames_before[..count]));
        let (_, unchanged) = self.last.unchanged();
        sample::encode_after(&mut out, before, unchanged, &head, &frames[..kept]);
        std::hint::black_box(out.finish());
        self.before = (head, kept);
        self.frames.swap(0, 1);
    }
}

/// Fresh memory, of which the part used first is there, as the runtime maps it.
fn fresh_cache() -> &'static RuleCache {
    unsafe {
        let size = size_of::<RuleCache>();
        let (read_write, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let memory = libc::mmap(std::ptr::null_mut(), size, read_write, private, -1, 0);
        let (start, length) = RuleCache::FIRST_USED;
        let misaligned = start % 4096;
        let first = memory.byte_add(start - misaligned);
        libc::madvise(first, length + misaligned, libc::MADV_POPULATE_WRITE);
        RuleCache::from_zeroed(std::ptr::NonNull::new(memory.cast()).unwrap())
    }
}

impl Walk for Ours {
    fn walk(&mut self, context: *mut c_void) -> usize {
        let registers = unsafe { Registers::from_ucontext(context) };
        let (memory, frames) = (&mut self.memory, &mut self.frames[0]);
        let (outcome, kept) = self
            .process
            .walk_with(&registers, memory, frames, self.last);
        if self.way == Way::Record {
            self.record(outcome, &registers, kept);
        }
        kept
    }
}
