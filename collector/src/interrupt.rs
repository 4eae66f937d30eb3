//! Signals that end a command which reads and writes profiles: what it has begun is taken away
//! first, and then it ends as any program does by that signal, so that a shell knows.
//!
//! Not here: commands that record, which go on after a signal ([`crate::record`]).

use crate::output::unfinished;
use crate::processes::has_signal;
use crate::progress_bar;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

static PAGED: AtomicBool = AtomicBool::new(false);

/// Watches for them from now on. What is ignored (`nohup`) stays so.
pub(crate) fn watch() {
    let ending = [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter();
    let ending: Vec<i32> = ending.filter(|signal| !is_ignored(*signal)).collect();
    // Without such a thread they end it as they are, which leaves a temporary file at worst.
    let _ = thread::Builder::new().spawn(move || {
        let Ok(mut signals) = Signals::new(ending) else {
            return;
        };
        for signal in signals.forever() {
            let is_of_keys = matches!(signal, SIGINT | SIGQUIT);
            if is_of_keys && PAGED.load(SeqCst) {
                continue;
            }
            progress_bar::end();
            let nothing_new = unfinished::remove();
            let _ = emulate_default_handler(signal);
            drop(nothing_new);
        }
    });
}

/// Keys that interrupt are for a pager from now on, or are not.
pub(crate) fn keys_are_for_pager(are: bool) {
    PAGED.store(are, SeqCst);
}

fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    has_signal(&status, "SigIgn:", signal)
}
