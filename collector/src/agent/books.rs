//! What was sent of each thread and process, as far as later windows have to know it: from that and
//! from what threads and processes say at their end follows the CPU time that is in no sample,
//! which each window has of those that ended in it. The last one has what else the kernel charged.
//!
//! The reader of a window is given these and gives back those for the next ([`super::window`]): a
//! window that could not be read changes nothing.

use crate::charge::{Reason, Row};
use crate::correlate::{Sent, follow_names};
use crate::recording::{Process, ProcessId, Recording, Thread, ThreadId, ThreadName};
use engine::wire::offer::CPU_EVENT;
use engine::wire::process::Origin;
use engine::wire::sample::Trigger;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Reasons that there are in windows. Those that only a whole recording tells are `End`.
const REASONS: [Reason; 7] = [
    Reason::Lost,
    Reason::BetweenSamples,
    Reason::BeforeArmed,
    Reason::SetUp,
    Reason::Exec,
    Reason::Threads,
    Reason::End,
];

/// A process, through every exec: its pid, and when it started in clock ticks since boot.
type LifeName = (u32, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Life {
    /// What was sent of it, ns.
    sent_ns: u64,
    /// What the kernel charged children that it has waited for, ns.
    told_ns: u64,
    /// Where its clock stood at the end of the program run before, ns.
    clock_ns: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Books {
    /// What was sent before samples came that stand for it, too.
    pub(super) late: Sent,
    /// What was sent of threads, ns.
    threads: BTreeMap<ThreadName, u64>,
    lives: BTreeMap<LifeName, Life>,
    /// What was sent, ns.
    sent_ns: u64,
    /// Less than a period of each reason, which waits for more, ns.
    owed: BTreeMap<Reason, u64>,
}

impl Books {
    /// Enters the samples of the window that ends then, and gives what it has of CPU time that is
    /// in none: whole periods.
    pub(super) fn enter(
        &mut self,
        recording: &Recording,
        after_ns: u64,
        until_ns: u64,
    ) -> Vec<Row> {
        follow_names(&mut self.threads, recording);
        for sample in recording.samples.iter().filter(|s| s.event == CPU_EVENT) {
            let period = recording.period_ns(sample.thread);
            self.add(
                recording,
                sample.thread,
                sample.weight.saturating_mul(period),
            );
        }
        let is_last = until_ns == u64::MAX;
        let mut rows = Vec::new();
        for id in (0..recording.threads.len()).map(ThreadId::next_of) {
            let end = recording.threads[id.index()].end;
            if is_last || end.is_some_and(|end| end.time_ns <= until_ns) {
                rows.extend(self.thread(recording, id));
            }
        }
        for id in (0..recording.processes.len()).map(ProcessId::next_of) {
            rows.extend(self.process(recording, id, until_ns));
        }
        rows.extend(self.children(recording, after_ns, until_ns));
        if is_last {
            let charged = recording.session.as_ref().map_or(0, |one| one.charged_ns);
            let ns = charged.saturating_sub(self.sent_ns);
            self.sent_ns = self.sent_ns.saturating_add(ns);
            rows.push(Row {
                reason: Reason::End,
                process: None,
                thread: None,
                ns,
            });
        }
        self.forget(recording);
        self.whole_periods(recording, rows, is_last)
    }

    fn add(&mut self, recording: &Recording, id: ThreadId, ns: u64) {
        let thread = &recording.threads[id.index()];
        let process = &recording.processes[thread.process.index()];
        let name = (process.pid, process.key, thread.tid, thread.key);
        let sent = self.threads.entry(name).or_default();
        *sent = sent.saturating_add(ns);
        self.add_to_life(process, ns);
    }

    fn add_to_life(&mut self, process: &Process, ns: u64) {
        let life = self.lives.entry(life_of(process)).or_default();
        life.sent_ns = life.sent_ns.saturating_add(ns);
        self.sent_ns = self.sent_ns.saturating_add(ns);
    }

    /// A thread that has ended: its clock says what it used.
    fn thread(&mut self, recording: &Recording, id: ThreadId) -> Vec<Row> {
        let thread = &recording.threads[id.index()];
        let process = &recording.processes[thread.process.index()];
        let is_main = thread.tid == process.pid;
        let began = match process.origin {
            // What it did before it was looked at from outside is nobody's business.
            _ if is_copied(thread) => thread.unarmed_cpu_ns(),
            // Its clock began with another program; the process as a whole is known.
            Origin::Exec if is_main && process.cpu_ns == 0 => return Vec::new(),
            Origin::Exec if is_main => process.thread_cpu_ns,
            _ => 0,
        };
        let name = (process.pid, process.key, thread.tid, thread.key);
        let sent = self.threads.get(&name).copied().unwrap_or(0);
        let mut left = thread.cpu_ns().saturating_sub(began).saturating_sub(sent);
        let unarmed = thread.unarmed_cpu_ns().saturating_sub(began);
        let before = match is_main {
            true => Reason::SetUp,
            false => Reason::BeforeArmed,
        };
        let lost = thread.totals.lost_weight;
        let lost = lost.saturating_mul(recording.period_ns(id));
        let parts = [
            (before, unarmed),
            (Reason::Lost, lost),
            (Reason::BetweenSamples, u64::MAX),
        ];
        let mut rows = Vec::new();
        for (reason, most) in parts {
            let ns = left.min(most);
            left -= ns;
            self.add(recording, id, ns);
            rows.push(Row {
                reason,
                process: Some(thread.process),
                thread: Some(id),
                ns,
            });
        }
        rows
    }

    /// A program run that has ended: what its process used since it began.
    fn process(&mut self, recording: &Recording, id: ProcessId, until_ns: u64) -> Vec<Row> {
        let process = &recording.processes[id.index()];
        let Some(end) = process.end.filter(|end| end.time_ns <= until_ns) else {
            return Vec::new();
        };
        let life = self.lives.entry(life_of(process)).or_default();
        let left = end.cpu_ns.saturating_sub(life.sent_ns);
        let exec = process.cpu_ns.saturating_sub(life.clock_ns).min(left);
        life.clock_ns = end.cpu_ns.max(life.clock_ns);
        life.told_ns = end.children_ns.max(life.told_ns);
        self.add_to_life(process, left);
        let row = |(reason, ns)| Row {
            reason,
            process: Some(id),
            thread: None,
            ns,
        };
        let parts = [(Reason::Exec, exec), (Reason::Threads, left - exec)];
        parts.map(row).into()
    }

    /// Processes that their parents have waited for: what they were charged until their very end.
    fn children(&mut self, recording: &Recording, after_ns: u64, until_ns: u64) -> Vec<Row> {
        let mut newest: HashMap<(u32, u32), ProcessId> = HashMap::new();
        for id in (0..recording.processes.len()).map(ProcessId::next_of) {
            let process = &recording.processes[id.index()];
            let known = newest
                .entry((process.parent_pid, process.pid))
                .or_insert(id);
            if recording.processes[known.index()].key < process.key {
                *known = id;
            }
        }
        let told = recording.processes.iter();
        let told = told.flat_map(|parent| parent.children.iter().map(move |child| (parent, child)));
        let mut told: Vec<_> = told
            .filter(|(_, child)| after_ns < child.time_ns && child.time_ns <= until_ns)
            .collect();
        told.sort_by_key(|(_, child)| child.time_ns);
        let mut rows = Vec::new();
        for (parent, child) in told {
            let life = self.lives.entry(life_of(parent)).or_default();
            life.told_ns = life.told_ns.saturating_add(child.charged_ns);
            let Some(id) = newest.get(&(parent.pid, child.pid)).copied() else {
                // What it cost is known at the end, with what its parent was charged.
                continue;
            };
            let process = &recording.processes[id.index()];
            let life = self.lives.entry(life_of(process)).or_default();
            let own = child.charged_ns.saturating_sub(life.told_ns);
            let ns = own.saturating_sub(life.sent_ns);
            self.add_to_life(process, ns);
            rows.push(Row {
                reason: Reason::End,
                process: Some(id),
                thread: None,
                ns,
            });
        }
        rows
    }

    /// What is not in the recording any more has ended before.
    fn forget(&mut self, recording: &Recording) {
        let lives: HashSet<LifeName> = recording.processes.iter().map(life_of).collect();
        self.lives.retain(|name, _| lives.contains(name));
        let threads = recording.threads.iter().map(|thread| {
            let process = &recording.processes[thread.process.index()];
            (process.pid, process.key, thread.tid, thread.key)
        });
        let threads: HashSet<ThreadName> = threads.collect();
        self.threads.retain(|name, _| threads.contains(name));
    }

    /// Weights are whole periods; what is less waits for more, and is rounded at last.
    fn whole_periods(&mut self, recording: &Recording, rows: Vec<Row>, is_last: bool) -> Vec<Row> {
        let mut whole = Vec::new();
        if recording.threads.is_empty() {
            return whole;
        }
        let threads = (0..recording.threads.len()).rev().map(ThreadId::next_of);
        let of_process = |id: ThreadId| (recording.threads[id.index()].process, id);
        let first: HashMap<ProcessId, ThreadId> = threads.map(of_process).collect();
        let anybody = ThreadId::new(0);
        for row in rows.into_iter().filter(|row| row.ns > 0) {
            let of_process = || row.process.and_then(|process| first.get(&process).copied());
            let thread = row.thread.or_else(of_process).unwrap_or(anybody);
            let period = recording.period_ns(thread);
            let owed = self.owed.entry(row.reason).or_default();
            *owed = owed.saturating_add(row.ns);
            let ns = *owed / period * period;
            *owed -= ns;
            whole.push(Row { ns, ..row });
        }
        let period = recording.period_ns(anybody);
        let rest = self.owed.iter().filter(|_| is_last);
        whole.extend(rest.map(|(reason, ns)| Row {
            reason: *reason,
            process: None,
            thread: None,
            ns: ns.saturating_add(period / 2) / period * period,
        }));
        whole.retain(|row| row.ns > 0);
        whole
    }

    /// As JSON.
    pub(super) fn encode(&self) -> Value {
        let of_threads = |map: &BTreeMap<ThreadName, u64>| {
            let rows = map
                .iter()
                .map(|((pid, key, tid, of), ns)| json!([pid, key, tid, of, ns]));
            rows.collect::<Vec<_>>()
        };
        let lives = self.lives.iter().map(|((pid, ticks), life)| {
            json!([pid, ticks, life.sent_ns, life.told_ns, life.clock_ns])
        });
        let owed = REASONS.map(|reason| self.owed.get(&reason).copied().unwrap_or(0));
        json!({
            "late": of_threads(&self.late.late),
            "beside": of_threads(&self.late.beside),
            "threads": of_threads(&self.threads),
            "lives": lives.collect::<Vec<_>>(),
            "sent": self.sent_ns,
            "owed": owed,
        })
    }

    /// The same read back.
    pub(super) fn decode(value: &Value) -> Option<Self> {
        let rows = |name: &str| {
            let rows = value.get(name)?.as_array()?.iter();
            rows.map(numbers::<5>).collect::<Option<Vec<_>>>()
        };
        let of_threads = |name: &str| {
            let rows = rows(name)?.into_iter();
            let named =
                rows.map(|[pid, key, tid, of, ns]| Some(((small(pid)?, key, small(tid)?, of), ns)));
            named.collect::<Option<BTreeMap<_, _>>>()
        };
        let lives = rows("lives")?
            .into_iter()
            .map(|[pid, ticks, sent_ns, told_ns, clock_ns]| {
                let life = Life {
                    sent_ns,
                    told_ns,
                    clock_ns,
                };
                Some(((small(pid)?, ticks), life))
            });
        let owed = numbers::<{ REASONS.len() }>(value.get("owed")?)?;
        Some(Self {
            late: Sent {
                late: of_threads("late")?,
                beside: of_threads("beside")?,
            },
            threads: of_threads("threads")?,
            lives: lives.collect::<Option<_>>()?,
            sent_ns: value.get("sent")?.as_u64()?,
            owed: REASONS
                .into_iter()
                .zip(owed)
                .filter(|(_, ns)| *ns > 0)
                .collect(),
        })
    }
}

fn small(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

fn numbers<const N: usize>(value: &Value) -> Option<[u64; N]> {
    let numbers = value.as_array()?.iter().map(Value::as_u64);
    numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// Whether its stacks were copied, and not its own work: who unwinds itself does so at a signal.
fn is_copied(thread: &Thread) -> bool {
    let mut armings = thread.armings.iter();
    armings.any(|arming| arming.signal == 0 && arming.trigger != Trigger::None)
}

fn life_of(process: &Process) -> LifeName {
    (process.pid, process.start_ticks)
}

#[cfg(test)]
#[path = "books_tests.rs"]
mod tests;
