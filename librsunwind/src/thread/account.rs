//! The account of a thread: what it has used, and what of that was given to samples.
//!
//! Totals and name are atomics, which ordinary code and the handler share. The meter is used in the
//! handler, or with the signal held back.

use crate::cpu_clock::CpuClock;
use crate::cpu_meter::CpuMeter;
use core::cell::Cell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use engine::wire::chunk::ThreadTotals;

/// Bytes of a thread's name as the kernel gives it, with its zero byte.
const NAME_SIZE: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub totals: ThreadTotals,
    meter: Cell<CpuMeter>,
    clock: Cell<CpuClock>,
    /// Samples that have found no room in the ring, by the time they stand for; the kernel tells
    /// how many only with the next sample.
    untold: Cell<u64>,
    /// The name recorded last, in two words; zero if none was since the thread was armed.
    name: [AtomicU64; 2],
    /// How often the program could have been asked for its own name of the thread, and a digest of
    /// the one that it said last; 0 of none.
    own_name: [AtomicU64; 2],
}

impl Account {
    /// Counts from that CPU time of the thread on, ns.
    pub fn count_from(&self, cpu_ns: u64) {
        self.meter.set(CpuMeter::starting_at(cpu_ns));
        self.forget_clock();
    }

    /// CPU time at a sample, `read` only where it cannot be told otherwise; `is_next`: it comes one
    /// period of the trigger's after the one before.
    pub fn cpu_ns_at_sample(
        &self,
        period_ns: u64,
        is_next: bool,
        read: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let mut clock = self.clock.get();
        let told_ns = is_next.then(|| clock.at_sample(period_ns)).flatten();
        let cpu_ns = told_ns.or_else(|| {
            let cpu_ns = read()?;
            clock.read(cpu_ns, period_ns, is_next);
            Some(cpu_ns)
        });
        self.clock.set(clock);
        cpu_ns
    }

    /// The clock is to be read at the next sample.
    pub fn forget_clock(&self) {
        self.clock.set(CpuClock::default());
    }

    /// Periods used up at that CPU time that were not given before.
    pub fn take(&self, cpu_ns: u64, period_ns: u64) -> u64 {
        self.totals.cpu_ns.store(cpu_ns, Relaxed);
        let mut meter = self.meter.get();
        let weight = meter.take(cpu_ns, period_ns);
        self.meter.set(meter);
        weight
    }

    /// CPU time between the beginning of the count and the last sample, ns.
    pub fn used_ns(&self) -> u64 {
        self.meter.get().used_ns(self.totals.cpu_ns.load(Relaxed))
    }

    /// Counts periods as given that came by other means.
    pub fn give(&self, weight: u64) {
        let mut meter = self.meter.get();
        meter.give(weight);
        self.meter.set(meter);
    }

    /// Counts a sample, written or lost.
    pub fn count_sample(&self, weight: u64, written: bool) {
        let (samples, weights) = if written {
            (&self.totals.samples, &self.totals.weight)
        } else {
            (&self.totals.lost_samples, &self.totals.lost_weight)
        };
        samples.fetch_add(1, Relaxed);
        weights.fetch_add(weight, Relaxed);
    }

    /// The ring was full, and these were not in it.
    pub fn lack(&self, samples: u64) {
        self.untold.set(samples);
    }

    /// Counts what the kernel says has found no room, of which it has told all then.
    pub fn count_lost(&self, lost: u64) {
        if lost > 0 {
            self.untold.set(0);
            self.totals.lost_in_ring.fetch_add(lost, Relaxed);
        }
    }

    /// No more is told.
    pub fn settle_lost(&self) {
        self.count_lost(self.untold.get());
    }

    /// Whether the name is another than the one recorded; if so it is remembered.
    pub fn is_renamed(&self, name: [u8; NAME_SIZE]) -> bool {
        let (words, _) = name.as_chunks::<8>();
        let mut changed = self.name.iter().all(|word| word.load(Relaxed) == 0);
        for (known, word) in self.name.iter().zip(words) {
            let word = u64::from_ne_bytes(*word);
            changed |= known.swap(word, Relaxed) != word;
        }
        changed
    }

