//! One entry: take the mask of what is asked, walk the first time, show the stack to each who asked, look again.
//!
//! It runs on the thread's handler stack with all signals held back: below the handler, or below [`serve_here`] in ordinary code.
//!
//! # Safety
//! While callbacks run nothing here holds a reference to the thread's state: they reach it themselves.
#![allow(unsafe_code)]

use super::broker::COUNTS;
use super::requests::CPU_SAMPLER;
use super::stack::Stack;
use super::table::{self, CLIENTS, Known};
use crate::handler::Request;
use crate::sample::{self, Walked};
use crate::thread::ThreadState;
use crate::{arch, clock, errno};
use core::ffi::c_void;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use engine::registers::Registers;

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

/// Answers all that the thread was asked.
///
/// # Signal safety
/// As the walk, the record and the callbacks.
///
/// # Safety
/// `state` is the calling thread's. No reference to it is used while this runs but for reading what this does not write.
pub(crate) unsafe fn serve(state: *mut ThreadState, entry: &Entry<'_>) {
    // SAFETY: the caller's promise; all atomics.
    let requests = unsafe { &(*state).requests };
    let nonce = requests.begin();
    if entry.sampling.is_some() {
        requests.ask_for_sampler();
    }
    let mut walked: Option<Walked> = None;
    COUNTS.entries.fetch_add(u64::from(requests.any()), Relaxed);
    loop {
        let mut wanted = requests.take();
        if wanted == 0 {
            break;
        }
        let walked = match walked {
            Some(walked) => walked,
            // SAFETY: the caller's promise, and no callback runs now.
            None => match sample::walk(unsafe { &mut *state }, entry.registers) {
                Some(fresh) => {
                    COUNTS.unwinds.fetch_add(1, Relaxed);
                    *walked.insert(fresh)
                }
                None => break,
            },
        };
        if let (true, Some(request)) = (wanted & CPU_SAMPLER != 0, entry.sampling) {
            // SAFETY: as above.
            sample::record(unsafe { &mut *state }, request, entry, &walked);
        }
        wanted &= !CPU_SAMPLER;
        if wanted != 0 {
            show(requests, wanted, &stack_of(entry, &walked, nonce));
        }
    }
    requests.end();
}

fn stack_of(entry: &Entry<'_>, walked: &Walked, nonce: u64) -> Stack {
    Stack {
        frames: walked.frames,
        count: walked.depth.kept,
        nonce,
        time_ns: entry.time_ns,
        stack_pointer: entry.registers.sp(),
        elided: walked.depth.elided,
        elided_at: walked.depth.elided_at,
        stop: walked.outcome.stop as u32,
        flags: walked.outcome.flags as u32,
    }
}

fn show(requests: &super::Requests, wanted: u64, stack: &Stack) {
    let _kept = errno::Kept::now();
    for index in (0..CLIENTS).filter(|index| wanted >> index & 1 != 0) {
        let generation = requests.generation(index);
        let was_shown = table::show(Known { index, generation }, stack);
        let count = if was_shown {
            &COUNTS.callbacks
        } else {
            &COUNTS.cancelled
        };
        count.fetch_add(1, Relaxed);
    }
}

/// An entry in ordinary code, on the thread's handler stack, however small its own is. All signals are to be held back by the caller.
///
/// # Safety
/// As [`serve`]; and not on the handler stack already.
pub(crate) unsafe fn serve_here(
    state: *mut ThreadState,
    registers: &Registers,
    sampling: Option<Request>,
) {
    let mut call = Call {
        state,
        entry: Entry {
            registers,
            time_ns: clock::monotonic_ns(),
            sampling,
        },
    };
    // SAFETY: the caller's promise: nothing runs on that stack, and no signal will come; `call` outlives the call.
    unsafe {
        let (top, slot) = ((*state).stack_top, &raw mut (*state).call_slot);
        arch::call_on_stack(run, (&raw mut call).cast(), top, slot);
        *slot = 0;
    }
}

struct Call<'a> {
    state: *mut ThreadState,
    entry: Entry<'a>,
}

unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: `serve_here` passes this.
    let call = unsafe { &*call.cast::<Call<'_>>() };
    // SAFETY: the state is the calling thread's; all atomics.
    let walking = unsafe { &(*call.state).walking };
    let before = walking.load(Relaxed);
    walking.store(before.wrapping_add(1), SeqCst);
    // SAFETY: the promise made to `serve_here`.
    unsafe { serve(call.state, &call.entry) };
    walking.store(before.wrapping_add(2), SeqCst);
}
