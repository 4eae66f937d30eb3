//! What an account must be equal to.

use crate::assert_measured;

/// Of the sampling that `rsunwind record` does unless told otherwise, ns.
pub const PERIOD_NS: u64 = 1_001_001;

/// Looks whether two times agree within 1 % or two periods, ns: for tests that judge.
#[track_caller]
pub fn assert_near(found: u64, expected: u64, what: &str) {
    // A tick that comes late, on a machine that others use, is more than two periods now and then.
    let slack = (expected / 100).max(2 * PERIOD_NS);
    assert_measured!(
        found.abs_diff(expected) <= slack,
        "{what}: {found} ns of {expected} ns"
    );
}
