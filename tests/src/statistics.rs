//! Judging shares that were measured on a machine that others use, too.
//!
//! A share that is off by chance is within its bounds when it is measured again; one that is off by
//! a defect is not. Where one measurement in twenty is off by chance, a judgement is wrong once in
//! 1,400. Only that may be repeated: any other failure of a test is final, at whichever run it
//! comes.
//!
//! On a guest whose hypervisor takes processor time away, samples stand for that time too, and the
//! clocks of threads leave it out: no repetition helps, and [`stands_for`] reckons with it. Where
//! it takes much, signals come when what they are about is over, and a measurement says nothing.

use collector::clock;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::time::{Duration, Instant};

thread_local! {
    /// Whether [`judge`] runs, and will see to it that chance is forgiven.
    static JUDGED: Cell<bool> = const { Cell::new(false) };
    /// What had been stolen when the measurement began, ns.
    static STOLEN_BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// A measurement that was off is repeated until so many in all are off, or so many right.
const ENOUGH: usize = 3;

/// What was off while more than this part of all processor time was stolen is not held against
/// anybody.
const MUCH_STOLEN: f64 = 0.2;
/// But so often at most in one judgement.
const PATIENCE: usize = 8;

/// A share outside of its bounds.
struct Off(String);

/// What part of a sum a part is; 0 of nothing.
#[must_use]
pub fn share(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

/// Looks at a share: what [`assert_measured!`](crate::assert_measured) does. `what` is asked when
/// it is off.
///
/// # Panics
/// If it is off; [`judge`] tells that from other failures. And always where nobody judges: a test
/// that forgot to would otherwise fail by chance, and seldom.
#[track_caller]
pub fn look_at(within: bool, what: impl FnOnce() -> String) {
    assert!(JUDGED.get(), "assert_measured! is for tests that judge()");
    if !within {
        let what = format!("{} ({:.0} ms stolen)", what(), stolen_ns() / 1e6);
        eprintln!("off: {what}");
        panic_any(Off(what))
    }
}

/// Whether samples stand for that CPU time, give or take `tolerance`; all ns, of one thread or of
/// several. What was stolen of all processors meanwhile may come on top.
///
/// The other way about it is for time off the CPU, which the stolen time is not: `samples` is then
/// the truth.
///
/// # Panics
/// Outside of [`judge`].
#[must_use]
#[track_caller]
pub fn stands_for(samples: f64, cpu_ns: f64, tolerance: f64) -> bool {
    (-tolerance..=tolerance + stolen_ns()).contains(&(samples - cpu_ns))
}

/// What hypervisors took of all processors since the measurement began, ns.
///
/// # Panics
/// As [`stands_for`].
#[must_use]
#[track_caller]
pub fn stolen_ns() -> f64 {
    assert!(JUDGED.get(), "stolen_ns() is for tests that judge()");
    clock::stolen_ns().saturating_sub(STOLEN_BEFORE.get()) as f64
}

/// Measures; if a share is off, again and again, until it was off three times in all, or right
/// three times. What was off while the machine was mostly not there does not count.
///
/// # Panics
/// If it is off three times, and at any other failure of `measure`.
pub fn judge(measure: impl Fn()) {
    judge_by(measure, clock::stolen_ns);
}

/// By that account of stolen time, ns.
fn judge_by(measure: impl Fn(), stolen_ns: fn() -> u64) {
    let (mut wrong, mut right, mut void) = (Vec::new(), 0, 0);
    while right < ENOUGH && (right == 0 || !wrong.is_empty()) {
        let began = Instant::now();
        match once(&measure) {
            None => right += 1,
            Some(_) if void < PATIENCE && is_much(stolen_ns(), began.elapsed()) => void += 1,
            Some(what) => wrong.push(what),
        }
        assert!(
            wrong.len() < ENOUGH,
            "off again and again: {}",
            wrong.join("; ")
        );
    }
}

/// Measures once; what was off.
fn once(measure: &impl Fn()) -> Option<String> {
    JUDGED.set(true);
    STOLEN_BEFORE.set(clock::stolen_ns());
    let failed = catch_unwind(AssertUnwindSafe(measure));
    JUDGED.set(false);
    match failed.err()?.downcast::<Off>() {
        Ok(off) => Some(off.0),
        Err(other) => resume_unwind(other),
    }
}

/// Whether much of a measurement's time was stolen by then.
fn is_much(stolen_ns: u64, passed: Duration) -> bool {
    let stolen_ns = stolen_ns.saturating_sub(STOLEN_BEFORE.get()) as f64;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    stolen_ns > MUCH_STOLEN * passed.as_nanos() as f64 * processors as f64
}

/// Like `assert!`, for a share within a test that is judged by [`judge`].
#[macro_export]
macro_rules! assert_measured {
    ($within:expr, $($what:tt)+) => {
        $crate::statistics::look_at($within, || format!($($what)+));
    };
}

#[cfg(test)]
mod tests {
    use super::{MUCH_STOLEN, STOLEN_BEFORE, is_much, judge_by};
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    fn passes(measure: impl Fn()) -> bool {
        // A tick of that is more than a run of these takes.
        catch_unwind(AssertUnwindSafe(|| judge_by(measure, || 0))).is_ok()
    }

    #[test]
    fn chance_is_forgiven_and_nothing_else_ever() {
        let run = Cell::new(0);
        let nth = |off: &[i32]| {
            run.set(run.get() + 1);
            assert_measured!(!off.contains(&run.get()), "run {}", run.get());
        };
        assert!(passes(|| nth(&[2])));
        assert_eq!(run.replace(0), 1);
        assert!(passes(|| nth(&[1, 3])));
        assert_eq!(run.replace(0), 5);
        assert!(!passes(|| nth(&[1, 3, 5])));
        assert_eq!(run.replace(0), 5);
        assert!(!passes(|| nth(&[1, 2, 3])));
        assert_eq!(run.replace(0), 3);
        assert!(!passes(|| assert_eq!(
            run.replace(1),
            1,
            "a race is no chance"
        )));
    }

    #[test]
    fn much_is_a_part_of_all_processors_time() {
        STOLEN_BEFORE.set(1_000_000_000);
        let second = Duration::from_secs(1);
        let processors = std::thread::available_parallelism().unwrap().get() as f64;
        let limit = 1e9 + MUCH_STOLEN * 1e9 * processors;
        assert!(!is_much(limit as u64 - 1_000_000, second));
        assert!(is_much(limit as u64 + 1_000_000, second));
    }
}
