//! Threads whose events the collector opens: each gets its state at its first signal. Where the
//! library was brought into a process that runs, a thread is known by its number and its thread
//! pointer from then on.
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
#[cfg(feature = "inside")]
use engine::registers::thread_block;

/// The calling thread's word.
///
/// # Signal safety
/// One system call.
#[cfg(feature = "inside")]
pub(crate) extern "C" fn word() -> *mut c_void {
    arch::thread_word()
}

/// The calling thread's word, which it is given if it has none; null where it is not to be sampled:
/// in a fork child, and at the end of the recording.
///
/// # Signal safety
/// One system call; some twenty at the first signal of a thread.
pub(crate) fn word_at_entry() -> *mut c_void {
    let word = arch::thread_word();
    // SAFETY: null, or a state, which stays.
    match unsafe { ThreadState::live(word.cast()) } {
        #[cfg(feature = "inside")]
        Some(this) if this.shared.block.load(Relaxed) != thread_block() => {
            // Its number is another thread's by now.
            this.shared.leave();
            arch::set_thread_word(ptr::null_mut());
        }
        Some(_) => return word,
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
    arm(this);
    state.cast()
}

/// From now on a thread's samples are those that the collector's event asks for.
pub(crate) fn arm(this: &ThreadState) {
    let period_ns = PROCESS.period_ns();
    // The signal says that a period is over, which began before.
    let used_ns = sys::thread_cpu_ns(this.tid()).unwrap_or(0);
    let before_ns = used_ns.saturating_sub(period_ns);
    // What threads used before the library came is not in the recording.
    let (base_ns, unarmed_cpu_ns) = match cfg!(feature = "inside") {
        true => (before_ns, 0),
        false => (0, before_ns),
    };
    this.shared.base_ns.store(base_ns, Relaxed);
    this.account.count_from(unarmed_cpu_ns);
    let total = &this.account.totals.unarmed_cpu_ns;
    total.store(unarmed_cpu_ns, Relaxed);
    let armed = Armed::Outside;
    this.shared.armed(armed.kind(), false);
    // SAFETY: the signal is held back, and nobody holds a reference to the trigger.
    unsafe { this.replace_trigger(armed) };
    this.trigger.set_arming(Arming {
        period_ns,
        refused: Errno(0),
        unarmed_cpu_ns,
    });
}
