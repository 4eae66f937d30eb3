//! What walks may take, so that the program gets on however long they are: each signal brings an
//! allowance, each walk costs what it took, and where nothing is left there is none until there is.
//!
//! A walk is measured by the clock on the wall. It may have been put off the processor meanwhile,
//! so it is not believed to cost more than about twice what the one before did: stacks of many
//! thousand frames are slow each time.
//!
//! Used by the handler alone.

use core::cell::Cell;

/// The account of one thread's walks.
#[derive(Debug, Default)]
pub struct Budget {
    left_ns: Cell<i64>,
    /// What the last walk was taken to cost.
    believed_ns: Cell<u64>,
    /// Sampling periods for which no walk was made, to be told by the next.
    untold: Cell<u64>,
    /// Walks left out.
    left_out: Cell<u64>,
    /// Some were since the last sample.
    leaves_out: Cell<bool>,
    /// When the last walk's handler ended, ns.
    ended_ns: Cell<u64>,
    /// What that took is not put to the process's account yet, ns.
    due_ns: Cell<u64>,
    /// CPU time of the thread that is, ns.
    counted_ns: Cell<u64>,
    /// Its context switches by then.
    switches: Cell<u64>,
}

/// A walk is always believed to take as much as this.
const FLOOR_NS: u64 = 20_000;
/// So much is put by at most, ns: new code takes walks that read tables.
const SAVINGS_NS: i64 = 4_000_000;
/// So many walks left out are worth a word.
const MANY: u64 = 8;

impl Budget {
    /// A signal that stands for `periods`, of which each brings `allowance_ns`. Gives what the walk
    /// stands for; `None` if there is to be none now, which is never so where it is to be made
    /// `anyway`.
    pub fn may_walk(&self, periods: u64, allowance_ns: u64, anyway: bool) -> Option<u64> {
        let brought = i64::try_from(periods.saturating_mul(allowance_ns)).unwrap_or(i64::MAX);
        self.left_ns
            .set(self.left_ns.get().saturating_add(brought).min(SAVINGS_NS));
        let told = self.untold.get().saturating_add(periods);
        if self.left_ns.get() < 0 && !anyway {
            self.untold.set(told);
            self.left_out.set(self.left_out.get().saturating_add(1));
            self.leaves_out.set(true);
            return None;
        }
        self.untold.set(0);
        Some(told)
    }

    /// Signals since the last walk, where each stands for one.
    pub fn signals_left_out(&self) -> u64 {
        self.untold.get()
    }

    /// Whether walks have been left out since this was asked for the last time.
    pub fn take_left_out(&self) -> bool {
        self.leaves_out.replace(false)
    }

    /// A walk took that long, with its handler, which ends now. Gives what is due for the one
    /// before.
    pub fn spent(&self, nanoseconds: u64, now_ns: u64) -> u64 {
        self.ended_ns.set(now_ns);
        let believable = self.believed_ns.get().saturating_mul(2).max(FLOOR_NS);
        self.believed_ns.set(nanoseconds.min(believable));
        let cost = i64::try_from(self.believed_ns.get()).unwrap_or(i64::MAX);
        self.left_ns.set(self.left_ns.get().saturating_sub(cost));
        self.due_ns.replace(self.believed_ns.get())
    }

    /// What the last walk was taken to cost, with its handler, ns.
    pub fn believed_ns(&self) -> u64 {
        self.believed_ns.get()
    }

    /// What is due for the last walk, once.
    pub fn take_due(&self) -> u64 {
        self.due_ns.take()
    }

    /// CPU time of the thread since this was asked for the last time, at that CPU time, ns.
    pub fn used_since(&self, cpu_ns: u64) -> u64 {
        cpu_ns.saturating_sub(self.counted_ns.replace(cpu_ns))
    }

    /// Context switches of the thread since this was asked for the last time, at so many.
    pub fn switches_since(&self, switches: u64) -> u64 {
        switches.saturating_sub(self.switches.replace(switches))
    }

    /// The same, but they are asked for again.
    pub fn switches_before(&self, switches: u64) -> u64 {
        switches.saturating_sub(self.switches.get())
    }

