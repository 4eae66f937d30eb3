//! Runs of programs that mostly wait, made at the same time.

use std::panic::resume_unwind;
use std::thread;

/// Looks at each of these on a thread of its own.
///
/// # Panics
/// As `look` does, for the first of them that did.
pub fn at_once<T: Send>(all: impl IntoIterator<Item = T>, look: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        let look = &look;
        let started: Vec<_> = all
            .into_iter()
            .map(|one| scope.spawn(move || look(one)))
            .collect();
        for one in started {
            if let Err(failure) = one.join() {
                resume_unwind(failure);
            }
        }
    });
}
