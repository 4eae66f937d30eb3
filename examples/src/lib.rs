//! What the example programs share: work that takes exactly as long as it is told to, relative to other work.
//!
//! The examples are demonstration, documentation and test at once: their stacks and the split of their time are known beforehand.

use std::hint::black_box;

/// A unit of work: some tens of milliseconds, the same everywhere it is called.
///
/// It is inlined into its callers, so that the time is theirs.
#[inline(always)]
pub fn work(units: u64) {
    let mut turn = 0;
    while turn < units * 10_000_000 {
        turn = black_box(turn + 1);
    }
}