    /// When the last walk's handler ended (`CLOCK_MONOTONIC`, ns); 0 if there was none.
    pub fn ended_ns(&self) -> u64 {
        self.ended_ns.get()
    }

    /// Whether as many walks have been left out, for the first time, as is worth a word.
    pub fn is_worth_a_word(&self) -> bool {
        let is = self.left_out.get() >= MANY && self.left_out.get() != u64::MAX;
        if is {
            self.left_out.set(u64::MAX);
        }
        is
    }

    /// For the next thread.
    pub fn reset(&self) {
        for word in [
            &self.believed_ns,
            &self.untold,
            &self.left_out,
            &self.ended_ns,
            &self.due_ns,
            &self.counted_ns,
            &self.switches,
        ] {
            word.set(0);
        }
        self.left_ns.set(0);
        self.leaves_out.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: u64 = 25_000;

    /// Periods in which walks were made, of so many, and the weights told.
    fn walks(budget: &Budget, periods: u64, cost_ns: impl Fn(u64) -> u64) -> (u64, u64) {
        let (mut made, mut told) = (0, 0);
        for period in 0..periods {
            if let Some(weight) = budget.may_walk(1, ALLOWANCE, false) {
                made += 1;
                told += weight;
                let _ = budget.spent(cost_ns(period), 0);
            }
        }
        (made, told)
    }

    #[test]
    fn what_is_affordable_is_always_done() {
        let budget = Budget::default();
        assert_eq!(walks(&budget, 10_000, |_| 24_000), (10_000, 10_000));
        assert!(!budget.is_worth_a_word() && !budget.take_left_out());
    }

    #[test]
    fn slow_walks_are_made_for_several_periods_each_and_weights_are_kept() {
        let budget = Budget::default();
        let (made, told) = walks(&budget, 40_000, |_| 10_000_000);
        // 40,000 periods bring a second: a hundred walks of 10 ms, and the few before they were
        // believed.
        assert!((95..=120).contains(&made), "{made}");
        assert!(told > 40_000 - 401 && told <= 40_000, "{told}");
        assert!(budget.is_worth_a_word() && !budget.is_worth_a_word());
        assert!(budget.take_left_out() && !budget.take_left_out());
    }

    #[test]
    fn a_walk_that_was_put_off_the_processor_is_no_slow_one() {
        let budget = Budget::default();
        let preempted = |period| {
            if period % 100 == 99 {
                8_000_000
            } else {
                10_000
            }
        };
        assert_eq!(walks(&budget, 10_000, preempted), (10_000, 10_000));
    }

    #[test]
    fn a_tick_of_many_periods_brings_as_many_allowances() {
        let budget = Budget::default();
        for _ in 0..100 {
            assert_eq!(budget.may_walk(4, ALLOWANCE, false), Some(4));
            let _ = budget.spent(90_000, 0);
        }
    }

    #[test]
    fn one_that_is_made_anyway_stands_for_all_before_it_and_is_paid_for() {
        let budget = Budget::default();
        let _ = budget.spent(FLOOR_NS, 0);
        let (anyway, left_out) = (true, None);
        assert_eq!(budget.may_walk(1, 1, false), left_out);
        assert_eq!(budget.signals_left_out(), 1);
        assert_eq!(budget.may_walk(1, 1, anyway), Some(2));
        assert_eq!(budget.signals_left_out(), 0);
        assert_eq!(budget.may_walk(1, 1, false), left_out);
    }

    #[test]
    fn switches_are_counted_once() {
        let budget = Budget::default();
        assert_eq!(budget.switches_before(7), 7);
        assert_eq!([7, 7, 12].map(|all| budget.switches_since(all)), [7, 0, 5]);
        budget.reset();
        assert_eq!(budget.switches_since(3), 3, "of the next thread");
    }

    #[test]
    fn a_walk_is_paid_for_by_the_next_sample() {
        let budget = Budget::default();
        assert_eq!(
            (budget.spent(9_000, 0), budget.used_since(70_000)),
            (0, 70_000)
        );
        assert_eq!(
            (budget.spent(8_000, 0), budget.used_since(90_000)),
            (9_000, 20_000)
        );
        assert_eq!((budget.take_due(), budget.take_due()), (8_000, 0));
    }
}
