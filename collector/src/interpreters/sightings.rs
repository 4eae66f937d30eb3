//! What was seen of a process's JavaScript before, and what that proves.
//!
//! ```text
//!    seen          copied          looked at
//! ────┼───────────────┼────────────────┼───────► time
//!     └─ the same ────┴─ so it was ────┘
//! ```
//!
//! The collector frees what a function had when it is given up, and another one gets the place. By
//! when a stack is looked at, code at an address of it may be another function's. It is not where
//! the same was there before the stack was copied, too. Else something else of the frame has to
//! agree with it, and both places would have to have become the same other function's, which takes
//! a while.

use engine::v8::proof::{Found, Runs};
use std::collections::{HashMap, VecDeque};

/// Within this time, what stands in a frame and what the frame runs do not both become another
/// function's, and the same one's: V8 would have to collect all garbage, which it does once a
/// second in a busy program, make another function, run it often and compile it.
const SOON_NS: u64 = 1_000_000_000;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    /// Whose bytecodes are at an address.
    by_bytecodes: HashMap<u64, Sighting>,
    /// When optimised code of higher numbers was seen, by threads: each has its own.
    newest: HashMap<u64, VecDeque<(u64, u32)>>,
    /// Where the `SharedFunctionInfo` is of the function that was proved last.
    pub(super) last: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    /// Where the `SharedFunctionInfo` is.
    shared: u64,
    /// What tells its function from others.
    check: u64,
    /// Since when nothing else was seen there.
    since_ns: u64,
}

/// A look at a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The thread whose it is.
    pub(super) thread: u64,
    /// When it was copied.
    pub(super) copied_ns: u64,
    /// By when what was found had been read, all of it after that.
    pub(super) read_ns: u64,
}

impl Sightings {
    /// So many are remembered.
    const MOST: usize = 1 << 16;
    /// Threads whose numbers are, and how many of each.
    const MOST_THREADS: usize = 1 << 10;
    const MOST_NUMBERS: usize = 1 << 8;

    /// The `SharedFunctionInfo` that was seen to have those bytecodes.
    pub(super) fn of_bytecodes(&self, array: u64) -> Option<u64> {
        Some(self.by_bytecodes.get(&array)?.shared)
    }

    /// Whether a frame is that function's, of which `check` tells others apart.
    pub(super) fn prove(&self, found: &Found, check: u64, look: Look) -> bool {
        let (was_there, is_part) = match found.runs {
            Runs::Bytecodes(array) => {
                let before = self.by_bytecodes.get(&array);
                let is_same = |before: &Sighting| before.check == check;
                let before = before.filter(|before| is_same(before));
                // Functions that are parts of one that runs keep theirs.
                let was_there = before.is_some_and(|before| before.since_ns <= look.copied_ns);
                (was_there, found.is_within)
            }
            // Code of lower numbers was made before, and no code gets its place while it is there.
            Runs::Optimised(number) => {
                let newest = self.newest_by(look.thread, look.copied_ns);
                (newest.is_some_and(|newest| number <= newest), false)
            }
        };
        let is_soon = look.read_ns.saturating_sub(look.copied_ns) <= SOON_NS;
        was_there || is_soon && (found.is_named || is_part)
    }

    /// Remembers what was found, proved or not: it proves what is copied from now on.
    pub(super) fn add(&mut self, found: &Found, check: u64, look: Look) {
        match found.runs {
            Runs::Bytecodes(array) => {
                if self.by_bytecodes.len() >= Self::MOST {
                    self.by_bytecodes.clear();
                }
                let before = self.by_bytecodes.get(&array);
                let before = before.filter(|before| before.check == check);
                let sighting = Sighting {
                    shared: found.shared,
                    check,
                    since_ns: before.map_or(look.read_ns, |before| before.since_ns),
                };
                self.by_bytecodes.insert(array, sighting);
            }
            Runs::Optimised(number) => {
                if self.newest.len() >= Self::MOST_THREADS {
                    self.newest.clear();
                }
                let numbers = self.newest.entry(look.thread).or_default();
                if numbers.back().is_none_or(|(_, newest)| *newest < number) {
                    if numbers.len() >= Self::MOST_NUMBERS {
                        numbers.pop_front();
                    }
                    numbers.push_back((look.read_ns, number));
                }
            }
        }
    }

