//! For how long a thread was held.

use std::fmt;
use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldFor {
    /// While it did what it was made to, or waited for us.
    pub held: Duration,
    /// While it could have run, and others had the processors, as on any busy machine.
    pub ready: Duration,
}

impl HeldFor {
    pub(super) fn longer(self, other: Self) -> Self {
        std::cmp::max_by_key(other, self, |one| one.all())
    }

    /// Both.
    #[must_use]
    pub fn all(self) -> Duration {
        self.held.saturating_add(self.ready)
    }
}

impl fmt::Display for HeldFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "{:.1} ms", ms(self.held))?;
        match ms(self.ready) {
            ready @ 0.5.. => write!(f, ", and {ready:.1} more while it waited for a processor"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_busy_machine_adds_is_told_apart() {
        let of = |held, ready| HeldFor {
            held: Duration::from_micros(held),
            ready: Duration::from_micros(ready),
        };
        assert_eq!(of(420, 300).to_string(), "0.4 ms");
        let long = "0.4 ms, and 12.3 more while it waited for a processor";
        assert_eq!(of(420, 12_300).to_string(), long);
        assert_eq!(of(420, 12_300).longer(of(900, 0)), of(420, 12_300));
        assert_eq!(of(900, 0).longer(of(420, 100)), of(900, 0));
    }
}
