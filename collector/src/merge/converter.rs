//! Turns the times of a perf.data file into `CLOCK_MONOTONIC`, which a recording has.
//!
//! With `-k mono` they are that already. Other clocks run beside it at almost the same speed: a
//! recording holds readings of all of them at its start and its end, and between and around these
//! they are taken to run evenly.

use engine::wire::clocks::Clocks;
use perf_data::Clock;

/// Readings closer together than this say nothing of how fast a clock runs, ns.
const SHORT: u64 = 100_000_000;

/// A conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Converter {
    /// Nothing to be done.
    Same,
    /// Readings: the file's clock, and `CLOCK_MONOTONIC`. At least one.
    By(Vec<(u64, u64)>),
}

impl Converter {
    /// For a file dated by `clock`.
    ///
    /// # Errors
    /// A sentence that says why it cannot be, and the remedy.
    pub(super) fn new(clock: Option<Clock>, readings: &[Clocks]) -> Result<Self, String> {
        let pick: fn(&Clocks) -> u64 = match clock {
            Some(Clock::Id(nix::libc::CLOCK_MONOTONIC)) => return Ok(Self::Same),
            Some(Clock::Own) => |clocks| clocks.perf_ns,
            Some(Clock::Id(nix::libc::CLOCK_MONOTONIC_RAW)) => |clocks| clocks.raw_ns,
            Some(Clock::Id(nix::libc::CLOCK_BOOTTIME)) => |clocks| clocks.boot_ns,
            Some(Clock::Id(nix::libc::CLOCK_REALTIME)) => |clocks| clocks.real_ns,
            Some(Clock::Id(number)) => {
                return Err(format!(
                    "it is dated by clock {number}, which cannot be converted: record with `perf record -k mono`"
                ));
            }
            None => {
                return Err(
                    "its events are dated by different clocks: record with `perf record -k mono`"
                        .to_owned(),
                );
            }
        };
        let pairs = readings
            .iter()
            .map(|clocks| (pick(clocks), clocks.monotonic_ns));
        let pairs: Vec<_> = pairs.filter(|(theirs, _)| *theirs > 0).collect();
        if pairs.is_empty() {
            return Err(
                "its clock cannot be converted: the recording holds no reading of it (it was made without `rsunwind record`, or perf was \
                 refused there), and it is not of this boot; record with `perf record -k mono`"
                    .to_owned(),
            );
        }
        Ok(Self::By(pairs))
    }

    /// The time by `CLOCK_MONOTONIC`, ns. 0, which stands for the start, stays.
    pub(super) fn monotonic(&self, time: u64) -> u64 {
        let Self::By(pairs) = self else { return time };
        if time == 0 {
            return 0;
        }
        let behind = pairs.partition_point(|(theirs, _)| *theirs <= time);
        let first = behind.saturating_sub(1).min(pairs.len().saturating_sub(2));
        let (a, b) = (pairs[first], pairs[(first + 1).min(pairs.len() - 1)]);
        let since = i128::from(time) - i128::from(a.0);
        let even = if b.0 > a.0 && b.0 - a.0 >= SHORT && b.1 > a.1 {
            since * i128::from(b.1 - a.1) / i128::from(b.0 - a.0)
        } else {
            since
        };
        u64::try_from(i128::from(a.1) + even).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(monotonic_ns: u64, perf_ns: u64) -> Clocks {
        Clocks {
            monotonic_ns,
            perf_ns,
            ..Clocks::default()
        }
    }

    #[test]
    fn clocks_run_evenly_between_readings_and_around_them() {
        let second = 1_000_000_000;
        let readings = [
            reading(100 * second, 5 * second),
            reading(110 * second, 15 * second + 10_000),
        ];
        let converter = Converter::new(Some(Clock::Own), &readings).unwrap();
        assert_eq!(converter.monotonic(5 * second), 100 * second);
        assert_eq!(converter.monotonic(15 * second + 10_000), 110 * second);
        assert_eq!(converter.monotonic(10 * second + 5_000), 105 * second);
        assert_eq!(converter.monotonic(25 * second + 20_000), 120 * second);
        assert_eq!(converter.monotonic(4 * second), 99 * second + 1_000);
        let one = Converter::new(Some(Clock::Own), &readings[..1]).unwrap();
        assert_eq!(one.monotonic(6 * second), 101 * second);
    }

    #[test]
    fn what_cannot_be_converted_is_refused_with_a_remedy() {
        let unread = [reading(1, 0)];
        for clock in [Some(Clock::Own), Some(Clock::Id(11)), None] {
            let why = Converter::new(clock, &unread).unwrap_err();
            assert!(why.contains("-k mono"), "{why}");
        }
        let monotonic = Some(Clock::Id(nix::libc::CLOCK_MONOTONIC));
        assert_eq!(Converter::new(monotonic, &[]), Ok(Converter::Same));
    }
}
