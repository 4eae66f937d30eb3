//! A turn of work: so much is done at once, then the signals that came in have theirs. What is not
//! done is gone on with in the next one.

use std::time::{Duration, Instant};

/// How long a turn is: nobody notices that a signal waited for it.
const LENGTH: Duration = Duration::from_millis(50);

/// One turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn(Instant);

/// How far a piece of work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// It is done.
    Done,
    /// The turn was over before.
    Begun,
}

impl Turn {
    /// Begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Whether it is time to let others have theirs.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.0.elapsed() >= LENGTH
    }

    /// One that is over from the start: a piece of work does its least.
    #[cfg(test)]
    pub fn over() -> Self {
        Self(
            Instant::now()
                .checked_sub(LENGTH)
                .unwrap_or_else(Instant::now),
        )
    }
}
