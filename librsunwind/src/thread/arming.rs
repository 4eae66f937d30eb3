//! Arming a thread and disarming it: which trigger it gets, what the trigger must know of it, and
//! what is recorded of that.
//!
//! # Safety
//! The trigger is replaced with the signal held back.
#![allow(unsafe_code)]

use super::registry;
use super::state::ThreadState;
use super::trigger_slot::Arming;
use super::unsampled;
use crate::clock;
use crate::config::{Config, Destination};
use crate::process::PROCESS;
use crate::segment::SEGMENT;
use crate::sys::{self, Errno, HeldBack, filters};
use crate::trigger::handover::Recipient;
use crate::trigger::perf::{self, PerfEvent};
use crate::trigger::{self, Armed, Outlook};
use core::sync::atomic::Ordering::Relaxed;
use engine::seccomp::SystemCall;
use engine::wire::offer::Offer;
use engine::wire::sample::Trigger;

/// CPU time after which a thread is worth a ring of ample size and its way to the collector, ns.
const LASTING_NS: u64 = 2_000_000;
/// So many threads of an ordinary user have rings of ample size.
const FEW_THREADS: usize = 16;
/// So long arming takes mostly at most, ns.
const DOUBTED_NS: u64 = 20_000;

/// When something began.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// `CLOCK_MONOTONIC`, ns.
    pub at_ns: u64,
    /// CPU time of the thread, ns.
    pub cpu_ns: u64,
}

impl ThreadState {
    /// Arms the first thread of a program. CPU time that it has used already is counted as unarmed.
    pub fn arm_program(&self) {
        let held = HeldBack::ours();
        self.arm_from(self.moment(), true, Outlook::Program, &held);
        // Those of the program that was there before its exec are not its event's.
        self.switches_with_event(0);
    }

    /// Arms a thread that begins. What it gets is cheap: [`ThreadState::settle`] does the rest. All
    /// that it used so far is for its first sample, and counts as arming since it has its state.
    pub fn arm_thread(&self, held: &HeldBack) {
        let entry = self.birth.start.get().function;
        self.shared.entry.store(entry as u64, Relaxed);
        let began = Moment {
            at_ns: self.key(),
            cpu_ns: 0,
        };
        self.arm_from(began, true, unsampled::outlook(), held);
    }

    /// At a sample, in the handler: gives a thread the trigger that it is to have, once it has
    /// lived long enough; a timer where its context switches are too expensive with an event, if it
    /// `spares` them, until what they took is paid back.
    ///
    /// # Signal safety
    /// Raw system calls, once or twice in the life of a thread, and where it changes its pace.
    pub fn settle(&self, spares: bool) {
        // SAFETY: the handler's signal is held back, and no reference is used once the trigger is
        // replaced.
        let armed = unsafe { self.trigger.armed() };
        let spares = spares && trigger::may_do_without(PROCESS.config());
        let is_due = match armed {
            Armed::Late(_) => true,
            Armed::Perf(event) if spares => event.has_told_all(),
            Armed::Perf(event) => self.is_to_be_renewed(event),
            Armed::Timer(..) => self.trigger.is_spared() && PROCESS.pace.is_paid_back(),
            _ => false,
        };
        // A filter may keep the old trigger from being taken away: its signals would go on, and end
        // calls that nobody makes again.
        if !is_due || filters::are_known() {
            return;
        }
        let (has_event, periods) = (matches!(armed, Armed::Perf(_)), self.trigger.periods());
        let refused = match has_event {
            true => {
                let began = self.moment();
                let renews = matches!(armed, Armed::Perf(event) if self.is_to_be_renewed(event));
                // Where no timer can be had it is as if it were not spared.
                if !(spares && self.take_timer()) && renews {
                    self.renew_event();
                }
                self.count_arming_since(began);
                Errno(0)
            }
            false => {
                self.disarm();
                self.arm_now(Outlook::Lasting)
            }
        };
        if !has_event || self.trigger.is_spared() || self.trigger.periods() != periods {
            self.set_arming(refused, 0);
            self.record_name();
        }
    }

    /// Whether another event is to take the place of the one that samples the thread. One whose
    /// ring may have to tell of samples that it had no room for tells with its next sample.
    fn is_to_be_renewed(&self, event: &PerfEvent) -> bool {
        self.wants_another(event, self.account.used_ns()) && event.has_told_all()
    }