    /// Whether it is time to ask for the program's own name of the thread: at the first, second,
    /// fourth, … occasion, so that a new name is seen when as many have passed again.
    pub fn is_own_name_due(&self) -> bool {
        let [occasions, _] = &self.own_name;
        let before = occasions.fetch_add(1, Relaxed);
        before.wrapping_add(1).is_power_of_two()
    }

    /// Whether that is another than the one recorded, by its digest; if so it is remembered.
    pub fn has_another_own_name(&self, digest: u64) -> bool {
        let [_, known] = &self.own_name;
        known.swap(digest, Relaxed) != digest
    }

    /// The next names are to be recorded, whatever they are.
    pub fn forget_name(&self) {
        for word in self.name.iter().chain(&self.own_name) {
            word.store(0, Relaxed);
        }
    }

    /// Shows the totals to readers of the chunk.
    pub fn publish(&self, to: &ThreadTotals) {
        let copy = |from: &AtomicU64, to: &AtomicU64| to.store(from.load(Relaxed), Relaxed);
        for (from, to) in words(&self.totals).into_iter().zip(words(to)) {
            copy(from, to);
        }
    }

    /// For the next thread.
    pub fn reset(&self) {
        for total in words(&self.totals) {
            total.store(0, Relaxed);
        }
        self.meter.set(CpuMeter::default());
        self.forget_clock();
        self.untold.set(0);
        self.forget_name();
    }
}

fn words(totals: &ThreadTotals) -> [&AtomicU64; 10] {
    [
        &totals.samples,
        &totals.weight,
        &totals.lost_samples,
        &totals.lost_weight,
        &totals.handler_ns,
        &totals.cpu_ns,
        &totals.unarmed_cpu_ns,
        &totals.lost_in_ring,
        &totals.arming_ns,
        &totals.delivery_ns,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_shown_and_then_forgotten() {
        let (account, shown) = (Account::default(), ThreadTotals::default());
        account.count_from(1_000);
        assert_eq!(account.take(3_000, 1_000), 2);
        assert_eq!(account.used_ns(), 2_000);
        account.give(1);
        assert_eq!(account.take(4_000, 1_000), 0, "given by other means");
        account.count_sample(2, true);
        account.count_sample(3, false);
        account.publish(&shown);
        let totals = [
            &shown.samples,
            &shown.weight,
            &shown.lost_samples,
            &shown.lost_weight,
        ];
        assert_eq!(totals.map(|total| total.load(Relaxed)), [1, 2, 1, 3]);
        assert_eq!(shown.cpu_ns.load(Relaxed), 4_000);
        account.reset();
        account.publish(&shown);
        assert!(words(&shown).iter().all(|total| total.load(Relaxed) == 0));
    }

    #[test]
    fn what_the_kernel_has_not_told_is_counted_once() {
        let account = Account::default();
        let lost = || account.totals.lost_in_ring.load(Relaxed);
        account.lack(100);
        account.count_lost(0);
        account.count_lost(98);
        account.settle_lost();
        assert_eq!(lost(), 98, "what it tells is right");
        account.lack(7);
        account.settle_lost();
        account.settle_lost();
        assert_eq!(lost(), 105);
    }

    #[test]
    fn a_name_is_new_once() {
        let account = Account::default();
        assert!(account.is_renamed([0; 16]), "none was recorded yet");
        assert!(account.is_renamed(*b"worker\0\0\0\0\0\0\0\0\0\0"));
        assert!(!account.is_renamed(*b"worker\0\0\0\0\0\0\0\0\0\0"));
        assert!(account.is_renamed(*b"worker\0\0\0\0\0\0\0\0\x001"));
        account.forget_name();
        assert!(account.is_renamed(*b"worker\0\0\0\0\0\0\0\0\x001"));
    }

    #[test]
    fn the_program_is_asked_less_and_less_often() {
        let account = Account::default();
        let due: Vec<u32> = (1..=20).filter(|_| account.is_own_name_due()).collect();
        assert_eq!(due, [1, 2, 4, 8, 16]);
        let told = [7, 7, 8, 7].map(|digest| account.has_another_own_name(digest));
        assert_eq!(told, [true, false, true, true]);
        account.forget_name();
        assert!(account.is_own_name_due() && account.has_another_own_name(7));
    }
}
