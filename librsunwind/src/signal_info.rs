//! What the kernel says of a signal, and whether that is one of ours.
//!
//! # Safety
//! The trigger is looked at in the handler, or with the signal held back.
#![allow(unsafe_code)]

use crate::signal::REQUESTED;
use crate::sys;
use crate::thread::{Information, ThreadState};
use crate::trigger::{self, Armed};
use core::ptr;

/// The parts of `siginfo_t` that triggers fill, at the kernel's offsets.
#[derive(Debug)]
#[repr(C)]
pub struct SignalInfo {
    pub(crate) signal: i32,
    pub(crate) errno: i32,
    pub(crate) code: i32,
    pub(crate) padding: i32,
    pub(crate) timer_id: i32,
    pub(crate) overrun: i32,
    /// `si_value` of a timer; `si_fd` of a file.
    pub(crate) value: u64,
}

impl SignalInfo {
    /// Whether an event of the collector's raised it.
    pub(crate) fn is_of_collector(&self) -> bool {
        matches!(self.code, POLL_IN..=POLL_HUP) && trigger::is_outside(self.value as i32)
    }
}

/// `si_code` of a signal that a file raised: from `POLL_IN` to `POLL_HUP`.
pub(crate) const POLL_IN: i32 = 1;
/// See [`POLL_IN`].
pub(crate) const POLL_HUP: i32 = 6;

/// What the kernel says of a signal that the program raises on the calling thread.
pub(crate) fn raised(signal: i32) -> Information {
    let mut information = Information::default();
    let head = [
        signal as u32 as u64,
        libc::SI_TKILL as u32 as u64,
        u64::from(sys::getpid()) | u64::from(sys::real_user()) << 32,
    ];
    for (word, known) in information.iter_mut().zip(head) {
        *word = known;
    }
    information
}

/// Whether the program would have no such signal but by chance.
pub(crate) const fn looks_like_ours(info: &SignalInfo) -> bool {
    matches!(info.code, POLL_IN..=POLL_HUP | libc::SI_TIMER | REQUESTED)
}

/// Whether a signal was raised by a trigger that is gone by now.
pub(crate) fn is_late(info: &SignalInfo, this: Option<&ThreadState>) -> bool {
    match (info.code, this) {
        _ if info.is_of_collector() => true,
        (POLL_IN..=POLL_HUP, Some(this)) => this.trigger.knows(info.value as i32),
        (libc::SI_TIMER, Some(this)) => info.value == ptr::from_ref(this) as u64,
        (REQUESTED, _) | (POLL_IN..=POLL_HUP | libc::SI_TIMER, None) => true,
        _ => false,
    }
}

/// Whether a signal that a waiting thread got instead of the handler is not the program's. With the
/// signal held back.
pub fn is_ours(info: &SignalInfo, this: &ThreadState) -> bool {
    // SAFETY: the caller holds the signal back, and the reference goes at once.
    let raised = match unsafe { this.trigger.armed() } {
        Armed::Perf(event) => {
            matches!(info.code, POLL_IN..=POLL_HUP) && event.raised(info.value as i32)
        }
        _ => false,
    };
    raised || is_late(info, Some(this))
}
