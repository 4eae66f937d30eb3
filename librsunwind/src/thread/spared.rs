//! A thread that is spared its event: an event costs something at each context switch of its
//! thread, and where that alone is more than samples may take, a timer is in its place until what
//! was taken is paid back. That costs nothing at a switch, but knows the kernel's ticks only and
//! nothing of kernel mode.
//!
//! # Safety
//! The trigger is replaced in the handler.
#![allow(unsafe_code)]

use super::state::ThreadState;
use crate::clock;
use crate::process::PROCESS;
use crate::sys;
use crate::trigger::timer::CpuTimer;
use crate::trigger::{self, Armed, Outlook};
use engine::wire::sample::Trigger;

impl ThreadState {
    /// Context switches that an event of its has taken part in since this was asked for the last
    /// time, at that time (`CLOCK_MONOTONIC`, ns); 0 where they do not count.
    ///
    /// # Signal safety
    /// A system call, where they do.
    pub fn switches_with_event(&self, now_ns: u64) -> u64 {
        let all = match PROCESS.pace.counts_switches() {
            true => sys::context_switches().unwrap_or(0),
            false => return 0,
        };
        let since = self.budget.switches_since(all);
        match self.trigger.may_have_an_event(now_ns) {
            true => since,
            false => 0,
        }
    }

    /// Whether it should have a timer, if it has used so much CPU time since its last walk, ns.
    ///
    /// # Signal safety
    /// As [`ThreadState::switches_with_event`].
    pub(super) fn is_to_be_spared(&self, since_ns: u64) -> bool {
        let pace = &PROCESS.pace;
        if since_ns == 0 || !pace.counts_switches() || !pace.is_overdrawn() {
            return false;
        }
        let all = sys::context_switches().unwrap_or(0);
        let switches = self.budget.switches_before(all);
        pace.spares(since_ns, switches) && trigger::may_do_without(PROCESS.config())
    }

    /// Puts a timer in the place of the event that samples the thread; `false` if there is none to
    /// be had. In the handler.
    pub(super) fn take_timer(&self) -> bool {
        // SAFETY: in the handler, and the reference is not used once the trigger is replaced.
        let Armed::Perf(event) = (unsafe { self.trigger.armed() }) else {
            return false;
        };
        let thread = self.to_arm(PROCESS.config(), Outlook::Lasting);
        let period_ns = PROCESS.period_ns().saturating_mul(thread.periods);
        let Ok(timer) = CpuTimer::start(period_ns, &thread) else {
            return false;
        };
        // As where another event takes its place: what the old ring still gets is nobody's.
        self.drain_perf();
        let beyond = event.beyond();
        event.give_way();
        self.disarm();
        self.trigger.pass(beyond);
        self.trigger
            .set_pace(thread.periods, self.account.used_ns());
        self.shared.armed(Trigger::Timer, false);
        // SAFETY: as above.
        unsafe { self.replace_trigger(Armed::Timer(timer, None)) };
        self.trigger.set_spared(clock::monotonic_ns());
        true
    }
}
