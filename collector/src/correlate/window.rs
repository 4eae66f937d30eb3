//! Which samples of a recording that goes on are wanted: those of a window of time that were in
//! none before, so that windows that follow on each other hold each sample once.
//!
//! Whatever the kernel has sampled of an entry is of the window in which the entry's user stack was
//! taken: all of its weight is in that stack, whether the kernel's halves are still there or not.
//! For a kernel sample whose user stack has not come the next window waits. If it has not come by
//! then the sample is given without one, and [`Sent`] remembers that: of the weight of the user
//! stack, when it comes, so much less is given. It remembers, too, what was copied beside a thread:
//! what the thread's next sample stands for may have begun windows before, with copies that are in
//! the recording no more.

use crate::recording::{Recording, ThreadName};
use std::collections::BTreeMap;

/// Weight that earlier windows had, by thread: samples of the threads' own that come yet stand for
/// it, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// That of kernel samples without a user stack.
    pub late: BTreeMap<ThreadName, u64>,
    /// That of copies beside the thread.
    pub beside: BTreeMap<ThreadName, u64>,
}

/// Finds the threads again that say something of themselves by now, and so have another name.
pub fn follow_names(of_threads: &mut BTreeMap<ThreadName, u64>, recording: &Recording) {
    let known = recording.adopted.iter().filter(|_| !of_threads.is_empty());
    let found = known.filter_map(|(name, own)| Some((*name, *own, *of_threads.get(name)?)));
    for (name, own, weight) in found.collect::<Vec<_>>() {
        of_threads.remove(&name);
        let sum = of_threads.entry(own).or_default();
        *sum = sum.saturating_add(weight);
    }
}

/// A window; times are `CLOCK_MONOTONIC`, ns.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// User stacks that were taken after that are wanted …
    pub after_ns: u64,
    /// … up to that.
    pub until_ns: u64,
    /// Kernel samples without a user stack that were taken after that are wanted …
    pub late_after_ns: u64,
    /// … up to that.
    pub late_until_ns: u64,
}

impl Window {
    /// Everything.
    pub const WHOLE: Self = Self {
        after_ns: 0,
        until_ns: u64::MAX,
        late_after_ns: 0,
        late_until_ns: u64::MAX,
    };

    /// Whether nothing is left for a window behind it.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.until_ns == u64::MAX
    }

    pub(super) const fn has(&self, time_ns: u64) -> bool {
        self.is_whole() || self.after_ns < time_ns && time_ns <= self.until_ns
    }

    pub(super) const fn has_late(&self, time_ns: u64) -> bool {
        self.is_whole() || self.late_after_ns < time_ns && time_ns <= self.late_until_ns
    }

    /// Whether a user stack is of a window that follows.
    pub(super) const fn is_over(&self, time_ns: u64) -> bool {
        !self.is_last() && time_ns > self.until_ns
    }

    /// Whether an earlier window had a kernel sample without its user stack, which comes only now.
    pub(super) const fn had_late(&self, time_ns: u64) -> bool {
        !self.is_whole() && time_ns <= self.late_after_ns
    }

    /// Times may be anything in what is read, 0 too.
    pub(super) const fn is_whole(&self) -> bool {
        self.after_ns == 0 && self.late_after_ns == 0 && self.is_last()
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::WHOLE
    }
}
