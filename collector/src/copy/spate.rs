//! Threads that begin and end in quick succession: the kernel wakes the reader for each, and each
//! time there is nothing to look at. Then it rests for a moment between looks, which costs it and
//! those threads less, and sees programs that begin meanwhile that much later.

use std::time::{Duration, Instant};

/// How long it rests. A ring fills more slowly even where a thread takes ten microseconds.
pub(super) const REST: Duration = Duration::from_micros(500);
/// Looks are in quick succession that are not further apart than this: machines are busy.
const APART: Duration = Duration::from_millis(2);
/// So many looks for nothing in a row are a spate.
const MANY: u32 = 16;

/// Looks for nothing in quick succession.
#[derive(Debug)]
pub(super) struct Spate {
    looked: Instant,
    in_a_row: u32,
}

impl Spate {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            looked: now,
            in_a_row: 0,
        }
    }

    /// A look was taken, and something found or not.
    pub(super) fn looked(&mut self, now: Instant, found: bool) {
        let is_quick = now.saturating_duration_since(self.looked) < APART;
        self.in_a_row = match !found && is_quick {
            true => self.in_a_row.saturating_add(1),
            false => 0,
        };
        self.looked = now;
    }

    /// Whether to rest before the next.
    pub(super) const fn is_on(&self) -> bool {
        self.in_a_row >= MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_quick_looks_for_nothing_are_a_spate_until_one_is_late_or_finds_something() {
        let began = Instant::now();
        let look = |at_us: u64, found: bool, spate: &mut Spate| {
            spate.looked(began + Duration::from_micros(at_us), found);
            spate.is_on()
        };
        let mut spate = Spate::new(began);
        for looks in 1..u64::from(MANY) {
            assert!(!look(100 * looks, false, &mut spate));
        }
        assert!(look(2000, false, &mut spate) && look(2500, false, &mut spate));
        assert!(!look(2600, true, &mut spate), "found");
        for looks in 1..=u64::from(MANY) {
            assert_eq!(look(2600 + looks, false, &mut spate), looks == 16);
        }
        assert!(!look(9000, false, &mut spate), "late");
    }
}
