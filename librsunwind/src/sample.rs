//! Taking one sample: walk the stack, write the record.
//!
//! # Safety
//! Runs in the handler. The context is the kernel's; the frame buffer is used by nothing else during the walk.
#![allow(unsafe_code)]

use crate::handler::Request;
use crate::modules::{self, Finder};
use crate::process::PROCESS;
use crate::thread::ThreadState;
use core::ffi::c_void;
use engine::frame_buffer::FrameBuffer;
use engine::registers::Registers;
use engine::unwind::{Unwinder, unwind};
use engine::wire::sample::SampleHead;

/// Unwinds the interrupted thread and writes the sample. `time_ns` is when the signal arrived (`CLOCK_MONOTONIC`).
///
/// # Signal safety
/// This is what the handler is for.
pub(crate) fn take(this: &mut ThreadState, request: Request, time_ns: u64, context: *mut c_void) {
    let Some(cache) = modules::rules() else {
        return;
    };
    // SAFETY: the kernel gives a ucontext to an SA_SIGINFO handler.
    let registers = unsafe { Registers::from_ucontext(context) };
    // SAFETY: dropped with `frames`, before the record is written.
    let mut frames = FrameBuffer::new(unsafe { this.frame_buffer() });
    let mut stack = this.stack;
    let finder = Finder::new(this);
    let unwinder = Unwinder {
        modules: &finder,
        cache,
        preference: PROCESS.config().unwind,
    };
    let outcome = unwind(&unwinder, &registers, &mut stack, &mut frames);
    let depth = frames.finish();
    this.stack = stack;
    let head = SampleHead {
        nonce: request.nonce,
        time_ns,
        weight: request.weight,
        trigger: request.trigger,
        stop: outcome.stop,
        flags: outcome.flags,
        sp: registers.sp(),
        elided: depth.elided,
        elided_at: depth.elided_at,
    };
    this.write_sample(head, depth.kept);
}
