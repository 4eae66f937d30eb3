//! What samples a thread, and what is remembered of what sampled it before.
//!
//! The trigger itself is replaced and drained in the handler, or with the signal held back. All
//! else is atomics: ordinary code asks for it whenever it likes.
//!
//! # Safety
//! No reference to the trigger is kept while it is replaced: [`TriggerSlot::replace`]'s callers
//! promise it.
#![allow(unsafe_code)]

use crate::sys::Errno;
use crate::trigger::Armed;
use crate::trigger::perf::PerfEvent;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64};
use engine::wire::offer::MAX_EVENTS;
use engine::wire::sample::Trigger;

/// See the module.
#[derive(Debug)]
pub struct TriggerSlot {
    armed: UnsafeCell<Armed>,
    /// A [`Trigger`]: which it is.
    kind: AtomicU8,
    /// The last nonce: they grow from one trigger to the next.
    nonce: AtomicU64,
    /// `si_fd` of the perf events before, -1 in unused slots: a signal of theirs may still be
    /// pending.
    past_descriptors: [AtomicI32; MAX_EVENTS],
    /// The collector may hold events that this thread has opened, armed or not.
    lent: AtomicBool,
    period_ns: AtomicU64,
    /// Sampling periods that its samples stand for.
    periods: AtomicU64,
    /// The thread's CPU time when it was armed, ns, and for the how-many-th time.
    armed_at_ns: AtomicU64,
    armings: AtomicU32,
    refused: AtomicI32,
    unarmed_cpu_ns: AtomicU64,
    /// When a timer took the place of the event, which was too expensive (`CLOCK_MONOTONIC`, ns); 0
    /// where none did.
    spared_ns: AtomicU64,
}

/// The shortest time between two paces, ns.
const PACE_NS: u64 = 2_000_000;
/// The same where the next is much like the one before. The first event of a thread goes on beside
/// the next until the collector has looked around; with several changes meanwhile there would be as
/// many, which all take the program's time.
const FINE_PACE_NS: u64 = 128_000_000;

/// An event that was let go of is in force for so long as it takes the collector to release it, ns;
/// the first time it may take longer.
const RELEASED_NS: u64 = 25_000_000;

/// How a thread was armed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arming {
    /// Sampling period, ns.
    pub period_ns: u64,
    /// The refusal of a better trigger, 0 if there was none.
    pub refused: Errno,
    /// CPU time used before, ns.
    pub unarmed_cpu_ns: u64,
}

impl TriggerSlot {
    /// None.
    pub(super) fn new() -> Self {
        Self {
            armed: UnsafeCell::new(Armed::None),
            kind: AtomicU8::new(Trigger::None as u8),
            nonce: AtomicU64::new(0),
            past_descriptors: [const { AtomicI32::new(-1) }; MAX_EVENTS],
            lent: AtomicBool::new(false),
            period_ns: AtomicU64::new(0),
            periods: AtomicU64::new(1),
            armed_at_ns: AtomicU64::new(0),
            armings: AtomicU32::new(0),
            refused: AtomicI32::new(0),
            unarmed_cpu_ns: AtomicU64::new(0),
            spared_ns: AtomicU64::new(0),
        }
    }

    /// The trigger.
    ///
    /// # Safety
    /// In the handler, or with the signal held back; the reference is gone before the trigger is
    /// replaced.
    pub(crate) unsafe fn armed(&self) -> &Armed {
        // SAFETY: the caller's promise.
        unsafe { &*self.armed.get() }
    }

    /// Puts another trigger in place, and disarms the one before.
    ///
    /// # Safety
    /// In the handler, or with the signal held back; no reference from [`TriggerSlot::armed`] is
    /// used afterwards.
    pub(super) unsafe fn replace(&self, armed: Armed) {
        if let Armed::Perf(event) = &armed
            && event.is_lent()
        {
            self.lent.store(true, Relaxed);
        }
        self.kind.store(armed.kind() as u8, Relaxed);
        self.spared_ns.store(0, Relaxed);
        // SAFETY: the caller's promise. The one before is dropped when it is out of reach.
        drop(unsafe { self.armed.get().replace(armed) });
    }

    /// Takes away the event that stands beside the timer of a fork child.
    ///
    /// # Safety
    /// As [`TriggerSlot::replace`].
    pub(super) unsafe fn take_early(&self) -> Option<PerfEvent> {
        // SAFETY: the caller's promise.
        match unsafe { &mut *self.armed.get() } {
            Armed::Timer(_, early) => early.take(),
            _ => None,
        }
    }

    /// What samples the thread.
    pub fn kind(&self) -> Trigger {
        Trigger::from_number(self.kind.load(Relaxed)).unwrap_or_default()
    }