    /// Whether the next walk is made whatever it takes, as another event or a timer is to take the
    /// place of that one then. Where walks are left out until the ring is full each time, there
    /// would be none.
    ///
    /// # Signal safety
    /// Loads and arithmetic; a system call where context switches count.
    pub fn walks_to_renew(&self, event: &PerfEvent) -> bool {
        let apart_ns = PROCESS.period_ns().saturating_mul(self.trigger.periods());
        let since_ns = self.budget.signals_left_out().saturating_mul(apart_ns);
        let used_ns = self.account.used_ns().saturating_add(since_ns);
        let is_due = self.wants_another(event, used_ns) || self.is_to_be_spared(since_ns);
        is_due && !filters::are_known()
    }

    /// At that CPU time of the thread.
    fn wants_another(&self, event: &PerfEvent, used_ns: u64) -> bool {
        if event.is_first() {
            return used_ns >= LASTING_NS;
        }
        let wanted = PROCESS.pace.periods();
        wanted != self.trigger.periods() && self.trigger.may_change_pace(wanted, used_ns)
    }

    /// Puts another event in the place of the one that samples the thread, if one as good can be
    /// had: the program may have given up the right to it since, or have no descriptor and no
    /// locked memory left. In the handler.
    fn renew_event(&self) {
        // SAFETY: as in `settle`.
        let Armed::Perf(event) = (unsafe { self.trigger.armed() }) else {
            return;
        };
        let (config, used_ns) = (PROCESS.config(), self.account.used_ns());
        let thread = trigger::Thread {
            nonce: event.beyond(),
            ..self.to_arm(config, Outlook::Lasting)
        };
        let period_ns = PROCESS.period_ns().saturating_mul(thread.periods);
        match trigger::arm(config, period_ns, &thread) {
            Ok((Armed::Perf(other), _)) if other.is_as_good_as(event) => {
                // What the old ring has got up to here has the smaller nonces, and counts.
                self.drain_perf();
                event.give_way();
                self.disarm();
                self.trigger.set_pace(thread.periods, used_ns);
                // SAFETY: in the handler; the reference to the one before is not used any more.
                unsafe { self.replace_trigger(Armed::Perf(other)) };
            }
            _ => {
                event.stays();
                self.trigger.set_pace(self.trigger.periods(), used_ns);
            }
        }
    }

    /// Arms the thread after a pause too short to count, or with a better trigger.
    pub fn arm_again(&self) {
        self.disarm();
        let held = HeldBack::ours();
        self.arm_from(self.moment(), false, Outlook::Lasting, &held);
    }

    /// A thread that has just begun is recorded by its first sample, or at its end: unless the
    /// collector has a ring of it, which would be an unknown thread's. The signal is held back, as
    /// the handler must not meet a trigger that is half in place.
    fn arm_from(&self, began: Moment, is_first: bool, outlook: Outlook, _: &HeldBack) {
        let unarmed_cpu_ns = if is_first { began.cpu_ns } else { 0 };
        self.account.count_from(began.cpu_ns);
        let refused = self.arm_now(outlook);
        self.count_arming_since(began);
        let total = &self.account.totals.unarmed_cpu_ns;
        total.fetch_add(unarmed_cpu_ns, Relaxed);
        self.set_arming(refused, unarmed_cpu_ns);
        let is_at_once = matches!(outlook, Outlook::Lasting | Outlook::Program);
        if is_at_once || self.trigger.is_lent() {
            self.record_name();
        }
    }

    /// Now.
    pub fn moment(&self) -> Moment {
        Moment {
            at_ns: clock::monotonic_ns(),
            cpu_ns: self.cpu_ns().unwrap_or(0),
        }
    }

    /// Arming, or what undoes it, has taken the thread's time since then. Gives it, ns.
    pub fn count_arming_since(&self, began: Moment) -> u64 {
        let passed_ns = clock::monotonic_ns().saturating_sub(began.at_ns);
        let spent_ns = self.own_part(passed_ns, DOUBTED_NS, began.cpu_ns);
        let spent_ns = spent_ns.unwrap_or(0);
        self.add_arming(spent_ns);
        spent_ns
    }

    /// So much more was taken, ns: also of fork children, whose programs were others before there
    /// was a recording of theirs.
    pub fn add_arming(&self, ns: u64) {
        self.account.totals.arming_ns.fetch_add(ns, Relaxed);
        PROCESS.pace.spend(ns);
    }

