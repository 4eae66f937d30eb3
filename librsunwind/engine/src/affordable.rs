//! What a sample may cost: a share of its period, all in all, which is a quarter where nobody has
//! said. So a period is never shorter than several times what an event with its signal costs on
//! this machine, and what that leaves of the share is the handler's ([`allowance_ns`]).
//!
//! The cost is measured once ([`Trial`]), by the collector, or by the first process of a tree that
//! has none; and then seen at each sample, where it is another in the program at hand: samples come
//! at several periods each then ([`periods`]). Not here: events and clocks, which the two get in
//! different ways.

use crate::wire::offer::MOST_PERIODS;

/// Shares are in hundred-thousandths of the program's time.
pub const WHOLE: u64 = 100_000;
/// What samples may take where nobody has said.
pub const QUARTER: u64 = WHOLE / 4;
/// Periods from here on are affordable for a quarter on any machine seen so far; the most expensive
/// event was 47 µs, in a virtual machine.
pub const UNQUESTIONED_NS: u64 = 500_000;
/// The period of the trial's event, ns.
pub const TRIAL_PERIOD_NS: u64 = 125_000;
/// How long the trial's work takes, or somewhat longer, ns.
const TRIAL_NS: u64 = 1_500_000;
/// So long is enough to tell how many turns that are.
const ENOUGH_NS: u64 = TRIAL_NS / 16;
/// Bytes that the trial's work goes over, as programs do: events cost more where they find the
/// caches taken.
pub const TRIAL_BYTES: usize = 1 << 20;
const LINE: usize = 64;
/// This part of what samples may take is the handler's in any case.
const LEAST: u64 = 16;

/// Whether it matters at that period what an event costs.
#[must_use]
pub const fn is_questioned(asked_ns: u64, share: u64) -> bool {
    asked_ns.saturating_mul(share) < UNQUESTIONED_NS.saturating_mul(QUARTER)
}

/// How samples come at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The unit of weights, ns.
    pub period_ns: u64,
    /// So many of them are the period asked for.
    pub least: u64,
    /// So many of them lie between two samples.
    pub periods: u64,
}

/// Where a share was said, samples are so many periods apart, at least: one more or less is near
/// enough to hold it.
const FINE: u64 = 16;

/// Whether somebody has said what samples may take: it is to be used up then, and no more.
#[must_use]
pub const fn is_exact(share: u64) -> bool {
    share < QUARTER
}

/// How samples come at first, for the period asked for; the cost is asked for only where it
/// matters. The event takes two thirds of the share at most, which leaves one for the handler.
pub fn beginning(asked_ns: u64, share: u64, cost_ns: impl FnOnce() -> Option<u64>) -> Beginning {
    let plain = |period_ns| Beginning {
        period_ns,
        least: 1,
        periods: 1,
    };
    if !is_questioned(asked_ns, share) {
        return plain(asked_ns);
    }
    let Some(cost_ns) = cost_ns() else {
        return plain(asked_ns);
    };
    let time_ns = (shortest_ns(cost_ns, share) / 2).saturating_mul(3);
    let time_ns = time_ns.max(asked_ns);
    if !is_exact(share) {
        return plain(time_ns);
    }
    let least = FINE
        .saturating_mul(asked_ns)
        .checked_div(time_ns)
        .unwrap_or(1)
        .clamp(1, FINE);
    let period_ns = asked_ns.checked_div(least).unwrap_or(asked_ns).max(1);
    Beginning {
        period_ns,
        least,
        periods: time_ns.div_ceil(period_ns).clamp(least, MOST_PERIODS),
    }
}

/// Of how many periods a sample of that cost takes no more than the share; 1 at least.
#[must_use]
pub const fn periods(cost_ns: u64, period_ns: u64, share: u64) -> u64 {
    let time_ns = shortest_ns(cost_ns, share);
    match period_ns {
        0 => 1,
        _ if time_ns > period_ns => time_ns.div_ceil(period_ns),
        _ => 1,
    }
}

/// Of what time that cost is the share, ns.
const fn shortest_ns(cost_ns: u64, share: u64) -> u64 {
    match cost_ns.saturating_mul(WHOLE).checked_div(share) {
        Some(time_ns) => time_ns,
        None => u64::MAX / 4,
    }
}

/// What the handler may take of each period on the average, ns, where the event takes that.
#[must_use]
pub const fn allowance_ns(period_ns: u64, share: u64, event_ns: u64) -> u64 {
    let all = period_ns.saturating_mul(share) / WHOLE;
    let least = all / LEAST;
    let left = all.saturating_sub(event_ns);
    if left > least { left } else { least }
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
        while trial.plain_ns < ENOUGH_NS && trial.turns < 1 << 20 {
            trial.turns = trial.turns.saturating_mul(2);
            trial.plain_ns = trial.work();
        }
        let more = TRIAL_NS.div_ceil(trial.plain_ns.max(ENOUGH_NS));
        trial.turns = trial.turns.saturating_mul(more as u32).min(1 << 20);
        trial.plain_ns = trial.work();
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
            let first = beginning(asked, QUARTER, || Some(cost));
            assert_eq!((first.least, first.periods), (1, 1));
            let period = first.period_ns;
            assert!(period >= asked);
            let allowance = allowance_ns(period, QUARTER, cost);
            assert!(cost + allowance <= period / 4 && allowance >= period / 12 - 1);
        }
        assert_eq!(beginning(100_000, QUARTER, || None).period_ns, 100_000);
        assert_eq!(allowance_ns(100_000, QUARTER, 90_000), 25_000 / LEAST);
    }

    #[test]
    fn a_smaller_share_takes_longer_periods() {
        let percent = WHOLE / 100;
        let first = beginning(1_000_000, percent, || Some(16_000));
        assert_eq!(
            (first.period_ns, first.least, first.periods),
            (166_666, 6, 15)
        );
        for (asked, cost) in [(100_000, 20_000), (1_000_000, 1), (10_000, 40_000)] {
            let first = beginning(asked, percent, || Some(cost));
            let (asked_again, time) = (
                first.period_ns * first.least,
                first.period_ns * first.periods,
            );
            assert!(asked_again <= asked && asked_again > asked - 16);
            assert!(time >= cost * 100 && first.periods >= FINE - 2, "{first:?}");
        }
        assert_eq!(allowance_ns(2_400_000, percent, 16_000), 8_000);
        let (cost, period) = (44_000, 100_000);
        assert_eq!(
            [QUARTER, percent].map(|share| periods(cost, period, share)),
            [2, 44]
        );
        assert_eq!((periods(0, 1, 1), periods(1, 0, 1)), (1, 1));
        assert!(periods(1, 1, 0) > 1);
    }

    #[test]
    fn low_rates_are_not_questioned() {
        let first = beginning(UNQUESTIONED_NS, QUARTER, || unreachable!());
        assert_eq!((first.period_ns, first.periods), (UNQUESTIONED_NS, 1));
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