    /// The last nonce.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce.load(Relaxed)
    }

    /// The next nonce of a trigger that has none of its own.
    pub(crate) fn next_nonce(&self) -> u64 {
        let next = self.nonce().wrapping_add(1).max(1);
        self.nonce.store(next, Relaxed);
        next
    }

    /// Nonces are behind that one from now on.
    pub(super) fn pass(&self, nonce: u64) {
        self.nonce.fetch_max(nonce, Relaxed);
    }

    /// Remembers the descriptors of events that are about to be let go of.
    pub(super) fn remember(&self, descriptors: [i32; MAX_EVENTS]) {
        for (slot, descriptor) in self.past_descriptors.iter().zip(descriptors) {
            slot.store(descriptor, Relaxed);
        }
    }

    /// Whether a signal with that `si_fd` is a late one of theirs.
    pub(crate) fn knows(&self, descriptor: i32) -> bool {
        let mut known = self.past_descriptors.iter();
        descriptor >= 0 && known.any(|slot| slot.load(Relaxed) == descriptor)
    }

    /// Whether the collector may hold events that this thread has opened.
    pub(super) fn is_lent(&self) -> bool {
        self.lent.load(Relaxed)
    }

    /// The trigger is a timer since then, as an event was too expensive.
    pub(super) fn set_spared(&self, now_ns: u64) {
        self.spared_ns.store(now_ns, Relaxed);
    }

    /// Whether it is.
    pub(crate) fn is_spared(&self) -> bool {
        self.spared_ns.load(Relaxed) != 0
    }

    /// Whether there may be an event at that time: the trigger, or one that it took the place of.
    pub(crate) fn may_have_an_event(&self, now_ns: u64) -> bool {
        match self.spared_ns.load(Relaxed) {
            0 => matches!(self.kind(), Trigger::PerfKernel | Trigger::PerfUser),
            spared_ns => now_ns.saturating_sub(spared_ns) < RELEASED_NS,
        }
    }

    /// Sampling periods that its samples stand for.
    pub(crate) fn periods(&self) -> u64 {
        self.periods.load(Relaxed)
    }

    /// It is armed anew, at that CPU time of the thread, to be sampled so far apart.
    pub(super) fn set_pace(&self, periods: u64, cpu_ns: u64) {
        self.periods.store(periods, Relaxed);
        self.armed_at_ns.store(cpu_ns, Relaxed);
        self.armings.fetch_add(1, Relaxed);
    }

    /// Whether it may change to that pace at that CPU time: each time it waits for twice as long,
    /// so that what arming costs does not count.
    pub(super) fn may_change_pace(&self, periods: u64, cpu_ns: u64) -> bool {
        let now = self.periods();
        let wait_ns = PACE_NS << self.armings.load(Relaxed).min(6);
        let wait_ns = match periods.abs_diff(now) >= now.div_ceil(2) {
            true => wait_ns,
            false => wait_ns.max(FINE_PACE_NS),
        };
        cpu_ns.saturating_sub(self.armed_at_ns.load(Relaxed)) >= wait_ns
    }

    /// How the thread was armed last.
    pub(super) fn arming(&self) -> Arming {
        Arming {
            period_ns: self.period_ns.load(Relaxed),
            refused: Errno(self.refused.load(Relaxed)),
            unarmed_cpu_ns: self.unarmed_cpu_ns.load(Relaxed),
        }
    }

    /// See [`TriggerSlot::arming`].
    pub(super) fn set_arming(&self, arming: Arming) {
        self.period_ns.store(arming.period_ns, Relaxed);
        self.refused.store(arming.refused.0, Relaxed);
        self.unarmed_cpu_ns.store(arming.unarmed_cpu_ns, Relaxed);
    }

    /// What armed it never raised a signal: its CPU time, ns, was all before.
    pub(super) fn was_never_armed(&self, cpu_ns: u64) {
        self.unarmed_cpu_ns.store(cpu_ns, Relaxed);
    }

    /// For the next thread.
    ///
    /// # Safety
    /// As [`TriggerSlot::replace`].
    pub(super) unsafe fn reset(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.replace(Armed::None) };
        self.nonce.store(0, Relaxed);
        self.periods.store(1, Relaxed);
        self.armings.store(0, Relaxed);
        self.lent.store(false, Relaxed);
        self.remember([-1; MAX_EVENTS]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_only_grow() {
        let slot = TriggerSlot::new();
        assert_eq!((slot.next_nonce(), slot.next_nonce()), (1, 2));
        slot.pass(100);
        slot.pass(7);
        assert_eq!(slot.next_nonce(), 101);
    }

    #[test]
    fn a_pace_changes_by_little_seldom_and_by_much_soon() {
        let slot = TriggerSlot::new();
        slot.set_pace(10, 0);
        assert!(!slot.may_change_pace(20, 2 * PACE_NS - 1));
        for much in [5, 15, 20, 1000] {
            assert!(slot.may_change_pace(much, 2 * PACE_NS), "{much}");
        }
        for little in [6, 9, 14] {
            assert!(!slot.may_change_pace(little, FINE_PACE_NS - 1), "{little}");
            assert!(slot.may_change_pace(little, FINE_PACE_NS), "{little}");
        }
        // It waits for longer each time.
        slot.set_pace(1, 0);
        assert!(!slot.may_change_pace(2, 2 * PACE_NS) && slot.may_change_pace(2, 4 * PACE_NS));
    }

    #[test]
    fn an_event_that_was_let_go_of_is_there_for_a_while() {
        let slot = TriggerSlot::new();
        assert!(!slot.is_spared() && !slot.may_have_an_event(1));
        slot.set_spared(1);
        assert!(slot.is_spared() && slot.may_have_an_event(2));
        assert!(!slot.may_have_an_event(1 + RELEASED_NS));
        // SAFETY: no reference is held.
        unsafe { slot.replace(Armed::None) };
        assert!(!slot.is_spared());
    }

    #[test]
    fn late_signals_are_known_until_the_next_thread() {
        let slot = TriggerSlot::new();
        assert!(!slot.knows(-1) && !slot.knows(3));
        let mut descriptors = [-1; MAX_EVENTS];
        descriptors[0] = 3;
        slot.remember(descriptors);
        assert!(slot.knows(3) && !slot.knows(-1));
        let arming = Arming {
            period_ns: 1,
            refused: Errno(13),
            unarmed_cpu_ns: 2,
        };
        slot.set_arming(arming);
        assert_eq!(slot.arming(), arming);
        // SAFETY: no reference is held.
        unsafe { slot.reset() };
        assert!(!slot.knows(3) && !slot.is_lent());
        assert_eq!((slot.kind(), slot.nonce()), (Trigger::None, 0));
    }
}
