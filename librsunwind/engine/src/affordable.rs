//! What a sample may cost: a quarter of its period, all in all. So a period is never shorter than
//! several times what an event with its signal costs on this machine, and what that leaves of the
//! quarter is the handler's ([`allowance_ns`]).
//!
//! The cost is measured once ([`Trial`]): by the collector, or by the first process of a tree that
//! has none. Not here: events and clocks, which the two get in different ways.

/// Periods from here on are affordable on any machine seen so far; the most expensive event was 47
/// µs, in a virtual machine.
pub const UNQUESTIONED_NS: u64 = 500_000;
/// The period of the trial's event, ns.
pub const TRIAL_PERIOD_NS: u64 = 250_000;
/// The period is at least this many times the cost of an event: a sixth of it for the event leaves
/// a twelfth for the handler.
const FACTOR: u64 = 6;
/// How long a turn of the trial takes at least, ns.
const TRIAL_NS: u64 = 1_500_000;
/// Bytes that the trial's work goes over, as programs do: events cost more where they find the
/// caches taken.
pub const TRIAL_BYTES: usize = 1 << 20;
const LINE: usize = 64;

/// The period in force for the one asked for, both ns; the cost is asked for only where it matters.
pub fn period_ns(asked_ns: u64, cost_ns: impl FnOnce() -> Option<u64>) -> u64 {
    if asked_ns >= UNQUESTIONED_NS {
        return asked_ns;
    }
    asked_ns.max(cost_ns().unwrap_or(0).saturating_mul(FACTOR))
}

/// What the handler may take of each period on the average, ns.
#[must_use]
pub const fn allowance_ns(period_ns: u64, cost_ns: Option<u64>) -> u64 {
    let event = match cost_ns {
        Some(cost) if cost < period_ns / FACTOR => cost,
        Some(_) => period_ns / FACTOR,
        None => period_ns / 8,
    };
    (period_ns / 4).saturating_sub(event)
}

/// Work that takes always the same time if nothing disturbs it.
#[derive(Debug)]
pub struct Trial<'a, C> {
    memory: &'a mut [u8],
    cpu_ns: C,
    turns: u32,
    plain_ns: u64,
}

impl<'a, C: Fn() -> u64> Trial<'a, C> {
    /// Finds out how long the work takes undisturbed. `memory` is to be [`TRIAL_BYTES`] long,
    /// `cpu_ns` the calling thread's CPU clock.
    pub fn new(memory: &'a mut [u8], cpu_ns: C) -> Self {
        let mut trial = Self {
            memory,
            cpu_ns,
            turns: 1,
            plain_ns: 0,
        };
        trial.plain_ns = trial.work();
        while trial.plain_ns < TRIAL_NS && trial.turns < 1 << 20 {
            trial.turns = trial.turns.saturating_mul(2);
            trial.plain_ns = trial.work();
        }
        trial.calm();
        trial
    }

    /// Does the work undisturbed once more: the least time counts.
    pub fn calm(&mut self) {
        self.plain_ns = self.plain_ns.min(self.work());
    }

    /// Does the work again, while events of [`TRIAL_PERIOD_NS`] disturb it: how much longer it
    /// takes, ns.
    pub fn disturbed_ns(&mut self) -> u64 {
        self.work().saturating_sub(self.plain_ns)
    }

    fn work(&mut self) -> u64 {
        let began = (self.cpu_ns)();
        for turn in 0..self.turns {
            for line in self.memory.chunks_mut(LINE) {
                if let Some(byte) = line.first_mut() {
                    *byte = core::hint::black_box(byte.wrapping_add(turn as u8));
                }
            }
        }
        (self.cpu_ns)().saturating_sub(began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_sample_takes_a_quarter_of_its_period_at_most() {
        for (asked, cost) in [(100_000, 36_000), (100_000, 3_000), (20_000, 40_000)] {
            let period = period_ns(asked, || Some(cost));
            assert!(period >= asked);
            let allowance = allowance_ns(period, Some(cost));
            assert!(cost + allowance <= period / 4 && allowance >= period / 12 - 1);
        }
        assert_eq!(period_ns(100_000, || None), 100_000);
        assert_eq!(allowance_ns(1_000_000, None), 125_000);
        assert_eq!(allowance_ns(100_000, Some(90_000)), 8_334);
    }

    #[test]
    fn low_rates_are_not_questioned() {
        assert_eq!(
            period_ns(UNQUESTIONED_NS, || unreachable!()),
            UNQUESTIONED_NS
        );
    }

    #[test]
    fn a_trial_finds_what_disturbs_it() {
        // A clock that goes on by what each turn is worth, and by 90 µs when it is disturbed.
        let (now, disturbed) = (Cell::new(0u64), Cell::new(0u64));
        let clock = || {
            now.set(now.get() + 1_000_000 + disturbed.get());
            now.get()
        };
        let mut memory = [0; 256];
        let mut trial = Trial::new(&mut memory, clock);
        disturbed.set(90_000);
        assert_eq!(trial.disturbed_ns(), 90_000);
    }
}
