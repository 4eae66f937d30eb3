//! The time of a fork child before its first signal: a timer says how long it was, and an event
//! that raises nothing has the kernel's half of it in a small ring, which the thread looks at once.
//!
//! # Safety
//! The trigger is used and replaced with the signal held back.
#![allow(unsafe_code)]

use super::state::ThreadState;
use crate::process::PROCESS;
use crate::sys::HeldBack;
use crate::trigger::perf::PerfEvent;
use crate::trigger::{self, Outlook};
use core::sync::atomic::Ordering::Relaxed;

impl ThreadState {
    /// Arms the thread of a fork child until its first signal, and records nothing yet. `early` is
    /// what [`ThreadState::take_early`] gave.
    pub fn arm_fork_child(&self, early: Option<PerfEvent>) {
        let config = PROCESS.config();
        let thread = trigger::Thread {
            recipient: None,
            // An event that is there already has that period.
            periods: PROCESS.pace.least(),
            ..self.to_arm(config, Outlook::Lasting)
        };
        self.trigger.set_pace(thread.periods, 0);
        let _held = HeldBack::ours();
        let period_ns = PROCESS.period_ns().saturating_mul(thread.periods);
        let armed = trigger::arm_fork_child(config, period_ns, &thread, early);
        if let Ok(armed) = armed {
            // SAFETY: the signal is held back, and no reference to the trigger is kept.
            unsafe { self.replace_trigger(armed) };
        }
    }

    /// Takes the event beside the timer away, if there is one: its records are kept, whatever
    /// becomes of the timer.
    pub fn take_early(&self) -> Option<PerfEvent> {
        let _held = HeldBack::ours();
        // SAFETY: as above.
        unsafe { self.trigger.take_early() }
    }

    /// Writes what the event beside the timer has seen of the kernel, and counts what found no room
    /// in its ring; then it is gone. From now on nonces are behind its samples. Those of user mode
    /// have no stack: their time is in the weight of the sample that is due. For the handler, or
    /// with the signal held back.
    pub fn settle_early(&self) {
        let Some(event) = self.take_early() else {
            return;
        };
        let was_full = event.is_full();
        let drained = event.drain(|head, frames| {
            if !frames.is_empty() {
                self.write_kernel_sample(head, frames);
            }
        });
        self.trigger.pass(drained.cursor);
        // The kernel tells that behind the next sample, which does not come any more.
        let apart_ns = PROCESS.period_ns().saturating_mul(self.trigger.periods());
        let due = self.cpu_ns().unwrap_or(0).checked_div(apart_ns);
        let missing = due.unwrap_or(0).saturating_sub(drained.samples);
        let lost = if was_full { missing } else { drained.lost };
        self.account.totals.lost_in_ring.fetch_add(lost, Relaxed);
    }
}
