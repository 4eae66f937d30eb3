//! CPU clocks of the threads that were sampled, read when their samples were.

use crate::clock::monotonic_ns;
use crate::cpu_rings::{Task, TaskRecord, What};
use crate::processes;
use std::collections::HashSet;

/// What a thread's CPU clock showed, ns, and when (`CLOCK_MONOTONIC`, ns).
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) task: Task,
    pub(super) cpu_ns: u64,
    pub(super) now_ns: u64,
}

/// Of the threads that these samples are of, those that still are.
pub(super) fn clocks(found: &[TaskRecord]) -> Vec<Clock> {
    let sampled = found
        .iter()
        .filter(|record| matches!(record.what, What::Sample(_)));
    clocks_of(sampled.map(|record| record.task).collect())
}

/// Of those threads, likewise.
pub(super) fn clocks_of(tasks: HashSet<Task>) -> Vec<Clock> {
    let clock = |task: Task| {
        let cpu_ns = processes::cpu_ns(task.pid, task.tid)?;
        let now_ns = monotonic_ns();
        Some(Clock {
            task,
            cpu_ns,
            now_ns,
        })
    };
    tasks.into_iter().filter_map(clock).collect()
}
