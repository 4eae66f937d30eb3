//! Where the CPU time went that the kernel charged: what samples stand for, and for the rest a
//! reason. The rows of a [`Ledger`] add up to what was charged, exactly, wherever somebody waited
//! for a process: `rsunwind record` for the command, the processes of the recording for their
//! children.
//!
//! ```text
//! wait4 of the command ─► total ┐
//! wait4 of a child ─► the child ├─► own = both − children ─┬─ of threads: sampled, lost, between
//! a process at its own end ─────┘                          ├─ of program runs: set-up, exec
//!                                                          └─ the rest: its end, or not sampled
//! ```
//!
//! Not here: who is whose child ([`lives`]), and how it is shown (`summary`, `profile`).

mod lives;
mod spent;
#[cfg(test)]
mod tests;

use crate::recording::{ProcessId, Recording, ThreadId};
use lives::{Life, Lives};
use spent::Spent;

/// Why CPU time is not, or is, in samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It is: samples stand for it.
    Sampled,
    /// Samples were taken and found no room.
    Lost,
    /// Since the last sample of a thread, or less than a period.
    BetweenSamples,
    /// Of a thread, before it was armed: its creation above all.
    BeforeArmed,
    /// The profiler's own preparation of a program.
    SetUp,
    /// From the end of one program's account to the beginning of the next one's: exec, which tears
    /// an address space down, and the loader.
    Exec,
    /// Ends of threads, and threads that libc did not make.
    Threads,
    /// From the last account of a process to its end: tearing down its address space.
    End,
    /// Of fork children that ended before the first tick of the kernel's clock, so that they never
    /// had a segment.
    Brief,
    /// Of processes that have no samples.
    NotSampled,
}

/// What a fork child uses at most before its first tick, ns: a tick where they are slowest (100
/// Hz).
const BRIEF_NS: u64 = 10_000_000;

impl Reason {
    /// In the place of frames.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::Lost => "[lost samples]",
            Self::BetweenSamples => "[between samples]",
            Self::BeforeArmed => "[threads, before they were armed]",
            Self::SetUp => "[preparation by the profiler]",
            Self::Exec => "[exec and loading]",
            Self::Threads => "[ends of threads, threads of a raw clone]",
            Self::End => "[end of the process]",
            Self::Brief => "[fork children that ended before a first sample]",
            Self::NotSampled => "[not sampled]",
        }
    }
}

/// CPU time of one process, or one thread of it, and one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Why.
    pub reason: Reason,
    /// Whose; `None` where it is known of several together only, or of one that is not in the
    /// recording.
    pub process: Option<ProcessId>,
    /// Of which thread; `None` where it is of the process as a whole.
    pub thread: Option<ThreadId>,
    /// How much, ns.
    pub ns: u64,
}

/// A child that is not in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Its pid, as who waited for it has it.
    pub pid: u32,
    /// Who that was.
    pub parent: ProcessId,
    /// What it was charged, ns.
    pub ns: u64,
    /// The errno for which it could not make its recording; 0 if it did not say so.
    pub refused: u32,
}

/// All CPU time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By process, thread and reason.
    pub rows: Vec<Row>,
    /// Whether the kernel's charge is known to the end of the command; otherwise the rows are what
    /// the processes say of themselves.
    pub is_closed: bool,
    /// Processes that nobody waited for, in whose place the rows have their own last account, with
    /// that, ns.
    pub unwaited: Vec<(ProcessId, u64)>,
    /// Children without samples, the largest first.
    pub strangers: Vec<Stranger>,
}

impl Ledger {
    /// That of a recording.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let lives = Lives::of(recording);
        let mut spent = Spent::of(recording, &lives);
        let mut ledger = Self::default();
        let by_strangers = lives.waited_for_by_strangers(recording, &spent.rows);
        let mut inside = 0u64;
        for (index, life) in lives.all.iter().enumerate() {
            let own = lives.own_ns(recording, &spent.rows, index);
            if let Some(own) = own {
                let rest = match life.has_become_another {
                    true => Reason::NotSampled,
                    false => end_reason(life, &spent.rows[index]),
                };
                spent.close(index, own, rest, life.last());
            }
            let sum = sum(&spent.rows[index]);
            if lives.is_waited_for(recording, &by_strangers, index) {
                inside = inside.saturating_add(sum);
            } else if own.is_none() {
                ledger.unwaited.push((life.last(), sum));
            }
        }
        let (mut brief, mut strangers) = (0u64, 0u64);
        for mut stranger in lives.strangers.iter().copied() {
            let known = |life: usize| {
                let children = lives.children_ns(recording, &spent.rows, life);
                sum(&spent.rows[life]).saturating_add(children)
            };
            let below = lives.below(recording, stranger.pid).map(known);
            let below = below.fold(0, u64::saturating_add);
            stranger.ns = stranger.ns.saturating_sub(below);
            let sum = match stranger.ns < BRIEF_NS {
                true => &mut brief,
                false => &mut strangers,
            };
            *sum = sum.saturating_add(stranger.ns);
            ledger.strangers.push(stranger);
        }
        ledger
            .strangers
            .sort_by_key(|one| std::cmp::Reverse(one.ns));
        ledger.strangers.retain(|one| one.ns > 0);
        let named = inside.saturating_add(brief).saturating_add(strangers);
        let charged = recording.sessions().map(|session| session.charged_ns);
        let charged = charged.fold(0, u64::saturating_add);
        ledger.is_closed = charged > 0;
        let mut rows: Vec<Row> = spent.rows.into_iter().flatten().collect();
        for (reason, ns) in [(Reason::Brief, brief), (Reason::NotSampled, strangers)] {
            rows.push(Row {
                reason,
                process: None,
                thread: None,
                ns,
            });
        }
        if ledger.is_closed {
            let ends = lives.all.iter().any(|life| life.charged_ns.is_none());
            rows.push(Row {
                reason: if ends {
                    Reason::End
                } else {
                    Reason::NotSampled
                },
                process: None,
                thread: None,
                ns: charged.saturating_sub(named),
            });
        }
        rows.retain(|row| row.ns > 0);
        ledger.rows = rows;
        ledger
    }

    /// The sum of all rows, ns.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        sum(&self.rows)
    }

    /// The sum of the rows with that reason, ns.
    #[must_use]
    pub fn of_reason(&self, reason: Reason) -> u64 {
        let rows = self.rows.iter().filter(|row| row.reason == reason);
        rows.fold(0, |sum, row| sum.saturating_add(row.ns))
    }

    /// The sum of each reason that there is, in their order, ns.
    pub fn by_reason(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        const ALL: [Reason; 10] = [
            Reason::Sampled,
            Reason::Lost,
            Reason::BetweenSamples,
            Reason::BeforeArmed,
            Reason::SetUp,
            Reason::Exec,
            Reason::Threads,
            Reason::End,
            Reason::Brief,
            Reason::NotSampled,
        ];
        let sums = ALL
            .into_iter()
            .map(|reason| (reason, self.of_reason(reason)));
        sums.filter(|(_, ns)| *ns > 0)
    }
}

fn sum(rows: &[Row]) -> u64 {
    rows.iter().fold(0, |sum, row| sum.saturating_add(row.ns))
}

/// What the remainder of a process is.
fn end_reason(life: &Life, rows: &[Row]) -> Reason {
    if life.was_looked_at || !rows.is_empty() {
        Reason::End
    } else {
        Reason::NotSampled
    }
}
