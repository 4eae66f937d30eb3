//! How much was asked and answered, for the whole process.

use super::stack::Counts;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// [`Counts`] as they grow.
pub(super) struct Counting {
    pub requests: AtomicU64,
    pub entries: AtomicU64,
    pub unwinds: AtomicU64,
    pub callbacks: AtomicU64,
    pub cancelled: AtomicU64,
}

pub(super) static COUNTS: Counting = Counting {
    requests: AtomicU64::new(0),
    entries: AtomicU64::new(0),
    unwinds: AtomicU64::new(0),
    callbacks: AtomicU64::new(0),
    cancelled: AtomicU64::new(0),
};

/// What has happened so far. Each number is right; taken while requests are made, they need not be
/// of one instant.
pub fn counts() -> Counts {
    Counts {
        requests: COUNTS.requests.load(Relaxed),
        entries: COUNTS.entries.load(Relaxed),
        unwinds: COUNTS.unwinds.load(Relaxed),
        callbacks: COUNTS.callbacks.load(Relaxed),
        cancelled: COUNTS.cancelled.load(Relaxed),
    }
}
