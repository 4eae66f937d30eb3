//! Threads that ran before the library was there: each gets its state at its first signal, and is
//! known by its number and its thread pointer from then on.
//!
//! # Safety
//! Called by the signal handler's entry, on whatever stack the thread is on, and by ordinary code
//! with all signals held back.
#![allow(unsafe_code)]

use super::state::ThreadState;
use super::trigger_slot::Arming;
use crate::process::PROCESS;
use crate::sys::{self, Errno};
use crate::trigger::Armed;
use crate::{arch, signal};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use engine::registers::thread_block;

/// The calling thread's word.
///
/// # Signal safety
/// One system call.
pub(crate) extern "C" fn word() -> *mut c_void {
    arch::thread_word()
}

/// The calling thread's word, which it is given if it has none; null where it is not to be sampled:
/// in a fork child, and at the end of the recording.
///
/// # Signal safety
/// One system call; some twenty at the first signal of a thread.
pub(crate) extern "C" fn word_at_entry() -> *mut c_void {
    let word = arch::thread_word();
    // SAFETY: null, or a state, which stays.
    match unsafe { ThreadState::live(word.cast()) } {
        Some(this) if this.shared.block.load(Relaxed) == thread_block() => return word,
        // Its number is another thread's by now.
        Some(this) => {
            this.shared.leave();
            arch::set_thread_word(ptr::null_mut());
        }
        None if word.is_null() => {}
        None => return ptr::null_mut(), // wiped by a fork
    }
    if signal::is_given_up() || !PROCESS.is_active() {
        return ptr::null_mut();
    }
    match ThreadState::allocate(PROCESS.config().max_depth) {
        Ok(state) => begin(state),
        Err(_) => ptr::null_mut(),
    }
}

/// The calling thread's state, which it is given if it has none; in ordinary code.
pub(crate) fn entered() -> Option<&'static ThreadState> {
    // SAFETY: null, or a state of this thread's, which stays.
    unsafe { ThreadState::live(word_at_entry().cast()) }
}

/// Gives the calling thread a state; null where there is no room for its word.
fn begin(state: *mut ThreadState) -> *mut c_void {
    // SAFETY: fresh, and this thread's from now on.
    let this = unsafe { ThreadState::adopt_late(state) };
    if arch::thread_word() != state.cast() {
        this.shared.leave();
        return ptr::null_mut();
    }
    let period_ns = PROCESS.period_ns();
    // The signal says that a period is over, which began before.
    let used_ns = sys::thread_cpu_ns(this.tid()).unwrap_or(0);
    let base_ns = used_ns.saturating_sub(period_ns);
    this.shared.base_ns.store(base_ns, Relaxed);
    this.account.count_from(0);
    let armed = Armed::Outside;
    this.shared.armed(armed.kind(), false);
    // SAFETY: nobody holds a reference to the trigger of a fresh state.
    unsafe { this.replace_trigger(armed) };
    this.trigger.set_arming(Arming {
        period_ns,
        refused: Errno(0),
        unarmed_cpu_ns: 0,
    });
    state.cast()
}
