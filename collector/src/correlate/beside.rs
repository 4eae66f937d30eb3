//! Threads that unwind themselves in user mode and are copied in the kernel
//! ([`crate::copy`], `beside`): a sample of their own stands for all CPU time since the one before,
//! what was copied meanwhile included. So much less is given to it.
//!
//! Copies are read before the thread's own samples.

use crate::intern::HashMap;
use crate::recording::ThreadId;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Beside {
    threads: HashMap<ThreadId, Copies>,
}

/// The copies of one thread.
#[derive(Debug, Default)]
struct Copies {
    /// When each was taken, and what it weighs; in their order.
    waiting: VecDeque<(u64, u64)>,
    /// What samples of its own have too much.
    owed: u64,
}

impl Beside {
    /// A copy was recorded.
    pub(super) fn copied(&mut self, thread: ThreadId, time_ns: u64, weight: u64) {
        if weight > 0 {
            let copies = self.threads.entry(thread).or_default();
            copies.waiting.push_back((time_ns, weight));
        }
    }

    /// What is left of the weight of a sample of the thread's own; and what the copies weigh from
    /// before its own account began, which is with the first. In a part of a recording that may not
    /// be there any more.
    pub(super) fn own(
        &mut self,
        thread: ThreadId,
        is_first: bool,
        time_ns: u64,
        weight: u64,
    ) -> (u64, u64) {
        let Some(copies) = self.threads.get_mut(&thread) else {
            return (weight, 0);
        };
        let mut meanwhile = 0u64;
        while let Some((_, weight)) = copies.waiting.pop_front_if(|(at, _)| *at <= time_ns) {
            meanwhile = meanwhile.saturating_add(weight);
        }
        if is_first {
            return (weight, meanwhile);
        }
        let owed = copies.owed.saturating_add(meanwhile);
        copies.owed = owed.saturating_sub(weight);
        (weight.saturating_sub(owed), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_samples_stand_for_what_was_not_copied() {
        let (thread, other) = (ThreadId::new(1), ThreadId::new(2));
        let mut beside = Beside::default();
        for (time_ns, weight) in [(10, 4), (20, 1), (30, 1), (31, 2), (60, 1)] {
            beside.copied(thread, time_ns, weight);
        }
        assert_eq!(beside.own(other, false, 5, 3), (3, 0));
        assert_eq!(
            beside.own(thread, true, 15, 1),
            (1, 4),
            "before its account"
        );
        assert_eq!(beside.own(thread, false, 25, 3), (2, 0));
        // The ticks of both are not the same.
        assert_eq!(beside.own(thread, false, 32, 2), (0, 0));
        assert_eq!(beside.own(thread, false, 40, 2), (1, 0));
        assert_eq!(beside.own(thread, false, 50, 7), (7, 0));
    }
}
