//! Taking one sample: walk the stack, write the record.
//!
//! # Safety
//! Runs in the handler, or with its signal held back. The context is the kernel's; the frame buffer is used by nothing else during the walk.
#![allow(unsafe_code)]

use crate::handler::Request;
use crate::modules::{self, Finder};
use crate::process::PROCESS;
use crate::sys::HeldBack;
use crate::thread::ThreadState;
use crate::trigger::SIGNAL;
use crate::{arch, clock};
use core::ffi::c_void;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use engine::frame_buffer::FrameBuffer;
use engine::registers::Registers;
use engine::unwind::{Unwinder, unwind};
use engine::wire::sample::{SampleHead, Trigger, flags};

/// Unwinds the interrupted thread and writes the sample. `time_ns` is when the signal arrived (`CLOCK_MONOTONIC`).
///
/// # Signal safety
/// This is what the handler is for.
pub(crate) fn take(this: &mut ThreadState, request: Request, time_ns: u64, context: *mut c_void) {
    // SAFETY: the kernel gives a ucontext to an SA_SIGINFO handler.
    let registers = unsafe { Registers::from_ucontext(context) };
    walk(this, request, time_ns, &registers);
}

/// The last sample of a thread, in ordinary code at its end: what it has used since the sample before, if that is nearer to a period
/// than to nothing. It runs on the thread's handler stack, however small the thread's own is.
pub(crate) fn take_last(this: &mut ThreadState) {
    let trigger = this.trigger();
    if !matches!(trigger, Trigger::PerfKernel | Trigger::PerfUser) {
        return; // a timer's overruns have counted everything
    }
    let _held = HeldBack::new(SIGNAL);
    let nonce = this.drain_perf().cursor.max(1);
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
    let top = this.stack_top;
    let slot = &raw mut this.call_slot;
    let mut last = Last {
        this,
        request,
        registers,
    };
    // SAFETY: the handler, which uses that stack, is held back; `last` outlives the call.
    unsafe {
        arch::call_on_stack(run_last, (&raw mut last).cast(), top, slot);
        *slot = 0;
    }
}

struct Last<'a> {
    this: &'a mut ThreadState,
    request: Request,
    registers: Registers,
}

unsafe extern "C" fn run_last(last: *mut c_void) {
    // SAFETY: `take_last` passes this.
    let last = unsafe { &mut *last.cast::<Last<'_>>() };
    let time_ns = clock::monotonic_ns();
    let walking = last.this.walking.load(Relaxed);
    last.this.walking.store(walking.wrapping_add(1), SeqCst);
    walk(last.this, last.request, time_ns, &last.registers);
    last.this.walking.store(walking.wrapping_add(2), SeqCst);
}

fn walk(this: &mut ThreadState, request: Request, time_ns: u64, registers: &Registers) {
    let Some(cache) = modules::rules() else {
        return;
    };
    // SAFETY: dropped with `frames`, before the record is written.
    let mut frames = FrameBuffer::new(unsafe { this.frame_buffer() });
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
    let head = SampleHead {
        nonce: request.nonce,
        time_ns,
        weight: request.weight,
        trigger: request.trigger,
        stop: outcome.stop,
        flags: outcome.flags | request.flags,
        sp: registers.sp(),
        elided: depth.elided,
        elided_at: depth.elided_at,
    };
    this.write_sample(head, depth.kept);
}
