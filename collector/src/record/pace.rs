//! How soon it is looked around again: while programs and threads come and go, or much is recorded,
//! several times a second; else rarely, since each look costs a fifth of a millisecond.

use std::time::{Duration, Instant};

/// From one look around to the next, where perf rings do not fill faster: eight wake-ups a second.
pub(super) const INTERVAL: Duration = Duration::from_millis(125);
/// The same where nothing happens: somebody may look at the recording meanwhile ...
const RARELY: Duration = Duration::from_secs(1);
/// ... unless nobody does who could not wait. Well inside the time after which programs doubt that
/// rsunwind lives, and that after which a window of the agent's has all of its samples.
const MOST_RARELY: Duration = Duration::from_secs(2);
/// So many samples of a thread with stacks of the kernel's its ring holds, about. Where its signal
/// is blocked nobody else empties it.
const ROOM: u32 = 300;
/// There is to be room for as many samples as come in between ...
const SAMPLES: u32 = 128;
/// ... or for those of such a delay.
const DELAY: Duration = Duration::from_secs(1);
/// So long something has happened.
const LASTS: Duration = Duration::from_secs(2);
/// There is to be no more at a look, bytes.
const MUCH: f64 = (128 << 10) as f64;

/// What was seen at the look before.
#[derive(Debug)]
pub(super) struct Pace<T> {
    /// Longest time from one look to the next.
    rarely: Duration,
    looked: Instant,
    /// Who is recorded, and when that was last another.
    who: Option<T>,
    changed: Instant,
    /// Bytes recorded.
    length: u64,
}

impl<T: PartialEq> Pace<T> {
    /// `period`: that in which threads are sampled; `None` where other events are recorded, too, of
    /// which there may be any number. `can_wait`: whether nobody looks at the recording meanwhile
    /// who could not wait.
    pub(super) fn new(now: Instant, period: Option<Duration>, can_wait: bool) -> Self {
        let most = match can_wait {
            true => MOST_RARELY,
            false => RARELY,
        };
        let rarely = period.map_or(INTERVAL, |period| {
            let with_delay = period.saturating_mul(ROOM).saturating_sub(DELAY);
            period.saturating_mul(SAMPLES).max(with_delay)
        });
        Self {
            rarely: rarely.clamp(INTERVAL, most),
            looked: now,
            who: None,
            changed: now,
            length: 0,
        }
    }

    /// How long it may be to the next look. `who`: whoever is recorded; `length`: bytes recorded so
    /// far.
    pub(super) fn after(&mut self, now: Instant, who: T, length: u64) -> Duration {
        let elapsed = now.saturating_duration_since(self.looked);
        let new = length.saturating_sub(self.length);
        if self.who.as_ref() != Some(&who) {
            (self.who, self.changed) = (Some(who), now);
        }
        (self.looked, self.length) = (now, length);
        if now.saturating_duration_since(self.changed) < LASTS {
            return INTERVAL;
        }
        let pause = elapsed.as_secs_f64() * MUCH / new as f64;
        let pause = Duration::try_from_secs_f64(pause).unwrap_or(self.rarely);
        pause.clamp(INTERVAL, self.rarely)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_and_what_is_recorded_makes_looks_frequent() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun, Some(Duration::from_millis(10)), false);
        let mut after = |seconds: f64, who: u32, length: u64| {
            let now = begun + Duration::from_secs_f64(seconds);
            pace.after(now, who, length).as_secs_f64()
        };
        assert_eq!(after(0.0, 0, 0), 0.125);
        assert_eq!(after(1.9, 0, 1000), 0.125);
        assert_eq!(after(2.0, 0, 1000), 1.0);
        assert_eq!(after(3.0, 0, 17_000), 1.0);
        assert_eq!(after(4.0, 1, 33_000), 0.125);
        assert_eq!(after(6.1, 1, 40_000), 1.0);
        assert_eq!(after(7.1, 1, 40_000 + (256 << 10)), 0.5);
        assert_eq!(after(7.6, 1, 100 << 20), 0.125);
        assert_eq!(after(7.6, 1, 100 << 20), 1.0, "no time, and nothing new");
    }
    #[test]
    fn rings_that_fill_fast_are_looked_at_often() {
        for (period, expected, if_it_can_wait) in [
            (Some(Duration::from_millis(1)), 0.128, 0.128),
            (Some(Duration::from_millis(4)), 0.512, 0.512),
            (Some(Duration::from_millis(9)), 1.0, 1.7),
            (Some(Duration::from_secs(1)), 1.0, 2.0),
            (Some(Duration::from_micros(100)), 0.125, 0.125),
            (None, 0.125, 0.125),
        ] {
            for (can_wait, expected) in [(false, expected), (true, if_it_can_wait)] {
                let begun = Instant::now();
                let mut pace = Pace::new(begun, period, can_wait);
                let _ = pace.after(begun, 0, 0);
                let later = pace.after(begun + Duration::from_secs(9), 0, 0);
                assert_eq!(later.as_secs_f64(), expected, "{period:?} {can_wait}");
            }
        }
    }
}
