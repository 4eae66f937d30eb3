//! The end of a thread's account: its last sample, its final CPU time, its memory.
//!
//! # Safety
//! Ordinary code of the thread itself, not on its handler stack.
#![allow(unsafe_code)]

use crate::arch;
use crate::clients::entry;
use crate::sample::Request;
use crate::sys::HeldBack;
use crate::thread::ThreadState;
use core::ptr;
use engine::registers::Registers;
use engine::wire::sample::{Trigger, flags};
use engine::wire::thread::ThreadEndReason;

/// The last sample of a thread, in ordinary code at its end: what it has used since the sample
/// before, if that is nearer to a period than to nothing. It runs on the thread's handler stack,
/// however small the thread's own is.
pub(super) fn take_last(this: &ThreadState) {
    let trigger = this.trigger.kind();
    // Where a client's callback leaves the process, that stack is in use.
    // And of a thread that was never armed there is a row instead.
    if trigger == Trigger::None || this.shared.is_walking() || this.was_never_armed() {
        return;
    }
    let _held = HeldBack::all();
    let nonce = match this.drain_perf().cursor {
        0 => this.trigger.next_nonce(), // no ring, or nothing in it so far
        cursor => cursor,
    };
    let weight = this.take_weight(0, false);
    if weight == 0 {
        return;
    }
    let request = Request {
        trigger,
        nonce,
        weight,
        flags: flags::LAST | this.left_out(),
        sampled_ns: 0,
    };
    let registers = Registers::capture();
    // SAFETY: the thread's own state, in ordinary code, all signals held back.
    unsafe { entry::serve_here(this, &registers, Some(request)) };
}

/// Takes the last sample and closes this thread's account. For ordinary code: the sample uses the
/// handler's stack.
pub(super) fn close(this: &ThreadState, reason: ThreadEndReason) {
    take_last(this);
    this.close_account_here(reason);
}

/// The thread ends: account, trigger, chunk, memory.
///
/// # Safety
/// Ordinary code of the thread itself, not on the handler stack; the state is not used afterwards.
pub(super) unsafe fn end(state: *mut ThreadState) {
    // SAFETY: the caller's promise.
    let this = unsafe { &*state };
    entry::answer_last(this);
    let began = this.moment();
    this.count_end(began.cpu_ns);
    take_last(this);
    let held = HeldBack::all();
    this.disarm_held(&held);
    let spent_ns = this.count_arming_since(began);
    // Many end at once: of one that took no sample the clock has just been read.
    let now = match this.shared.is_late() && began.cpu_ns != 0 {
        true => Some(began.cpu_ns.saturating_add(spent_ns)),
        false => this.cpu_ns(),
    };
    if let Some(cpu_ns) = now {
        this.close_account_at(cpu_ns, ThreadEndReason::ThreadExit, &held);
    }
    // What waits comes in now: the thread's own stack may have no room for it.
    drop(held);
    // A signal that is still pending finds no state and does nothing.
    arch::set_thread_word(ptr::null_mut());
    this.seal_chunk();
    if this.handler_stack.take_back() {
        // SAFETY: out of reach of the handler, and the thread does not come back to it.
        unsafe { ThreadState::release(state) };
    } else {
        this.shared.leave();
    }
}