    /// The highest number that was seen by then.
    fn newest_by(&self, thread: u64, time_ns: u64) -> Option<u32> {
        let numbers = self.newest.get(&thread)?;
        let by_then = numbers.partition_point(|(seen_ns, _)| *seen_ns <= time_ns);
        Some(numbers.get(by_then.checked_sub(1)?)?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: u64 = 0x1000;
    const OTHER: u64 = 0x2000;
    const MS: u64 = 1_000_000;

    fn found(shared: u64, runs: Runs) -> Found {
        Found {
            shared,
            runs,
            is_named: false,
            is_within: false,
        }
    }

    /// Of a stack that was looked at so many ms after it was copied; numbered by functions.
    fn look(copied_ms: u64, after_ms: u64) -> Look {
        Look {
            thread: 7,
            copied_ns: copied_ms * MS,
            read_ns: (copied_ms + after_ms) * MS,
        }
    }

    /// What the live test caught: at an address on a stack there was code of `outer 58` by when it
    /// was looked at, and that of `inner 35` when it was copied.
    #[test]
    fn code_that_may_have_come_since_the_copy_proves_nothing() {
        let mut seen = Sightings::default();
        let old = found(SHARED, Runs::Optimised(10));
        let new = found(OTHER, Runs::Optimised(11));
        assert!(
            !seen.prove(&old, SHARED, look(100, 50)),
            "for the first time"
        );
        seen.add(&old, SHARED, look(100, 50));
        assert!(!seen.prove(&old, SHARED, look(149, 50)), "just before that");
        assert!(seen.prove(&old, SHARED, look(150, 50)));
        assert!(
            !seen.prove(&new, OTHER, look(160, 50)),
            "it may be in its place"
        );
        seen.add(&new, OTHER, look(160, 50));
        assert!(!seen.prove(&new, OTHER, look(170, 3000)));
        assert!(seen.prove(&new, OTHER, look(210, 3000)), "however late");
        let elsewhere = Look {
            thread: 8,
            ..look(300, 50)
        };
        assert!(
            !seen.prove(&new, OTHER, elsewhere),
            "numbers are a thread's"
        );
    }

    #[test]
    fn bytecodes_that_may_be_anothers_since_the_copy_prove_nothing() {
        let mut seen = Sightings::default();
        let runs = Runs::Bytecodes(0x3000);
        let (one, other) = (found(SHARED, runs), found(OTHER, runs));
        seen.add(&one, 1, look(0, 50));
        assert!(seen.prove(&one, 1, look(60, 50)));
        assert!(!seen.prove(&other, 2, look(60, 50)));
        seen.add(&other, 2, look(60, 50));
        assert_eq!(seen.of_bytecodes(0x3000), Some(OTHER));
        assert!(
            !seen.prove(&other, 2, look(70, 50)),
            "was it there already?"
        );
        assert!(seen.prove(&other, 2, look(120, 50)));
        // Of another one whose `SharedFunctionInfo` is in the place of that.
        assert!(!seen.prove(&other, 3, look(120, 50)));
    }

    #[test]
    fn what_else_agrees_is_believed_for_a_while() {
        let seen = Sightings::default();
        for runs in [Runs::Bytecodes(0x3000), Runs::Optimised(10)] {
            let named = Found {
                is_named: true,
                ..found(SHARED, runs)
            };
            assert!(seen.prove(&named, 1, look(100, 999)));
            assert!(!seen.prove(&named, 1, look(100, 1001)));
            let within = Found {
                is_within: true,
                ..found(SHARED, runs)
            };
            // Code that was optimised for closures is given up with the last of these.
            let keeps = matches!(runs, Runs::Bytecodes(_));
            assert_eq!(seen.prove(&within, 1, look(100, 999)), keeps);
            assert!(!seen.prove(&within, 1, look(100, 1001)));
        }
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let mut seen = Sightings::default();
        for number in 0..3000_u32 {
            let time = look(u64::from(number), 0);
            seen.add(&found(SHARED, Runs::Optimised(number)), 1, time);
            let thread = u64::from(number);
            let elsewhere = Look { thread, ..time };
            seen.add(&found(SHARED, Runs::Optimised(number)), 1, elsewhere);
        }
        assert!(seen.newest.len() <= Sightings::MOST_THREADS);
        let all = seen.newest.values();
        assert!(all.map(VecDeque::len).max() <= Some(Sightings::MOST_NUMBERS));
        for array in 0..2 * Sightings::MOST as u64 {
            seen.add(&found(SHARED, Runs::Bytecodes(array)), 1, look(array, 0));
        }
        assert!(seen.by_bytecodes.len() <= Sightings::MOST);
    }
}
