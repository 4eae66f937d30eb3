//! How far a command has come with what takes long. Whoever works counts here; what is shown of
//! it, and to whom, is another's business ([`crate::progress_bar`]).
//!
//! There is one for the whole process, as there is one terminal.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

static STEP: Mutex<Step> = Mutex::new(Step {
    words: "reading",
    total: 0,
});
static DONE: AtomicU64 = AtomicU64::new(0);

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// What is done.
    pub(crate) words: &'static str,
    /// How much of it there is, in whatever it is counted in; 0 if nobody knows.
    pub(crate) total: u64,
}

/// The next part of the work begins; 0 if nobody knows how much it is.
pub(crate) fn begin(words: &'static str, total: u64) {
    let mut step = STEP.lock().unwrap_or_else(PoisonError::into_inner);
    *step = Step { words, total };
    DONE.store(0, Relaxed);
}

/// So much more of it is done.
pub(crate) fn add(count: u64) {
    DONE.fetch_add(count, Relaxed);
}

/// What is done now, and how much of it was.
pub(crate) fn now() -> (Step, u64) {
    let step = STEP.lock().unwrap_or_else(PoisonError::into_inner);
    (*step, DONE.load(Relaxed))
}
