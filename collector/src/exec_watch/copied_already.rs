//! Which of the programs that begin need nothing done, because their process has the events that
//! copy stacks from who started it. A process that got them twice would count twice, and all that
//! it starts.
//!
//! An exec is in the ring of the copies before it is in ours, which is read first: what tells of it
//! there is found in the same look or an earlier one, unless it was lost.

use crate::cpu_rings::request::Tells;
use crate::cpu_rings::{TaskRecord, What};
use std::collections::HashMap;

/// What two events tell of one exec is less than this apart, ns: microseconds, unless the host of a
/// virtual machine takes its processor away meanwhile.
const ONE_EXEC_NS: u64 = 1_000_000_000;
/// So many processes are remembered before those that have ended are forgotten.
const MANY: usize = 4096;

/// Processes that have events which copy stacks, by their pid.
#[derive(Default)]
pub(super) struct CopiedAlready {
    known: HashMap<i32, Told>,
}

/// What copies told of a process (`CLOCK_MONOTONIC`, ns).
#[derive(Clone, Copy, Default)]
struct Told {
    /// Its last exec.
    exec_ns: Option<u64>,
    /// Anything, last.
    last_ns: u64,
}

/// A program that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    pub(super) pid: i32,
    pub(super) time_ns: u64,
    /// Whether its process is copied: the copies' record of the exec was lost.
    pub(super) is_copied: bool,
}

impl CopiedAlready {
    /// Programs that began, but for those of which copies tell: takes what tells of it out of what
    /// was found. `born_ns` is when a process began (`CLOCK_MONOTONIC`), as long as it is there: a
    /// number may be another's by now.
    pub(super) fn began(
        &mut self,
        found: &mut Vec<TaskRecord>,
        copies_tell: Tells,
        born_ns: impl Fn(i32) -> Option<u64>,
    ) -> Vec<Beginning> {
        for record in found.iter() {
            self.learn(record, copies_tell);
        }
        let mut began: Vec<Beginning> = Vec::new();
        found.retain(|record| {
            let What::Began(by_copies) = record.what else {
                return true;
            };
            let (pid, time_ns) = (record.task.pid, record.time_ns);
            let told = self.known.get(&pid).copied().unwrap_or_default();
            let is_told = |exec_ns: u64| exec_ns.abs_diff(time_ns) < ONE_EXEC_NS;
            let is_known = began.iter().any(|one| one.pid == pid);
            if !by_copies && !is_known && !told.exec_ns.is_some_and(is_told) {
                let is_same = |born_ns| born_ns <= told.last_ns;
                began.push(Beginning {
                    pid,
                    time_ns,
                    is_copied: told.last_ns > 0 && born_ns(pid).is_some_and(is_same),
                });
            }
            false
        });
        if self.known.len() > MANY {
            let lives = |pid, told: &Told| born_ns(pid).is_some_and(|born| born <= told.last_ns);
            self.known.retain(|pid, told| lives(*pid, told));
        }
        began
    }

    /// Takes in a record, if copies told it: our own rings and those of context switches tell
    /// something else, or of other processes too.
    fn learn(&mut self, record: &TaskRecord, copies_tell: Tells) {
        let is_exec = match copies_tell {
            Tells::Everything => matches!(record.what, What::Exec(_)),
            Tells::Programs | Tells::Nothing => matches!(record.what, What::Began(true)),
        };
        if !is_exec && !matches!(record.what, What::Sample(_)) {
            return;
        }
        let told = self.known.entry(record.task.pid).or_default();
        told.last_ns = told.last_ns.max(record.time_ns);
        if is_exec {
            told.exec_ns = Some(record.time_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_rings::{Copied, Task};

    fn record(pid: i32, time_ns: u64, what: What) -> TaskRecord {
        TaskRecord {
            time_ns,
            task: Task { pid, tid: pid },
            what,
        }
    }

    fn exec(pid: i32, time_ns: u64) -> TaskRecord {
        record(pid, time_ns, What::Exec(Vec::new()))
    }

    fn ours(pid: i32, time_ns: u64) -> TaskRecord {
        record(pid, time_ns, What::Began(false))
    }

    fn sample(pid: i32, time_ns: u64) -> TaskRecord {
        record(pid, time_ns, What::Sample(Box::<Copied>::default()))
    }

    /// Pids of programs that began, with whether they are copied, and how many records are left.
    fn look(
        known: &mut CopiedAlready,
        mut found: Vec<TaskRecord>,
        tells: Tells,
        born_ns: u64,
    ) -> (Vec<(i32, bool)>, usize) {
        let began = known.began(&mut found, tells, |_| Some(born_ns));
        let began = began.iter().map(|one| (one.pid, one.is_copied));
        (began.collect(), found.len())
    }

    #[test]
    fn who_is_copied_already_has_not_begun_whichever_look_finds_that() {
        let known = &mut CopiedAlready::default();
        let all = Tells::Everything;
        let both = vec![
            ours(1, 1_001),
            exec(1, 1_000),
            ours(2, 1_002),
            ours(2, 1_003),
        ];
        assert_eq!(look(known, both, all, 1), (vec![(2, false)], 1));
        // The copies' ring was read behind the exec, ours before it.
        assert_eq!(look(known, vec![exec(3, 5_000)], all, 1), (vec![], 1));
        assert_eq!(look(known, vec![], all, 1), (vec![], 0));
        assert_eq!(look(known, vec![ours(3, 5_001)], all, 1), (vec![], 0));
        // Another process of that number, later.
        let later = 5_001 + ONE_EXEC_NS;
        let another = look(known, vec![ours(3, later)], all, later - 1);
        assert_eq!(another, (vec![(3, false)], 0));
        let copies = record(4, later, What::Began(true));
        let programs = Tells::Programs;
        assert_eq!(look(known, vec![copies], programs, 1), (vec![], 0));
        assert_eq!(look(known, vec![ours(4, later)], programs, 1), (vec![], 0));
    }

    #[test]
    fn who_was_sampled_is_copied_though_the_record_of_its_exec_was_lost() {
        let all = Tells::Everything;
        let known = &mut CopiedAlready::default();
        let sampled = vec![sample(5, 1_000), sample(6, 1_000), ours(5, 2_000)];
        assert_eq!(look(known, sampled, all, 900), (vec![(5, true)], 2));
        // In a later look, long after.
        let again = vec![ours(5, 9 * ONE_EXEC_NS)];
        assert_eq!(look(known, again, all, 900), (vec![(5, true)], 0));
        // The number is another process's.
        assert_eq!(
            look(known, vec![ours(6, 3_000)], all, 2_500),
            (vec![(6, false)], 0)
        );
        // Nobody is there any more.
        let mut found = vec![ours(5, 4_000)];
        let gone = known.began(&mut found, all, |_| None);
        assert!(gone.iter().all(|one| !one.is_copied));
    }

    #[test]
    fn who_has_ended_is_forgotten() {
        let known = &mut CopiedAlready::default();
        let all = (0..=MANY as i32).map(|pid| exec(pid, 1_000)).collect();
        look(known, all, Tells::Everything, 2_000);
        assert!(known.known.is_empty());
    }
}
