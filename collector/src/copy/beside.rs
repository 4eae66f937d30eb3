//! Threads that are copied and unwind themselves beside that, in user mode: those of processes that
//! the library was brought into ([`crate::inside`]). Of their copies only those that were taken in
//! the kernel are wanted, which no signal may interrupt; the threads' own samples stand for all
//! others.
//!
//! A thread is armed some time after it was found, and may be disarmed again: what it did meanwhile
//! is in copies, as what its children do is.

use crate::cpu_rings::{Copied, Task};
use crate::processes;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module. Shared by those who arm them and those who unwind copies.
#[derive(Clone, Debug)]
pub struct Beside(Arc<Mutex<All>>);

#[derive(Debug)]
struct All {
    /// When recording begins (`CLOCK_MONOTONIC`, ns).
    begins_ns: u64,
    processes: HashMap<i32, Process>,
    /// Fork children that nobody has asked for yet.
    born: Vec<u32>,
}

#[derive(Debug, Default)]
struct Process {
    /// The key of its program run.
    key: u64,
    /// Where our library is in it.
    library: Range<u64>,
    /// Of each thread, since when (`CLOCK_MONOTONIC`, ns).
    threads: HashMap<i32, u64>,
}

impl Beside {
    /// Nobody, in a recording that begins at that time.
    fn new(begins_ns: u64) -> Self {
        Self(Arc::new(Mutex::new(All {
            begins_ns,
            processes: HashMap::new(),
            born: Vec::new(),
        })))
    }

    /// Nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self::new(0)
    }

    /// Nobody yet: what runs is recorded only once [`Beside::begin`] was called.
    #[must_use]
    pub fn later() -> Self {
        Self::new(u64::MAX)
    }

    /// All is ready: recording begins now.
    pub fn begin(&self, now_ns: u64) {
        self.lock().begins_ns = now_ns;
    }

    /// When recording begins, ns; 0 if it always has.
    pub(super) fn begins_ns(&self) -> u64 {
        self.lock().begins_ns
    }

    /// Whether recording had not begun by then.
    pub(super) fn is_early(&self, time_ns: u64) -> bool {
        time_ns < self.lock().begins_ns
    }
    /// A process is copied, under that key.
    pub(super) fn found(&self, pid: i32, key: u64) {
        self.lock().processes.entry(pid).or_default().key = key;
    }

    /// A process was forked, which is copied under that key.
    pub(super) fn forked(&self, pid: i32, parent: i32, key: u64) {
        let mut all = self.lock();
        if all.processes.contains_key(&parent) {
            let child = Process {
                key,
                ..Process::default()
            };
            all.processes.insert(pid, child);
            all.born.push(pid.cast_unsigned());
        }
    }

    /// It has ended, or runs another program.
    pub(super) fn is_over(&self, pid: i32) {
        let mut all = self.lock();
        // Of those that were ever armed it is still told how many could not be.
        if all
            .processes
            .get(&pid)
            .is_some_and(|one| one.library.is_empty())
        {
            all.processes.remove(&pid);
        }
    }

    /// Fork children that were not given before: of those that have the library they have it, too.
    #[must_use]
    pub fn born(&self) -> Vec<u32> {
        std::mem::take(&mut self.lock().born)
    }

    /// Pid and key by which the copies of a process are recorded.
    #[must_use]
    pub fn owner(&self, pid: u32) -> (u32, u64) {
        let found = self
            .lock()
            .processes
            .get(&pid.cast_signed())
            .map(|found| found.key);
        let key = found.unwrap_or(0);
        let inner = processes::inner_number(pid.cast_signed(), pid.cast_signed());
        (inner.unwrap_or(pid), key)
    }

    /// These threads of a process, and no others of it, unwind themselves now.
    pub fn are(&self, pid: u32, library: Range<u64>, tids: impl Iterator<Item = i32>, now_ns: u64) {
        let mut all = self.lock();
        let process = all.processes.entry(pid.cast_signed()).or_default();
        let before = std::mem::take(&mut process.threads);
        let since = |tid: i32| (tid, before.get(&tid).copied().unwrap_or(now_ns));
        process.threads = tids.map(since).collect();
        process.library = library;
    }

    /// Whether the thread's own samples stand for that copy.
    pub(super) fn stand_for(&self, time_ns: u64, task: Task, copied: &Copied) -> bool {
        let all = self.lock();
        let Some(process) = all.processes.get(&task.pid) else {
            return false;
        };
        let is_armed = (process.threads.get(&task.tid)).is_some_and(|since| *since <= time_ns);
        // Our handler is in the weight of the samples around it.
        let is_ours = || {
            let place = copied.user.as_ref();
            place.is_some_and(|(ip, ..)| process.library.contains(ip))
        };
        is_armed && (copied.kernel.is_empty() || is_ours())
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::registers;

    #[test]
    fn of_armed_threads_only_copies_from_the_kernel_are_wanted() {
        let beside = Beside::later();
        assert!(beside.is_early(1 << 60));
        beside.begin(3);
        assert!(beside.is_early(2) && !beside.is_early(3));
        let copied = |ip, kernel: &[u64]| Copied {
            user: Some((ip, 0, registers::resumed(ip, 0, 0))),
            kernel: kernel.to_vec(),
            ..Copied::default()
        };
        let stand = |time_ns, tid, ip, kernel: &[u64]| {
            beside.stand_for(time_ns, Task { pid: 4, tid }, &copied(ip, kernel))
        };
        assert!(!stand(9, 5, 1, &[]));
        beside.are(4, 100..200, [5].into_iter(), 7);
        assert!(stand(7, 5, 1, &[]) && stand(8, 5, 150, &[9]));
        assert!(!stand(6, 5, 1, &[]), "before it was armed");
        assert!(!stand(8, 6, 1, &[]), "another");
        assert!(!stand(8, 5, 1, &[9]), "in the kernel");
        beside.are(4, 100..200, [5, 6].into_iter(), 9);
        assert!(stand(8, 5, 1, &[]) && !stand(8, 6, 1, &[]) && stand(9, 6, 1, &[]));
        beside.are(4, 100..200, [6].into_iter(), 10);
        assert!(!stand(11, 5, 1, &[]), "disarmed");
        beside.found(7, 1);
        for (child, parent) in [(20, 4), (21, 20), (22, 21), (23, 9), (24, 7)] {
            beside.forked(child, parent, 12);
            if child == 21 {
                beside.is_over(child);
            }
        }
        assert_eq!(beside.born(), [20, 21, 24], "of those that are known");
        assert!(beside.born().is_empty());
        beside.is_over(4);
        assert!(stand(11, 6, 1, &[]), "told of until the end");
    }
}
