//! Threads that unwind themselves in user mode and are copied in the kernel
//! ([`crate::copy`], `beside`): a sample of their own stands for all CPU time since the one before,
//! what was copied meanwhile included. So much less is given to it.
//!
//! Copies are read before the thread's own samples. Those of a recording that goes on may be of an
//! earlier window than the sample that stands for them, too: what is still to be taken off is
//! handed on ([`super::window::Sent::beside`]).

use super::window::Window;
use crate::intern::HashMap;
use crate::recording::ThreadId;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(super) struct Beside {
    window: Window,
    threads: HashMap<ThreadId, Copies>,
}

/// The copies of one thread.
#[derive(Debug, Default)]
struct Copies {
    /// When each was taken, and what it weighs; in their order.
    waiting: VecDeque<(u64, u64)>,
    /// What samples of its own have too much, and what was copied in earlier windows since the last
    /// of them.
    owed: u64,
}

impl Beside {
    /// With what earlier windows have left.
    pub(super) fn of(window: Window, before: impl Iterator<Item = (ThreadId, u64)>) -> Self {
        let copies = |owed| Copies {
            owed,
            ..Copies::default()
        };
        Self {
            window,
            threads: before.map(|(id, owed)| (id, copies(owed))).collect(),
        }
    }

    /// A copy was recorded.
    pub(super) fn copied(&mut self, thread: ThreadId, time_ns: u64, weight: u64) {
        if weight > 0 {
            let copies = self.threads.entry(thread).or_default();
            copies.waiting.push_back((time_ns, weight));
        }
    }

    /// What is left of the weight of a sample of the thread's own; and what the copies weigh from
    /// before its own account began, which is a period before the first, or, of the thread that was
    /// held while the library came, then. In a part of a recording the first may not be there any
    /// more.
    pub(super) fn own(
        &mut self,
        thread: ThreadId,
        is_first: bool,
        time_ns: u64,
        weight: u64,
    ) -> (u64, u64) {
        let window = self.window;
        let copies = self.threads.get_mut(&thread);
        // What it had meanwhile is left for the next window, whose it is.
        let Some(copies) = copies.filter(|_| !window.is_over(time_ns)) else {
            return (weight, 0);
        };
        let (mut known, mut meanwhile) = (0u64, 0u64);
        while let Some((at, weight)) = copies.waiting.pop_front_if(|(at, _)| *at <= time_ns) {
            let sum = if window.has(at) {
                &mut meanwhile
            } else {
                &mut known
            };
            *sum = sum.saturating_add(weight);
        }
        let before_first = |owed: u64| owed.saturating_sub(weight.saturating_sub(1));
        if !window.has(time_ns) {
            return (weight, if is_first { before_first(known) } else { 0 });
        }
        let owed = copies.owed.saturating_add(meanwhile);
        if is_first {
            copies.owed = 0;
            let before = before_first(owed);
            return (weight.saturating_sub(owed - before), before);
        }
        copies.owed = owed.saturating_sub(weight);
        (weight.saturating_sub(owed), 0)
    }

    /// What the next window has to take off, by thread.
    pub(super) fn left(self) -> Vec<(ThreadId, u64)> {
        let window = self.window;
        let left = |(thread, copies): (ThreadId, Copies)| {
            let new = copies.waiting.iter().filter(|(at, _)| window.has(*at));
            let sum = |sum: u64, (_, weight): &(u64, u64)| sum.saturating_add(*weight);
            (thread, new.fold(copies.owed, sum))
        };
        let left = self.threads.into_iter().map(left);
        left.filter(|(_, weight)| *weight > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_samples_stand_for_what_was_not_copied() {
        let (thread, other) = (ThreadId::new(1), ThreadId::new(2));
        let mut beside = Beside::of(Window::WHOLE, std::iter::empty());
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
