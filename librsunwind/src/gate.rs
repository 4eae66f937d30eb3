//! A place that somebody registers in and takes back, while handlers on any thread call what is
//! registered.
//!
//! What is registered is called between `running` going up and going down, and only while it is
//! `live`; closing ends the life, then waits for `running` to be zero. Both sides are sequentially
//! consistent, so one of them sees the other. A place that is used again has another generation, so
//! that who asked for the one before does not get the one after.
//!
//! A call may be left for good, by a handler of the program's for a fault in it that jumps away:
//! then `running` never is zero again. So who closes is content, too, when all walks have ended
//! that were under way: each call is part of one.

use crate::error::Error;
use crate::sys;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The generation while registered, else 0.
    live: AtomicU32,
    /// The newest generation that was here.
    newest: AtomicU32,
    /// Calls under way.
    running: AtomicU32,
}

/// So often who closes waits for walks, for a tenth of a second each time.
const MOST_WAITS: u32 = 50;
/// So often it looks before whether the calls are over.
const LOOKS: u32 = 128;

/// Lets another thread run, for the so-many-th time: one of a higher priority would never let it
/// run by yielding alone.
pub(crate) fn give_way(turns: &mut u32) {
    *turns = turns.saturating_add(1);
    if *turns < 64 {
        sys::yield_now();
    } else {
        sys::pause(100_000);
    }
}

/// A call under way; it ends with this value.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl Gate {
    /// A closed one.
    pub const fn new() -> Self {
        Self {
            live: AtomicU32::new(0),
            newest: AtomicU32::new(0),
            running: AtomicU32::new(0),
        }
    }

    /// The generation that is registered; 0 if none is.
    pub fn live(&self) -> u32 {
        self.live.load(Acquire)
    }

    /// The generation to register next, from 1 to `last` and from the beginning then. For who has
    /// claimed the place.
    pub fn next(&self, last: u32) -> u32 {
        let generation = self.newest.load(Relaxed) % last + 1;
        self.newest.store(generation, Relaxed);
        generation
    }

    /// From now on that generation is called.
    pub fn open(&self, generation: u32) {
        self.live.store(generation, SeqCst);
    }

    /// A call begins, if that generation is registered.
    ///
    /// # Signal safety
    /// Atomics only.
    pub fn enter(&self, generation: u32) -> Option<Inside<'_>> {
        self.running.fetch_add(1, SeqCst);
        let inside = Inside(self);
        (generation != 0 && self.live.load(SeqCst) == generation).then_some(inside)
    }

    /// Ends a generation and waits until no call is under way. Not from within a call.
    /// `walks_ended` waits until all walks have ended that were under way when it was called, and
    /// gives up in the end; then it is asked again, some 50 times.
    ///
    /// # Errors
    /// [`Error::NoClient`] if it was not registered; [`Error::StillRuns`] if a call does not end,
    /// and the generation is what it was.
    pub fn close(
        &self,
        generation: u32,
        mut walks_ended: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let closed = (self.live).compare_exchange(generation, 0, SeqCst, Relaxed);
        closed.map_err(|_| Error::NoClient)?;
        for _ in 0..MOST_WAITS {
            let mut turns = 0u32;
            while turns < LOOKS {
                if self.running.load(SeqCst) == 0 {
                    return Ok(());
                }
                give_way(&mut turns);
            }
            // Whoever is counted in `running` began to walk before that.
            if walks_ended() {
                return Ok(());
            }
        }
        self.live.store(generation, SeqCst);
        Err(Error::StillRuns)
    }

    /// In a fork child: the other threads, in whose calls the parent may have been, are not here.
    pub fn forget_running(&self) {
        self.running.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_closes_waits_for_calls_and_nobody_enters_afterwards() {
        let gate = Gate::new();
        assert!(gate.enter(0).is_none() && gate.enter(1).is_none());
        let generation = gate.next(7);
        gate.open(generation);
        assert_eq!((generation, gate.live()), (1, 1));
        let inside = gate.enter(1).unwrap();
        assert!(gate.enter(2).is_none());
        let is_closed = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(gate.close(1, || false), Ok(()));
                is_closed.store(true, SeqCst);
            });
            while gate.live() != 0 {
                std::thread::yield_now();
            }
            assert!(gate.enter(1).is_none(), "though a call is under way");
            assert!(!is_closed.load(SeqCst));
            drop(inside);
        });
        assert_eq!(gate.close(1, || false), Err(Error::NoClient));
        let generations: Vec<u32> = (0..8).map(|_| gate.next(7)).collect();
        assert_eq!(generations, [2, 3, 4, 5, 6, 7, 1, 2]);
    }

    #[test]
    fn a_call_that_was_left_for_good_holds_nobody_up() {
        let gate = Gate::new();
        gate.open(1);
        std::mem::forget(gate.enter(1));
        let mut asked = 0;
        let still_walking = || {
            asked += 1;
            false
        };
        assert_eq!(gate.close(1, still_walking), Err(Error::StillRuns));
        assert_eq!((asked, gate.live()), (MOST_WAITS, 1), "as it was");
        assert_eq!(gate.close(1, || true), Ok(()));
        assert!(gate.enter(1).is_none());
        gate.open(2);
        drop(gate.enter(2).unwrap());
        assert_eq!(gate.close(2, || true), Ok(()), "nor the one after");
    }
}
