//! One entry: take the mask of what is asked, walk the first time, show the stack to each who
//! asked, look again.
//!
//! It runs on the thread's handler stack with all signals held back: below the handler, or below
//! [`serve_here`] in ordinary code.
//!
//! # Safety
//! The thread's state is reached by callbacks, too: all of it by shared reference.
#![allow(unsafe_code)]

use super::counts::COUNTS;
use super::stack::Stack;
use super::table;
use crate::languages;
use crate::sample::{self, Entry, Request, Walked};
use crate::sys::HeldBack;
use crate::thread::ThreadState;
use crate::thread::requests::{CLIENTS, CPU_SAMPLER, Known, Requests};
use crate::{arch, clock, errno};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use engine::registers::Registers;

/// Answers all that the thread was asked. Gives how many frames were walked anew, if nothing else
/// took time that is not known: no language and no other client was asked.
///
/// # Signal safety
/// As the walk, the record and the callbacks.
///
/// # Safety
/// In the handler, or with all signals held back; not within an entry.
pub(crate) unsafe fn serve(this: &ThreadState, entry: &Entry<'_>) -> Option<usize> {
    let requests = &this.requests;
    let nonce = requests.begin();
    if entry.sampling.is_some() {
        requests.ask_for_sampler();
    }
    let mut walked: Option<Walked> = None;
    let mut is_alone = true;
    COUNTS.entries.fetch_add(u64::from(requests.any()), Relaxed);
    loop {
        let mut wanted = requests.take();
        if wanted == 0 {
            break;
        }
        let walked = match walked {
            Some(walked) => walked,
            None => match sample::walk(this, entry.registers) {
                Some(fresh) => {
                    COUNTS.unwinds.fetch_add(1, Relaxed);
                    *walked.insert(fresh)
                }
                None => break,
            },
        };
        if let (true, Some(request)) = (wanted & CPU_SAMPLER != 0, entry.sampling) {
            sample::record(this, request, entry, &walked);
        }
        wanted &= !CPU_SAMPLER;
        if wanted != 0 {
            is_alone = false;
            show(requests, wanted, &stack_of(entry, &walked, nonce));
        }
    }
    requests.end();
    let anew = |walked: Walked| walked.depth.kept.saturating_sub(walked.reused);
    (is_alone && !languages::any()).then(|| walked.map_or(0, anew))
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

fn show(requests: &Requests, wanted: u64, stack: &Stack) {
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

/// An entry in ordinary code, on the thread's handler stack, however small its own is. All signals
/// are to be held back by the caller.
///
/// # Safety
/// As [`serve`]; and not in the handler.
pub(crate) unsafe fn serve_here(
    this: &ThreadState,
    registers: &Registers,
    sampling: Option<Request>,
) {
    let mut call = Call {
        this,
        entry: Entry {
            registers,
            time_ns: clock::monotonic_ns(),
            sampling,
        },
    };
    // SAFETY: the caller's promise: nothing runs on that stack, and no signal will come; `call`
    // outlives the call.
    unsafe {
        let (top, slot) = (this.handler_stack.free(), this.shim.call_slot.as_ptr());
        arch::call_on_stack(run, (&raw mut call).cast(), top, slot);
    }
    this.shim.call_slot.set(0);
}

struct Call<'a> {
    this: &'a ThreadState,
    entry: Entry<'a>,
}

unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: `serve_here` passes this.
    let call = unsafe { &*call.cast::<Call<'_>>() };
    let walk = call.this.shared.begin_walk(arch::stack_pointer());
    // SAFETY: the promise made to `serve_here`.
    let _ = unsafe { serve(call.this, &call.entry) };
    call.this.shared.end_walk(walk);
}

/// At the end of a thread: answers what its blocked signal never did.
pub(crate) fn answer_last(this: &ThreadState) {
    let requests = &this.requests;
    if requests.any() && !requests.is_inside() {
        let _held = HeldBack::all();
        let registers = Registers::capture();
        // SAFETY: as in `request`.
        unsafe { serve_here(this, &registers, None) };
    }
}
