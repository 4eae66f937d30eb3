//! What the example programs share: work that takes exactly as long as it is told to, relative to
//! other work.
//!
//! The examples are demonstration, documentation and test at once: their stacks and the split of
//! their time are known beforehand.

use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// CPU time that this thread has used.
///
/// # Panics
/// Never on Linux, where each thread has that clock.
#[must_use]
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("each thread has a CPU clock")
        .into()
}

/// Units of work, each some milliseconds and all equally long: a chain of multiplications in
/// registers, each waiting for the one before, so that neither memory nor the place of the code
/// makes a difference.
///
/// It is inlined into its callers, so that the time is theirs.
#[inline(always)]
pub fn work(units: u64) {
    let mut value = black_box(1u64);
    let mut turn = 0;
    while turn < units * 5_000_000 {
        value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (value >> 31);
        turn += 1;
    }
    black_box(value);
}

/// Behind a function's last call: keeps its frame on the stack until the call returns.
#[inline(always)]
pub fn not_a_tail_call() {
    black_box(());
}
