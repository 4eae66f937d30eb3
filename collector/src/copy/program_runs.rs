//! The processes that are sampled, as the kernel's records tell of them: who began, what each runs
//! and has mapped, and its samples.
//!
//! A program that loads the preload library unwinds itself: from then on the copies of its stacks
//! are passed over, until it replaces its program. What came before in that program run is held
//! back until it is known, and dropped with it.
//!
//! Not here: one program run ([`super::run`]), where records come from ([`super::reader`]).

use super::beside::Beside;
use super::copied_thread::{Thread, Waiting};
use super::cpu_clock::Clock;
use super::notes::{self, Counts};
use super::run::{Nature, Run};
use super::{Outcome, Settings};
use crate::cpu_rings::{Adopted, Copied, Task, TaskRecord, What};
use crate::off_cpu::{self, Presence};
use crate::processes::{self, Found};
use crate::recording::records::Chunk;
use crate::remote::{MOST, unwind_asleep};
use crate::remote_memory::RemoteMemory;
use crate::unwind::images::Images;
use crate::unwind::registers::Cache;
use crate::unwind::{Spot, Stack, Walked, walk};
use engine::wire::sample::{Frame, SampleHead, StopReason, flags};
use engine::wire::thread::ThreadEndReason;
use std::collections::{HashMap, HashSet};

/// A thread that sleeps: where it entered the kernel, and its stack.
pub(super) struct Asleep {
    pub(super) time_ns: u64,
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) stack: Vec<u8>,
    /// Bytes that could have been read.
    pub(super) room: usize,
}

/// All processes.
pub(super) struct ProgramRuns {
    settings: Settings,
    /// Who unwinds itself meanwhile.
    beside: Beside,
    /// Of processes that live.
    runs: HashMap<i32, Run>,
    images: Images,
    cache: Cache,
    memory: Vec<Frame>,
    cpu_time: Counts,
    switches: Counts,
    /// Absences recorded.
    absences: u64,
    /// Absences whose end was lost.
    unpaired: u64,
    /// Records of switches, and of what else happened, that found no room.
    lost_switches: u64,
    /// Records of programs that began, likewise.
    unnoticed: u64,
    /// Threads that have gone off the CPU and, as far as is known, are not back: since when, and
    /// where those are that were looked at.
    away: HashMap<Task, u64>,
    ahead: HashMap<(Task, u64), off_cpu::Stack>,
    /// Whether a program with an interpreter has context switches.
    wanted_soon: bool,
    out: Vec<Chunk>,
}