    /// What arming took so far, ns.
    pub fn arming_ns(&self) -> u64 {
        self.account.totals.arming_ns.load(Relaxed)
    }

    fn set_arming(&self, refused: Errno, unarmed_cpu_ns: u64) {
        self.trigger.set_arming(Arming {
            period_ns: PROCESS.period_ns(),
            refused,
            unarmed_cpu_ns,
        });
        self.account.forget_name();
    }

    /// Gives the errno of a better trigger's refusal, 0 if there is none. With the signal held
    /// back.
    fn arm_now(&self, outlook: Outlook) -> Errno {
        let config = PROCESS.config();
        let thread = self.to_arm(config, outlook);
        let period_ns = PROCESS.period_ns().saturating_mul(thread.periods);
        self.trigger
            .set_pace(thread.periods, self.account.used_ns());
        match trigger::arm(config, period_ns, &thread) {
            Ok((armed, refused)) => {
                self.shared
                    .armed(armed.kind(), matches!(armed, Armed::Late(_)));
                // SAFETY: the signal is held back, and no reference to the trigger is kept.
                unsafe { self.replace_trigger(armed) };
                refused
            }
            Err(error) => {
                self.shared.armed(Trigger::None, false);
                if let Some(header) = SEGMENT.header() {
                    header.unarmed_threads.fetch_add(1, Relaxed);
                }
                error
            }
        }
    }

    pub(super) fn to_arm<'s>(&self, config: &'s Config, outlook: Outlook) -> trigger::Thread<'s> {
        let offer = Offer {
            pid: sys::getpid(),
            tid: self.tid(),
            process_key: PROCESS.key(),
            thread_key: self.key(),
            ..Offer::default()
        };
        let recipient = match &config.destination {
            Destination::Session(directory) => Some(Recipient {
                directory,
                offer,
                sparing: registry::threads() > FEW_THREADS && !sys::is_root(),
            }),
            Destination::File(_) => None,
        };
        trigger::Thread {
            tid: self.tid(),
            tag: core::ptr::from_ref(self) as usize,
            signal: self.signal(),
            nonce: self.trigger.nonce(),
            recipient,
            periods: PROCESS.pace.periods(),
            outlook,
        }
    }

    /// Stops the trigger. Where its events are lent to the collector, signals may come until that
    /// lets go of them; they are known as late.
    pub fn disarm(&self) {
        self.disarm_held(&HeldBack::all());
    }

    /// The same. All signals are held back: the handler must not read a ring that is being
    /// unmapped, nor one of the program's write records among those of the ring.
    pub fn disarm_held(&self, _: &HeldBack) {
        self.drain_perf();
        self.account.settle_lost();
        // SAFETY: the signal is held back, and the reference is gone before the trigger is
        // replaced.
        unsafe {
            if let Armed::Perf(event) = self.trigger.armed() {
                self.trigger.remember(event.descriptors());
            }
            let ends_calls = self.calls.are_ended();
            self.replace_trigger(Armed::None);
            // Under a filter it may go on all the same, and its signals end calls, which are made
            // again as long as they are noted.
            if ends_calls && !filters::may_make(&SystemCall::any(libc::SYS_ioctl)) {
                self.calls.ended_by(Trigger::PerfKernel);
            }
        }
    }

    /// Puts another trigger in place, and disarms the one before.
    ///
    /// # Safety
    /// As `TriggerSlot::replace`.
    pub(super) unsafe fn replace_trigger(&self, armed: Armed) {
        self.calls.ended_by(armed.kind());
        self.account.forget_clock();
        // SAFETY: the caller's promise.
        unsafe { self.trigger.replace(armed) };
    }

    /// Disarms before an exec: nothing of ours may raise a signal any more, which would kill the
    /// next program.
    pub fn disarm_for_good(&self) {
        if self.trigger.is_lent() {
            perf::rest_all();
        }
        self.disarm();
    }

    /// Where its perf ring stands: what is sampled from now on is behind that. With the signal held
    /// back.
    pub fn cursor(&self) -> u64 {
        // SAFETY: this is called so, and the reference goes at once.
        match unsafe { self.trigger.armed() } {
            Armed::Perf(event) => event.cursor(),
            _ => self.trigger.nonce(),
        }
    }
}
