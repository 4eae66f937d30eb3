//! Taking one sample: walk the stack, write the record.
//!
//! # Safety
//! Runs in the handler, or with its signal held back. The context is the kernel's; the frame buffer
//! is used by nothing else during the walk.
#![allow(unsafe_code)]

mod checked;

use crate::config::Reuse;
use crate::handler_times::Part;
use crate::languages;
use crate::modules::{self, Finder};
use crate::process::PROCESS;
use crate::thread::ThreadState;
use crate::{arch, weak_address};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use engine::address::RuntimeAddress;
use engine::frame_buffer::{Depth, FrameBuffer};
use engine::last_walk::LastWalk;
use engine::memory::StackMemory;
use engine::module_map::{Module, Modules};
use engine::registers::Registers;
use engine::unwind::{Outcome, Unwinder, unwind};
use engine::wire::sample::{Frame, SampleHead, Trigger, flags};

/// What one signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub trigger: Trigger,
    /// Ties the stack to the kernel's samples.
    pub nonce: u64,
    /// Sampling periods that the stack stands for.
    pub weight: u64,
    /// See [`flags`].
    pub flags: u64,
    /// Since when the kernel has delivered the signal (`CLOCK_MONOTONIC`, ns), if that can be said;
    /// else 0.
    pub sampled_ns: u64,
}

/// What an entry starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// Where the thread stands.
    pub registers: &'a Registers,
    /// When it began (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// What the CPU sampler asks, if it does.
    pub sampling: Option<Request>,
}

/// A walk that was made: its frames stay until the next of the same room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    /// From leaf to root.
    pub frames: *const Frame,
    /// How many, and how many are left out.
    pub depth: Depth,
    /// How it ended.
    pub outcome: Outcome,
    /// See [`LastWalk::unchanged`].
    pub unchanged: (u64, usize),
    /// How many frames were reused, which are none unless that is asked for.
    pub reused: usize,
}

impl Walked {
    /// The frames kept.
    fn frames(&self) -> &[Frame] {
        // SAFETY: that many frames of the room were filled, and stay until the next walk there.
        unsafe { core::slice::from_raw_parts(self.frames, self.depth.kept) }
    }
}

/// Walks the thread's stack into the room of its next sample; `None` before the process's tables
/// are there.
///
/// # Signal safety
/// This is what the handler is for.
pub(crate) fn walk(this: &ThreadState, registers: &Registers) -> Option<Walked> {
    this.times.reach(Part::Entry);
    // SAFETY: nothing else uses that room until the sample is written.
    let room = unsafe { this.room.next() };
    let reuse = PROCESS.config().reuse;
    let standing = match reuse {
        Reuse::Check => modules::standing(),
        _ => None,
    };
    let walked = walk_into(this, room, registers, reuse != Reuse::No)?;
    if reuse == Reuse::Check {
        checked::check(this, registers, &walked, standing);
    }
    this.times.walked(walked.depth.kept);
    this.times.reach(Part::Walk);
    Some(walked)
}

/// The same into room of its own; gives the frames. Of a stack deeper than the room those up to the
/// gap.
///
/// # Signal safety
/// As above.
pub(crate) fn walk_aside(this: &ThreadState, registers: &Registers) -> &'static [Frame] {
    // SAFETY: used here alone, with signals held back.
    let room = unsafe { this.room.spare() };
    // A walk as any other: nobody takes a language back in it, nor unmaps a library. In a callback
    // it is part of that one's.
    let own = (!this.shared.is_walking()).then(|| this.shared.begin_walk(arch::stack_pointer()));
    let walked = walk_into(this, room, registers, false);
    if let Some(walk) = own {
        this.shared.end_walk(walk);
    }
    let Some(walked) = walked else {
        return &[];
    };
    let count = match walked.depth.elided {
        0 => walked.depth.kept,
        _ => walked.depth.elided_at as usize,
    };
    // SAFETY: that many frames of the room were filled.
    unsafe { core::slice::from_raw_parts(walked.frames, count) }
}

