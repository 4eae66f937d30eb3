//! What the events that tell of programs ([`crate::exec_watch`]) make the beginning and the end of
//! a thread cost more: it inherits them. Threads that do nothing, without such events and with
//! them.
//!
//! Not here: what is done with their records, which is the collector's own time.

use crate::clock;
use crate::exec_watch;
use crate::numbers::median;
use std::thread;

/// Threads of a trial.
const THREADS: u64 = 12;
/// Trials, of which the median counts.
const TRIALS: usize = 5;

/// Cost of a thread with such events above that without, ns; `None` where they are refused. Nothing
/// else may run in this process.
pub fn measure() -> Option<u64> {
    // Events are the thread's that opens them, and inherited by what that begins.
    let trial = || {
        let plain = starts();
        let listening = exec_watch::listen_here();
        let listened = starts();
        (!listening.is_empty()).then(|| listened.saturating_sub(plain))
    };
    let trials = (0..TRIALS).map(|_| thread::spawn(trial).join().ok().flatten());
    median(trials.collect::<Option<_>>()?)
}

/// Cost of a thread, ns: with its end, which its own clock does not show.
fn starts() -> u64 {
    let before = clock::process_cpu_ns();
    for _ in 0..THREADS {
        let _ = thread::spawn(|| ()).join();
    }
    clock::process_cpu_ns().saturating_sub(before) / THREADS
}
