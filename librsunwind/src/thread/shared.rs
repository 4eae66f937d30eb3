//! The part of a thread's state that other threads look at. All atomics.

use super::handler_stack;
use crate::sys;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use engine::wire::sample::Trigger;

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// 1 while a thread has it.
    claimed: AtomicU32,
    /// The thread this is, or 0 before it runs.
    pub tid: AtomicU32,
    /// When it was first seen (`CLOCK_MONOTONIC`, ns).
    pub key: AtomicU64,
    /// The function that it began in; 0 if that is not known.
    pub(super) entry: AtomicU64,
    /// Odd while the handler walks: what unloading a module waits for.
    pub walking: AtomicU64,
    /// The stack pointer at the beginning of the newest walk.
    walk_began: AtomicU64,
    /// A [`Trigger`]: what samples it.
    trigger: AtomicU8,
    /// It is to be armed for good at its first signal.
    late: AtomicBool,
    /// Its recording knows it.
    told: AtomicBool,
    /// CPU time of the thread at which its account begins, ns.
    pub(super) base_ns: AtomicU64,
    /// Its thread pointer, where it is known by its number.
    #[cfg(feature = "inside")]
    pub(super) block: AtomicU64,
    /// Where it is in the registry; beyond all slots if it is not.
    pub(super) slot: AtomicUsize,
    /// Frames that it has room for.
    room: usize,
}

impl Shared {
    /// Of a state that its maker has claimed.
    pub(super) fn new(room: usize) -> Self {
        Self {
            claimed: AtomicU32::new(1),
            tid: AtomicU32::new(0),
            key: AtomicU64::new(0),
            entry: AtomicU64::new(0),
            walking: AtomicU64::new(0),
            walk_began: AtomicU64::new(0),
            trigger: AtomicU8::new(Trigger::None as u8),
            late: AtomicBool::new(false),
            told: AtomicBool::new(false),
            base_ns: AtomicU64::new(0),
            #[cfg(feature = "inside")]
            block: AtomicU64::new(0),
            slot: AtomicUsize::new(usize::MAX),
            room,
        }
    }

    /// Claims the state that a thread has left, if it has and there is room for just so many
    /// frames.
    pub(super) fn claim(&self, room: usize) -> bool {
        self.room == room && self.claimed.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
    }

    /// The thread has left it.
    pub(super) fn release(&self) {
        self.tid.store(0, Release);
        self.told.store(false, Relaxed);
        self.base_ns.store(0, Relaxed);
        self.entry.store(0, Relaxed);
        self.claimed.store(0, Release);
    }

    /// CPU time of its account, ns; `None` if it is gone.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        let clock = sys::thread_cpu_ns(self.tid.load(Relaxed)).ok()?;
        Some(clock.saturating_sub(self.base_ns.load(Relaxed)))
    }

    /// It is armed with that from now on; `late` until its first signal only.
    pub(super) fn armed(&self, trigger: Trigger, late: bool) {
        self.trigger.store(trigger as u8, Relaxed);
        self.late.store(late, Relaxed);
    }

    /// What samples it.
    pub(super) fn trigger(&self) -> Trigger {
        Trigger::from_number(self.trigger.load(Relaxed)).unwrap_or_default()
    }

    /// Whether it is armed until its first signal only.
    pub fn is_late(&self) -> bool {
        self.late.load(Relaxed)
    }

    /// Its recording has a word of it.
    pub(super) fn tell(&self) {
        self.told.store(true, Relaxed);
    }

    /// Whether its recording has a word of it.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Relaxed)
    }

    /// The thread that has it ends, and nobody else may have it.
    pub(crate) fn leave(&self) {
        self.tid.store(0, Release);
    }

    /// Whether a thread runs that has it.
    pub(super) fn is_live(&self) -> bool {
        self.tid.load(Acquire) != 0
    }

    /// A walk begins, with that stack pointer; gives what [`Shared::end_walk`] wants.
    pub(crate) fn begin_walk(&self, sp: u64) -> u64 {
        self.walk_began.store(sp, Relaxed);
        // A walk may have been left for good, by a handler of the program's for a fault in it.
        let before = self.walking.load(Relaxed).wrapping_add(1) & !1;
        self.walking.store(before.wrapping_add(1), SeqCst);
        before
    }

    /// The walk is over.
    pub(crate) fn end_walk(&self, before: u64) {
        self.walking.store(before.wrapping_add(2), SeqCst);
    }

    /// Whether a walk is under way.
    pub(crate) fn is_walking(&self) -> bool {
        self.walking.load(Relaxed) % 2 == 1
    }

    /// Whether this very thread, with that stack pointer, is below a walk: one that was left for
    /// good is none.
    pub(crate) fn is_walking_at(&self, sp: u64) -> bool {
        let depth = self.walk_began.load(Relaxed).wrapping_sub(sp);
        self.is_walking() && depth <= handler_stack::SIZE as u64
    }

    /// The walk under way, if there is one, is given up.
    pub(crate) fn abandon_walk(&self) {
        let walking = self.walking.load(Relaxed);
        self.walking.store(walking.wrapping_add(1) & !1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_claims_what_a_thread_has_left() {
        let shared = Shared::new(64);
        assert!(!shared.claim(64), "its maker has it");
        shared.tid.store(7, Relaxed);
        assert!(shared.is_live());
        shared.release();
        assert!(!shared.is_live());
        assert!(!shared.claim(65), "not that room");
        let claims = std::thread::scope(|scope| {
            let one = || usize::from(shared.claim(64));
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            threads
                .into_iter()
                .map(|it| it.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(claims, 1);
    }

    #[test]
    fn walks_are_told_apart_however_they_end() {
        let shared = Shared::new(0);
        let before = shared.begin_walk(5000);
        assert!(shared.is_walking());
        assert!(shared.is_walking_at(4000) && !shared.is_walking_at(5001));
        shared.end_walk(before);
        assert!(!shared.is_walking());
        shared.begin_walk(5000);
        shared.abandon_walk();
        assert!(!shared.is_walking());
        let after = shared.walking.load(Relaxed);
        shared.abandon_walk();
        assert_eq!(shared.walking.load(Relaxed), after, "there was none");
        assert_ne!(after, 2, "another walk than the first");
        shared.begin_walk(5000);
        let next = shared.begin_walk(5000);
        assert!(shared.is_walking(), "though the one before was left");
        shared.end_walk(next);
        assert!(!shared.is_walking());
    }
}
