//! The process goes over to another signal ([`crate::signal`]), and each thread follows it: its
//! trigger raises that from then on, and the signal before is the program's alone on this thread,
//! blocked for real if the program had it blocked.
//!
//! # Safety
//! The context is the kernel's.
#![allow(unsafe_code)]

use crate::signal;
use crate::signal_info::{self, SignalInfo};
use crate::thread::ThreadState;
use crate::{arch, sys};
use core::ffi::c_void;
use engine::wire::sample::Trigger;

/// Whether the process has gone over to another signal than the one that the thread is armed with.
pub fn is_behind(this: &ThreadState) -> bool {
    this.signal() != signal::current()
}

/// The calling thread follows, in ordinary code.
pub fn follow(this: &ThreadState) {
    if !is_behind(this) {
        return;
    }
    let mut mask = sys::signal_mask(libc::SIG_BLOCK, sys::ALL_BUT_FAULTS);
    // The handler may have been here before.
    if let Some(this) = ThreadState::current_unchecked().filter(|this| is_behind(this)) {
        mask = follow_to(this, mask);
    }
    sys::signal_mask(libc::SIG_SETMASK, mask);
}

/// The calling thread follows, in the handler that was entered with this context.
///
/// # Signal safety
/// Raw system calls.
///
/// # Safety
/// It is the kernel's ucontext, and the handler returns to it.
pub(crate) unsafe fn follow_in_handler(this: &ThreadState, context: *mut c_void) {
    // SAFETY: the caller's promise: the interrupted mask lies there.
    let mask = unsafe { &mut *context.byte_add(arch::CONTEXT_MASK).cast::<u64>() };
    *mask = follow_to(this, *mask);
}

/// The same with all signals held back, on the way to this mask; gives the one to have instead.
fn follow_to(this: &ThreadState, mask: u64) -> u64 {
    let (from, to) = (this.signal(), signal::current());
    let was_armed = this.trigger.kind() != Trigger::None;
    let early = this.take_early();
    this.disarm_for_good();
    drop_pending(this, from);
    if this.belief.take_owed() | this.belief.take_raised() {
        sys::send_to_process(from);
    }
    let (old, new) = (sys::bit(from), sys::bit(to));
    let before = match this.belief.is_blocked() {
        true => mask | old,
        false => mask,
    };
    let blocked = mask & new != 0;
    this.belief.set_blocked(blocked);
    this.belief.set_signal(to);
    match (was_armed, this.birth.is_unfinished()) {
        (true, true) => this.arm_fork_child(early),
        (true, false) => this.arm_again(),
        (false, _) => {}
    }
    before & !new
}

/// Takes out what the trigger has raised and nobody has handled: from now on the program may look.
/// What is its own is sent anew.
fn drop_pending(this: &ThreadState, signal: i32) {
    let mut information = [0u64; 16];
    if sys::take_pending(signal, &mut information) {
        let pointer = information.as_ptr();
        // SAFETY: filled by the kernel, whose structure it is.
        let info = unsafe { &*pointer.cast::<SignalInfo>() };
        if !signal_info::is_ours(info, this) {
            sys::send_again(signal, pointer.cast());
        }
    }
}
