//! Taking one sample: walk the stack, write the record.
//!
//! # Safety
//! Runs in the handler, or with its signal held back. The context is the kernel's; the frame buffer is used by nothing else during the walk.
#![allow(unsafe_code)]

use crate::clients::entry::{self, Entry};
use crate::handler::Request;
use crate::modules::{self, Finder};
use crate::process::PROCESS;
use crate::sys::HeldBack;
use crate::thread::ThreadState;
use crate::{arch, weak_address};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use engine::address::RuntimeAddress;
use engine::frame_buffer::{Depth, FrameBuffer};
use engine::module_map::{Module, Modules};
use engine::registers::Registers;
use engine::unwind::{Outcome, Unwinder, unwind};
use engine::wire::sample::{Frame, Held, SampleHead, Trigger, flags};

/// The last sample of a thread, in ordinary code at its end: what it has used since the sample before, if that is nearer to a period
/// than to nothing. It runs on the thread's handler stack, however small the thread's own is.
pub(crate) fn take_last(this: &mut ThreadState) {
    let trigger = this.trigger();
    if trigger == Trigger::None {
        return;
    }
    let _held = HeldBack::all();
    let nonce = match trigger {
        Trigger::Timer => this.next_nonce(),
        _ => this.drain_perf().cursor.max(1),
    };
    let weight = this.take_weight(0);
    if weight == 0 {
        return;
    }
    let request = Request {
        trigger,
        nonce,
        weight,
        flags: flags::LAST,
    };
    let registers = Registers::capture();
    // SAFETY: the thread's own state, in ordinary code, all signals held back.
    unsafe { entry::serve_here(this, &registers, Some(request)) };
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
}

/// Walks the thread's stack into the room of its next sample; `None` before the process's tables are there.
///
/// # Signal safety
/// This is what the handler is for.
pub(crate) fn walk(this: &mut ThreadState, registers: &Registers) -> Option<Walked> {
    if let Some(held) = held(this, registers) {
        // It may lie in a module that no walk meets. First, because after a search in vain there is a pause.
        Finder::new(this).find(RuntimeAddress(held.function));
    }
    // SAFETY: nothing else uses that room until the sample is written.
    let room = unsafe { this.frame_buffer() };
    walk_into(this, room, registers)
}

/// The same into room of its own; gives the frames. Of a stack deeper than the room those up to the gap.
///
/// # Signal safety
/// As above.
pub(crate) fn walk_aside(this: &mut ThreadState, registers: &Registers) -> &'static [Frame] {
    // SAFETY: used here alone, with signals held back.
    let room = unsafe { this.spare_frames() };
    let Some(walked) = walk_into(this, room, registers) else {
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
    this: &mut ThreadState,
    room: &'static mut [Frame],
    registers: &Registers,
) -> Option<Walked> {
    let cache = modules::rules()?;
    let first = room.as_ptr();
    let mut frames = FrameBuffer::new(room);
    let mut stack = this.stack;
    let finder = Finder::new(this);
    let unwinder = Unwinder {
        modules: &finder,
        cache,
        preference: PROCESS.config().unwind,
    };
    let outcome = unwind(&unwinder, registers, &mut stack, &mut frames);
    let depth = frames.finish();
    this.stack = stack;
    Some(Walked {
        frames: first,
        depth,
        outcome,
    })
}

/// Frames of a wrapper of ours together take less, bytes: further away the signal did not come in behind its call.
const WRAPPER: u64 = 1024;
/// libc's `syscall` is shorter, bytes.
const SYSTEM_CALL: u64 = 64;

/// The call that has just been made with the signal held back, if it has come in behind that.
fn held(this: &ThreadState, registers: &Registers) -> Option<Held> {
    let is_here = |held: &Held| held.sp.wrapping_sub(registers.sp()) < WRAPPER;
    this.held.filter(is_here)
}

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

/// Whether the program has just let the signal in, which it had blocked by a system call of its own making: by libc's `syscall`, or in code that is
/// neither libc's, which holds signals back for a moment here and there, nor ours.
fn let_in(this: &mut ThreadState, registers: &Registers) -> u64 {
    if !arch::has_just_set_mask(registers) || held(this, registers).is_some() {
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
pub(crate) fn record(this: &mut ThreadState, request: Request, entry: &Entry<'_>, walked: &Walked) {
    let head = SampleHead {
        nonce: request.nonce,
        time_ns: entry.time_ns,
        weight: request.weight,
        trigger: request.trigger,
        stop: walked.outcome.stop,
        flags: walked.outcome.flags | request.flags | let_in(this, entry.registers),
        sp: entry.registers.sp(),
        held: held(this, entry.registers),
        elided: walked.depth.elided,
        elided_at: walked.depth.elided_at,
    };
    this.write_sample(head, walked.depth.kept);
}
