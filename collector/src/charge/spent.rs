//! What processes say of themselves: the rows of each, from the accounts of its threads and program
//! runs.

use super::lives::Lives;
use super::{Reason, Row, sum};
use crate::recording::{Process, ProcessId, Recording, Thread, ThreadEnd, ThreadId};
use engine::wire::offer::CPU_EVENT;
use engine::wire::thread::ThreadEndReason;

/// The rows of each life.
pub(super) struct Spent {
    pub(super) rows: Vec<Vec<Row>>,
}

impl Spent {
    pub(super) fn of(recording: &Recording, lives: &Lives) -> Self {
        let sampled = sampled_ns(recording);
        let mut of_process: Vec<Vec<ThreadId>> = vec![Vec::new(); recording.processes.len()];
        for (index, thread) in recording.threads.iter().enumerate() {
            of_process[thread.process.index()].push(ThreadId::next_of(index));
        }
        let rows = lives.all.iter().map(|life| {
            let mut account = Account::default();
            let mut clock = Clock::default();
            for run in &life.runs {
                let threads = &of_process[run.index()];
                account.run(recording, *run, threads, &sampled, &mut clock);
            }
            account.rows
        });
        Self {
            rows: rows.collect(),
        }
    }

    /// Makes the rows of a life equal to what it was charged.
    pub(super) fn close(&mut self, life: usize, own_ns: u64, rest: Reason, process: ProcessId) {
        let rows = &mut self.rows[life];
        let said = sum(rows);
        if let Some(ns) = own_ns.checked_sub(said) {
            add(rows, rest, process, None, ns);
            return;
        }
        // Weights are whole periods, and clocks are read one after the other.
        let mut excess = said - own_ns;
        for of_samples in [false, true] {
            let rows = rows.iter_mut().rev();
            for row in rows.filter(|row| (row.reason == Reason::Sampled) == of_samples) {
                let less = row.ns.min(excess);
                row.ns -= less;
                excess -= less;
            }
        }
    }
}

/// What the samples of each thread stand for, ns.
fn sampled_ns(recording: &Recording) -> Vec<u64> {
    let mut sampled = vec![0u64; recording.threads.len()];
    for sample in recording.samples.iter().filter(|s| s.event == CPU_EVENT) {
        let ns = sample
            .weight
            .saturating_mul(recording.period_ns(sample.thread));
        let sum = &mut sampled[sample.thread.index()];
        *sum = sum.saturating_add(ns);
    }
    sampled
}

fn add(rows: &mut Vec<Row>, reason: Reason, process: ProcessId, thread: Option<ThreadId>, ns: u64) {
    if ns > 0 {
        rows.push(Row {
            reason,
            process: Some(process),
            thread,
            ns,
        });
    }
}

/// Where the CPU clocks of a process stood at the end of the program run before, ns: they go on
/// through exec.
#[derive(Default)]
struct Clock {
    process: u64,
    main_thread: u64,
}

#[derive(Default)]
struct Account {
    rows: Vec<Row>,
}

impl Account {
    fn run(
        &mut self,
        recording: &Recording,
        id: ProcessId,
        threads: &[ThreadId],
        sampled: &[u64],
        clock: &mut Clock,
    ) {
        let run = &recording.processes[id.index()];
        add(
            &mut self.rows,
            Reason::Exec,
            id,
            None,
            run.cpu_ns.saturating_sub(clock.process),
        );
        let began = (run.cpu_ns > 0).then_some(run.thread_cpu_ns);
        let mut said = 0u64;
        let mut main_thread = 0;
        let mut ended_by_exec = Vec::new();
        for thread_id in threads {
            let thread = &recording.threads[thread_id.index()];
            let from = match (is_main(run, thread), began) {
                (true, Some(began)) => began,
                (true, None) => clock.main_thread,
                (false, _) => 0,
            };
            // Its clock may not have been looked at since it was copied last, or never.
            let shown = from.saturating_add(sampled[thread_id.index()]);
            let clock_ns = thread.cpu_ns().max(shown);
            if is_main(run, thread) {
                main_thread = clock_ns.max(main_thread);
            }
            let by_exec = |end: &ThreadEnd| end.reason == ThreadEndReason::Exec;
            if thread.end.as_ref().is_some_and(by_exec) {
                ended_by_exec.push(clock_ns);
            }
            let prepared = is_main(run, thread) && began.is_some();
            let part = Part::of(recording, *thread_id, sampled[thread_id.index()], from);
            let before = match prepared {
                true => Reason::SetUp,
                false => Reason::BeforeArmed,
            };
            for (reason, ns) in [
                (Reason::Sampled, part.sampled),
                (Reason::Lost, part.lost),
                (Reason::BetweenSamples, part.between),
                (before, part.unarmed),
            ] {
                add(&mut self.rows, reason, id, Some(*thread_id), ns);
            }
            let late = thread.late_cpu_ns;
            said = said.saturating_add(part.sum().saturating_sub(late));
        }
        let base = run
            .cpu_ns
            .max(if began.is_some() { 0 } else { clock.process });
        if let Some(end) = run.end {
            let all = end.cpu_ns.saturating_sub(base);
            add(
                &mut self.rows,
                Reason::Threads,
                id,
                None,
                all.saturating_sub(said),
            );
            clock.process = end.cpu_ns;
        } else {
            clock.process = base.saturating_add(said);
        }
        clock.main_thread = match ended_by_exec[..] {
            // Another thread called exec: it goes on as the first.
            [caller_ns] => caller_ns,
            _ => main_thread,
        };
    }
}

/// CPU time of one thread, ns.
#[derive(Clone, Copy, Default)]
struct Part {
    sampled: u64,
    lost: u64,
    between: u64,
    unarmed: u64,
}

impl Part {
    /// From where its clock stood when this account began.
    fn of(recording: &Recording, id: ThreadId, sampled: u64, from: u64) -> Self {
        let thread = &recording.threads[id.index()];
        let period = recording.period_ns(id);
        let lost = thread.totals.lost_weight.saturating_mul(period);
        let cpu = thread.cpu_ns();
        if cpu == 0 {
            // Nobody looked at its clock.
            return Self {
                sampled,
                lost,
                ..Self::default()
            };
        }
        let unarmed = thread.unarmed_cpu_ns();
        let armed = cpu.saturating_sub(unarmed.max(from));
        // Weights are whole periods: half a one may be too much.
        let sampled = sampled.min(armed);
        let lost = lost.min(armed - sampled);
        Self {
            sampled,
            lost,
            between: armed - sampled - lost,
            unarmed: unarmed.min(cpu).saturating_sub(from),
        }
    }

    fn sum(&self) -> u64 {
        let parts = [self.sampled, self.lost, self.between, self.unarmed];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

fn is_main(run: &Process, thread: &Thread) -> bool {
    thread.tid == run.pid
}