fn walk_into(
    this: &ThreadState,
    room: &'static mut [Frame],
    registers: &Registers,
    may_reuse: bool,
) -> Option<Walked> {
    let cache = modules::rules()?;
    let first = room.as_ptr();
    let mut frames = FrameBuffer::new(room);
    let mut stack = this.room.stack.get();
    let finder = Finder::new(this);
    let unwinder = Unwinder {
        modules: &finder,
        cache,
        preference: PROCESS.config().unwind,
        languages: None,
    };
    let last = may_reuse.then(|| this.room.last.try_borrow_mut().ok());
    let (mut last, mut none) = (last.flatten(), LastWalk::none());
    let last = last.as_deref_mut().unwrap_or(&mut none);
    let mut outcome = if languages::any() {
        walk_among(this, &unwinder, registers, &mut stack, &mut frames, last)
    } else {
        unwind(&unwinder, registers, &mut stack, &mut frames, last)
    };
    if languages::has_come(this) {
        outcome = walk_among(this, &unwinder, registers, &mut stack, &mut frames, last);
    }
    let depth = frames.finish();
    this.room.stack.set(stack);
    Some(Walked {
        frames: first,
        depth,
        outcome,
        unchanged: last.unchanged(),
        reused: last.reused(),
    })
}

/// A walk that asks the program's languages.
#[cold]
#[inline(never)]
fn walk_among(
    this: &ThreadState,
    unwinder: &Unwinder<'_, Finder<'_>>,
    registers: &Registers,
    stack: &mut StackMemory,
    frames: &mut FrameBuffer<'_>,
    last: &mut LastWalk<'_>,
) -> Outcome {
    let asking = languages::asking(this, registers);
    let unwinder = Unwinder {
        languages: Some(&asking),
        ..*unwinder
    };
    let mut outcome = unwind(&unwinder, registers, stack, frames, last);
    if asking.is_troubled() {
        outcome.flags |= flags::LANGUAGE_TROUBLE;
    }
    if asking.has_lock() {
        outcome.flags |= flags::INTERPRETER_LOCK;
    }
    outcome
}

/// libc's `syscall` is shorter, bytes.
const SYSTEM_CALL: u64 = 64;

/// libc's `syscall`, where another one stands in front of it.
static SYSCALL: AtomicUsize = AtomicUsize::new(0);

/// Says where libc's `syscall` is, to a library that stands in front of it.
pub fn set_syscall(address: usize) {
    SYSCALL.store(address, Relaxed);
}

/// Where libc's `syscall` is.
fn syscall() -> u64 {
    match SYSCALL.load(Relaxed) {
        0 => weak_address!("syscall") as u64,
        known => known as u64,
    }
}

/// Whether the program has just let the signal in, which it had blocked by a system call of its own
/// making: by libc's `syscall`, or in code that is neither libc's, which holds signals back for a
/// moment here and there, nor ours.
fn let_in(this: &ThreadState, registers: &Registers) -> u64 {
    if !arch::has_just_set_mask(registers) {
        return 0;
    }
    let (libcs, ours) = (syscall(), let_in as *const () as u64);
    let is_known = |module: &Module| {
        module.contains(RuntimeAddress(libcs)) || module.contains(RuntimeAddress(ours))
    };
    let module = Finder::new(this).find(RuntimeAddress(registers.pc));
    let by_syscall = registers.pc.wrapping_sub(libcs) < SYSTEM_CALL;
    match by_syscall || !module.is_some_and(|module| is_known(&module)) {
        true => flags::LET_IN,
        false => 0,
    }
}

/// Writes the sample of the walk just made.
///
/// # Signal safety
/// Stores into the thread's chunk.
pub(crate) fn record(this: &ThreadState, request: Request, entry: &Entry<'_>, walked: &Walked) {
    let (labels, changes) = this.labels(entry.time_ns);
    let head = SampleHead {
        nonce: request.nonce,
        time_ns: entry.time_ns,
        weight: request.weight,
        trigger: request.trigger,
        stop: walked.outcome.stop,
        flags: walked.outcome.flags | request.flags | let_in(this, entry.registers),
        sp: entry.registers.sp(),
        elided: walked.depth.elided,
        elided_at: walked.depth.elided_at,
        labels,
        changes,
    };
    this.write_sample(head, walked.depth.kept, walked.unchanged);
    this.times.reach(Part::Encoding);
}