impl ProgramRuns {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            runs: HashMap::new(),
            images: Images::default(),
            cache: Cache::new(),
            memory: vec![Frame::default(); settings.max_depth],
            cpu_time: Counts::default(),
            switches: Counts::default(),
            absences: 0,
            unpaired: 0,
            lost_switches: 0,
            unnoticed: 0,
            away: HashMap::new(),
            ahead: HashMap::new(),
            wanted_soon: false,
            out: Vec::new(),
            settings,
            beside: Beside::nobody(),
        }
    }

    /// With those who unwind themselves meanwhile.
    pub(super) fn with(self, beside: Beside) -> Self {
        Self { beside, ..self }
    }

    /// A process that is about to call exec, with the CPU time that it has used, ns.
    pub(super) fn expect(&mut self, pid: i32, time_ns: u64, cpu_ns: u64) {
        let mut run = Run::new(pid, time_ns, Nature::OwnUnwinding, &self.settings);
        run.begin_thread(
            pid,
            time_ns,
            self.settings.period_ns,
            cpu_ns,
            Presence::running(),
        );
        self.runs.insert(pid, run);
    }

    /// Looks at a process that runs and at those of its threads, which are copied from now on; not
    /// at one that has ended.
    pub(super) fn find(&mut self, pid: i32, tids: &[i32], time_ns: u64) {
        if tids.is_empty() {
            return;
        }
        let adopted = Adopted {
            found: processes::find(pid, tids),
            kernel_refused: None,
            unwatched: 0,
            has_library: true,
        };
        self.adopt(pid, time_ns, adopted);
    }

    /// A process that runs already, and is copied from now on.
    pub(super) fn adopt(&mut self, pid: i32, time_ns: u64, adopted: Adopted) {
        if let Some(refused) = adopted.kernel_refused {
            self.settings.kernel = false;
            self.settings.refused = refused;
        }
        let settings = &self.settings;
        let run = self.runs.entry(pid).or_insert_with(|| {
            let mut run = Run::new(pid, time_ns, Nature::Copied, settings);
            run.find_namespace();
            run
        });
        run.adopt(&mut self.images, time_ns, adopted, settings);
    }

    /// A thread of it was found asleep, with that much of its stack.
    pub(super) fn asleep(&mut self, pid: i32, tid: i32, found: &Asleep) {
        let Some(run) = self.runs.get_mut(&pid) else {
            return;
        };
        let copy = Stack {
            sp: found.sp,
            bytes: &found.stack,
            cut: found.stack.len() == found.room,
        };
        let (walked, _) = unwind_asleep(&run.code, found.ip, copy);
        let head = SampleHead {
            time_ns: found.time_ns,
            sp: found.sp,
            stop: walked.stop,
            elided: walked.elided.0,
            elided_at: walked.elided.1,
            ..SampleHead::default()
        };
        let stack = off_cpu::Stack {
            frames: walked.frames,
            kernel: Vec::new(), // only its names are told
            head,
            look: None,
            has_interpreter: run.code.has_interpreter(),
        };
        run.asleep(tid, found.time_ns, stack);
    }

    /// A process that is not profiled, and why.
    fn unprofiled(&mut self, time_ns: u64, pid: i32, found: Found, why: &str) {
        let settings = &self.settings;
        let run = Run::new(pid, time_ns, Nature::OwnUnwinding, settings);
        let chunk = run.unprofiled(time_ns, found.identity, why, settings);
        self.out.push(chunk);
    }

    /// Looks at threads with interpreters that have gone and, as far as these records tell, are not
    /// back: before it is their turn to be taken in, for then they may be. Not in processes whose
    /// code these records change.
    pub(super) fn look_ahead(&mut self, records: &[TaskRecord]) {
        let (mut away, mut changed) = (HashMap::new(), HashSet::new());
        for TaskRecord {
            time_ns,
            task,
            what,
        } in records
        {
            match what {
                What::Leaves(copied) => drop(away.insert(*task, (*time_ns, copied))),
                What::Back => drop(away.remove(task)),
                What::Mapped(_) | What::Exec(_) => drop(changed.insert(task.pid)),
                _ => {}
            }
        }
        self.away = away
            .iter()
            .map(|(task, (since_ns, _))| (*task, *since_ns))
            .collect();
        for (task, (time_ns, copied)) in away {
            let has_some = self
                .runs
                .get(&task.pid)
                .is_some_and(|run| run.code.has_interpreter());
            if !has_some || changed.contains(&task.pid) || self.ahead.contains_key(&(task, time_ns))
            {
                continue;
            }
            if let Some(stack) = self.stack(time_ns, task, copied) {
                self.ahead.insert((task, time_ns), stack);
            }
        }
    }

    /// Whether threads that are away are to be seen soon.
    pub(super) const fn wants_soon(&self) -> bool {
        self.wanted_soon
    }

    /// Takes in what happened; in order of time.
    pub(super) fn take_in(&mut self, record: TaskRecord) {
        let TaskRecord {
            time_ns,
            task,
            what,
        } = record;
        match what {
            What::Sample(copied) => self.sample(time_ns, task, &copied),
            What::Leaves(copied) => self.leaves(time_ns, task, &copied),
            What::Out(preempted) => {
                if let Some(run) = self.runs.get_mut(&task.pid) {
                    run.out(task.tid, time_ns, preempted);
                }
            }
            What::Back => {
                let begins_ns = self.beside.begins_ns();
                if let Some(run) = self.runs.get_mut(&task.pid) {
                    self.absences += u64::from(run.back(task.tid, time_ns, begins_ns));
                }
            }
            What::Mapped(mapping) => {
                if let Some(run) = self.runs.get_mut(&task.pid) {
                    run.map(&mut self.images, time_ns, &mapping);
                }
            }
            What::Exec(name) => self.exec(time_ns, task, name),
            What::Adopted(adopted) => self.adopt(task.pid, time_ns, *adopted),
            What::Unprofiled(about) => self.unprofiled(time_ns, task.pid, about.0, &about.1),
            // Of interest where the rings are read.
            What::Began(_) => {}
            What::BeginningsLost(count) => {
                self.unnoticed = self.unnoticed.saturating_add(count);
            }
            What::Name(name) => {
                if let Some(run) = self.runs.get_mut(&task.pid) {
                    run.rename(task.tid, time_ns, name, &self.settings);
                }
            }
            What::Fork(parent) => self.fork(time_ns, task, parent),
            What::Exit => self.exit(time_ns, task),
            What::Lost(_) if self.beside.is_early(time_ns) => {}
            What::Lost(count) => self.lost(task, count),
            What::StacksLost(count) => {
                self.switches.lost = self.switches.lost.saturating_add(count);
            }
            What::SwitchesLost(count) => {
                self.lost_switches = self.lost_switches.saturating_add(count);
                self.runs.values_mut().for_each(Run::doubt);
            }
        }
    }

    fn exec(&mut self, time_ns: u64, task: Task, name: Vec<u8>) {
        let nature = match self.settings.running {
            true => Nature::Copied,
            false => Nature::Unknown(0),
        };
        let mut run = Run::new(task.pid, time_ns, nature, &self.settings);
        let (mut cpu_ns, mut base_ns) = (0, 0);
        if let Some(mut before) = self.runs.remove(&task.pid) {
            let caller = before.caller_of_exec(task.tid);
            cpu_ns = before.cpu_ns(caller);
            base_ns = before.base_ns(caller);
            before.end(time_ns, ThreadEndReason::Exec);
            self.emit(&mut before);
            run.replaces(&before);
        }
        run.find_namespace();
        run.begin_thread(
            task.pid,
            time_ns,
            self.settings.period_ns,
            cpu_ns,
            Presence::running(),
        );
        run.count_from(task.pid, base_ns);
        run.name(task.pid, name);
        self.runs.insert(task.pid, run);
    }

    fn fork(&mut self, time_ns: u64, task: Task, parent: Task) {
        let period_ns = self.settings.period_ns;
        if task.pid == parent.pid {
            if let Some(run) = self.runs.get_mut(&task.pid) {
                run.begin_thread(task.tid, time_ns, period_ns, 0, Presence::made(time_ns));
                run.name(task.tid, run.name_of(parent.tid));
            }
        } else if let Some(run) = self.runs.get(&parent.pid) {
            let mut child = run.forked(task.pid, time_ns, &self.settings);
            child.find_namespace();
            child.begin_thread(task.tid, time_ns, period_ns, 0, Presence::made(time_ns));
            child.name(task.tid, run.name_of(parent.tid));
            if self.settings.beside && child.may_have_library() {
                self.beside.forked(task.pid, parent.pid, time_ns);
            }
            self.runs.insert(task.pid, child);
        }
    }

    fn exit(&mut self, time_ns: u64, task: Task) {
        let Some(run) = self.runs.get_mut(&task.pid) else {
            return;
        };
        run.end_thread(task.tid, time_ns, ThreadEndReason::ThreadExit);
        if run.is_over()
            && let Some(mut run) = self.runs.remove(&task.pid)
        {
            self.beside.is_over(task.pid);
            run.decide();
            self.emit(&mut run);
        }
    }

    fn lost(&mut self, task: Task, count: u64) {
        self.cpu_time.lost = self.cpu_time.lost.saturating_add(count);
        let run = self.runs.get_mut(&task.pid);
        if let Some(thread) = run.and_then(|run| run.thread(task.tid)) {
            thread.lose(count);
        }
    }

    fn sample(&mut self, time_ns: u64, task: Task, copied: &Copied) {
        let own = std::process::id().cast_signed();
        if self.settings.everybody && task.pid != own && !self.runs.contains_key(&task.pid) {
            // The record of its beginning was lost.
            self.find(task.pid, &processes::threads(task.pid), time_ns);
        }
        let Some(run) = self.runs.get_mut(&task.pid) else {
            return;
        };
        if run.passes_over(task.tid, self.settings.period_ns) {
            return;
        }
        if is_early(run, &self.settings, &self.beside, time_ns) {
            run.thread(task.tid).into_iter().for_each(Thread::leave_out);
            return;
        }
        let is_own = run.may_have_library() && self.beside.stand_for(time_ns, task, copied);
        let (head, frames) = match is_own {
            true => {
                self.cpu_time.dropped(copied.stack.len());
                let head = SampleHead {
                    time_ns,
                    ..SampleHead::default()
                };
                (head, Vec::new())
            }
            false => {
                let has_interpreter = run.code.has_interpreter();
                let (mut head, mut frames, spots) =
                    self.unwound(time_ns, task.pid, copied, &copied.stack);
                let mut is_lacking = false;
                if has_interpreter && let Some(run) = self.runs.get_mut(&task.pid) {
                    let stack = (time_ns, stack_of(copied, &copied.stack));
                    (frames, is_lacking) = run.look_back(task.tid, frames, &spots, stack);
                }
                if is_lacking {
                    head.flags |= flags::LANGUAGES_UNREAD;
                }
                let cut = head.stop == StopReason::CopyEnded;
                self.cpu_time.copied(copied.stack.len(), cut);
                (head, frames)
            }
        };
        let sample = Waiting {
            head: SampleHead {
                trigger: self.settings.trigger(),
                ..head
            },
            frames,
            kernel: copied.kernel.clone(),
            is_own,
        };
        if let Some(run) = self.runs.get_mut(&task.pid) {
            run.push(task.tid, sample, &self.settings);
        }
    }

    fn leaves(&mut self, time_ns: u64, task: Task, copied: &Copied) {
        let ahead = self.ahead.remove(&(task, time_ns));
        let stack = ahead.or_else(|| self.stack(time_ns, task, copied));
        let (Some(stack), Some(run)) = (stack, self.runs.get_mut(&task.pid)) else {
            return;
        };
        let cut = stack.head.stop == StopReason::CopyEnded;
        self.switches.copied(copied.stack.len(), cut);
        self.wanted_soon |= stack.has_interpreter;
        run.leaves(task.tid, time_ns, stack);
    }

    /// Where a thread is that goes off its CPU.
    fn stack(&mut self, time_ns: u64, task: Task, copied: &Copied) -> Option<off_cpu::Stack> {
        let has_interpreter = self.runs.get(&task.pid)?.code.has_interpreter();
        let (head, frames, spots) = self.unwound(time_ns, task.pid, copied, &copied.stack);
        let is_away = has_interpreter && self.away.get(&task) == Some(&time_ns);
        let look = is_away.then(|| {
            // What was not copied of it is still there, too.
            let rest = (copied.user).filter(|_| head.stop == StopReason::CopyEnded);
            let rest =
                rest.and_then(|(_, sp, _)| RemoteMemory(task.pid.unsigned_abs()).stack(sp, MOST));
            let (head, frames, spots) = match rest {
                Some(bytes) => self.unwound(time_ns, task.pid, copied, &bytes),
                None => (head, frames.clone(), spots),
            };
            let run = self.runs.get_mut(&task.pid)?;
            Some(run.look(task.tid, head, frames, &spots))
        });
        Some(off_cpu::Stack {
            frames,
            kernel: copied.kernel.clone(),
            head,
            look: look.flatten(),
            has_interpreter,
        })
    }

    /// Unwinds a stack of a process, of which so much is known: what is to be said of it, its
    /// frames, and where they are.
    fn unwound(
        &mut self,
        time_ns: u64,
        pid: i32,
        copied: &Copied,
        bytes: &[u8],
    ) -> (SampleHead, Vec<Frame>, Vec<Spot>) {
        let head = SampleHead {
            time_ns,
            stop: StopReason::Abandoned,
            ..SampleHead::default()
        };
        let (Some((pc, sp, registers)), Some(run)) = (copied.user, self.runs.get(&pid)) else {
            return (head, Vec::new(), Vec::new());
        };
        let stack = stack_of(copied, bytes);
        let memory = &mut self.memory;
        let walked = walk(&run.code, &mut self.cache, pc, registers, stack, memory);
        let Walked { depth, stop, spots } = walked;
        let waits = copied.waits_on.is_some_and(|word| run.code.is_gil(word));
        let head = SampleHead {
            flags: match waits {
                true => flags::WAITS_FOR_INTERPRETER_LOCK,
                false => 0,
            },
            stop,
            sp,
            elided: depth.elided,
            elided_at: depth.elided_at,
            ..head
        };
        let frames = memory.get(..depth.kept).unwrap_or_default().to_vec();
        (head, frames, spots)
    }

    /// After a look at the rings: gives samples their weight. `close`: chunks are closed too, so
    /// that they go into the recording.
    pub(super) fn settle(&mut self, clocks: &[Clock], close: bool) {
        for clock in clocks {
            if let Some(run) = self.runs.get_mut(&clock.task.pid) {
                match is_early(run, &self.settings, &self.beside, clock.now_ns) {
                    true => run.count_from(clock.task.tid, clock.cpu_ns),
                    false => run.observe(clock),
                }
            }
        }
        if !close {
            return;
        }
        for (pid, mut run) in std::mem::take(&mut self.runs) {
            run.close_chunks();
            self.emit(&mut run);
            self.runs.insert(pid, run);
        }
    }

    /// The end: closes every account.
    pub(super) fn finish(&mut self, time_ns: u64) {
        let begins_ns = self.beside.begins_ns();
        for (_, mut run) in std::mem::take(&mut self.runs) {
            run.decide();
            self.absences += run.stop_switches(time_ns, begins_ns);
            run.end(time_ns, ThreadEndReason::Stopped);
            self.emit(&mut run);
        }
        let settings = &self.settings;
        let copies = notes::of_cpu_time(&self.cpu_time, settings, time_ns);
        let pairs = notes::Pairs {
            absences: self.absences,
            unpaired: self.unpaired,
            lost: self.lost_switches,
        };
        let switches = notes::of_switches(&self.switches, &pairs, settings, time_ns);
        self.out.extend(copies.into_iter().chain(switches));
    }

    /// Hands over what is ready of a program run.
    fn emit(&mut self, run: &mut Run) {
        if let Some(owner) = run.emit(&self.settings, &mut self.out) {
            self.cpu_time.recorded(owner);
        }
        let (owner, unpaired) = run.emit_switches(&self.settings, &mut self.out);
        self.unpaired += unpaired;
        if let Some(owner) = owner {
            self.switches.recorded(owner);
        }
    }

    /// Chunks for the recording.
    pub(super) fn chunks(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.out)
    }

    /// What came of it.
    pub(super) fn outcome(&self) -> Outcome {
        Outcome {
            runs: match self.settings.running {
                true => self.cpu_time.runs.max(self.switches.runs),
                // Who unwinds itself counts itself.
                false => self.cpu_time.runs,
            },
            unnoticed: self.unnoticed,
        }
    }
}

/// A stack of which so much is known.
fn stack_of<'a>(copied: &Copied, bytes: &'a [u8]) -> Stack<'a> {
    Stack {
        sp: copied.user.map_or(0, |(_, sp, _)| sp),
        bytes,
        cut: bytes.len() == copied.room || bytes.len() == MOST,
    }
}

/// Whether that was before recording began, of a program that was there or is one of everybody's.
fn is_early(run: &Run, settings: &Settings, beside: &Beside, time_ns: u64) -> bool {
    (run.is_adopted() || settings.everybody) && beside.is_early(time_ns)
}

#[cfg(test)]
#[path = "program_runs_tests.rs"]
mod tests;
