//! Waiting until no thread of a process is in the library's handler any more, without a word to any
//! of them: the action was put back and the events are closed, so that none enters.
//!
//! A thread is out that sleeps in a call which it made from elsewhere, or has used more CPU time
//! since then than the handler takes for anything. One that only waits for a processor, or for a
//! page, may be on its way in or out.

use super::Refusal;
use crate::processes::{self, Stat};
use crate::whereabouts::Whereabouts;
use std::collections::HashMap;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

/// Much more than any walk takes, ns.
const OUT_NS: u64 = 20_000_000;
const BETWEEN: Duration = Duration::from_millis(2);
/// On a busy machine threads may have to wait for a processor for a while.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits.
///
/// # Errors
/// [`Refusal::Inside`] if one stays.
pub(super) fn wait(pid: u32, library: Range<u64>) -> Result<(), Refusal> {
    let began = Instant::now();
    let cpu_ns = |tid: i32| processes::cpu_ns(pid.cast_signed(), tid);
    let tids = processes::threads(pid.cast_signed());
    let mut left: HashMap<i32, u64> = tids
        .into_iter()
        .filter_map(|tid| Some((tid, cpu_ns(tid)?)))
        .collect();
    loop {
        left.retain(|tid, before| {
            let used = cpu_ns(*tid).map(|now| now.saturating_sub(*before));
            // Who is gone is out.
            used.is_some_and(|used| used < OUT_NS) && !sleeps_elsewhere(pid, *tid, &library)
        });
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(Refusal::Inside);
        }
        thread::sleep(BETWEEN);
    }
}

fn sleeps_elsewhere(pid: u32, tid: i32, library: &Range<u64>) -> bool {
    let tid = tid.cast_unsigned();
    let there = Whereabouts::of(pid, tid);
    let Whereabouts::Asleep {
        ip, call: Some(_), ..
    } = there
    else {
        return false;
    };
    let sleeps = || Stat::of_thread(pid, tid).is_some_and(|stat| stat.state() == 'S');
    !library.contains(&ip) && sleeps() && Whereabouts::of(pid, tid) == there
}
