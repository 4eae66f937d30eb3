//! What a program run knows of its context switches, whoever unwinds its stacks.
//!
//! Not here: the threads themselves and their absences ([`crate::off_cpu`]).

use super::super::Settings;
use super::{Known, Run};
use crate::clock::monotonic_ns;
use crate::interpreters::NativeStack;
use crate::off_cpu::{Look, Presence, Stack, Switches};
use crate::processes;
use crate::recording::records::{Chunk, Records};
use crate::unwind::{self, Spot};
use engine::wire::chunk::ChunkInfo;
use engine::wire::sample::{Frame, SampleHead};
use std::time::Duration;

/// How long the interpreters' frames of a thread may be read, at most: it is away meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

impl Run {
    /// Finds out by what number its own PID namespace knows it, while it is there to be asked.
    pub(in crate::copy) fn find_namespace(&mut self) {
        if self.switches.is_some() || self.is_beside() {
            self.inner_pid = processes::inner_number(self.pid, self.pid);
        }
    }

    /// Under what numbers its context switches are recorded; no thread's for 0.
    pub(super) fn owner_of_switches(&self, tid: i32) -> ChunkInfo {
        let owner = self.owner();
        let outer = tid.unsigned_abs();
        let inner = self.inner_pid.filter(|_| tid != 0);
        ChunkInfo {
            pid: self.inner_pid.unwrap_or(owner.pid),
            tid: inner.map_or(outer, |_| {
                processes::inner_number(self.pid, tid).unwrap_or(outer)
            }),
            ..owner
        }
    }

    /// Says that it took the place of another program run in the same process.
    pub(in crate::copy) fn replaces(&mut self, before: &Self) {
        self.parent_pid = before.parent_pid;
        self.bounds = before.switches_know.process;
    }

    /// The stack of a thread that is off the CPU, as far as is known, with what interpreters have
    /// on it; and where its native frames are.
    pub(in crate::copy) fn look(
        &mut self,
        tid: i32,
        head: SampleHead,
        frames: Vec<Frame>,
        spots: &[Spot],
    ) -> Look {
        let switches = self.switches.as_mut();
        let wants_name = switches.is_some_and(|switches| switches.is_own_name_due(tid));
        let (pid, tid) = (self.pid.unsigned_abs(), self.owner_of_switches(tid).tid);
        let native = NativeStack {
            frames: &frames,
            spots,
            stop: head.stop,
            copy: None,
            is_older: false,
            wants_name,
        };
        let mixed = (self.interpreters).look(&self.code, (pid, tid), native, PATIENCE);
        let lacks = mixed.as_ref().is_some_and(|mixed| mixed.lacks);
        let (frames, own_name) = match mixed {
            Some(mixed) => (mixed.frames, mixed.own_name),
            None => (frames, None),
        };
        Look {
            frames,
            head,
            lacks,
            own_name,
            taken_ns: monotonic_ns(),
        }
    }

    /// The stack of a thread as it was copied at a time, with what is known of its interpreters'
    /// frames; whether some are missing.
    pub(in crate::copy) fn look_back(
        &mut self,
        tid: i32,
        frames: Vec<Frame>,
        spots: &[Spot],
        copy: (u64, unwind::Stack<'_>),
    ) -> (Vec<Frame>, bool) {
        let lacks = self.code.python().is_some();
        let Some(layout) = self.code.v8() else {
            return (frames, lacks);
        };
        let native = frames.iter().zip(spots);
        let native = native.map(|(frame, spot)| (*frame, *spot));
        let code = (&self.code, layout);
        let of = (self.pid.unsigned_abs(), tid.unsigned_abs());
        match self.interpreters.look_back(code, of, native, copy) {
            Some(mixed) => (mixed.frames, lacks || mixed.lacks),
            None => (frames, true),
        }
    }

    /// A thread is about to go off its CPU, and stands there.
    pub(in crate::copy) fn leaves(&mut self, tid: i32, time_ns: u64, stack: Stack) {
        let is_new = |switches: &Switches| !switches.knows(tid);
        if self.switches.as_ref().is_some_and(is_new) {
            let owner = self.owner_of_switches(tid);
            if let Some(switches) = &mut self.switches {
                switches.begin(owner, tid, time_ns, Presence::running());
            }
        }
        if let Some(switches) = &mut self.switches {
            switches.leaves(tid, time_ns, stack);
        }
    }

    /// A thread that was found asleep sleeps there since then, as far as is known.
    pub(in crate::copy) fn asleep(&mut self, tid: i32, time_ns: u64, stack: Stack) {
        if let Some(switches) = &mut self.switches {
            switches.asleep(tid, time_ns, stack);
        }
    }

    /// It goes.
    pub(in crate::copy) fn out(&mut self, tid: i32, time_ns: u64, preempted: bool) {
        if let Some(switches) = &mut self.switches {
            switches.out(tid, time_ns, preempted);
        }
    }

    /// It is back. Gives whether its absence was recorded: what of it was after recording began.
    pub(in crate::copy) fn back(&mut self, tid: i32, time_ns: u64, begins_ns: u64) -> bool {
        let name = self.names.get(&tid).map_or(&[][..], Vec::as_slice);
        let switches = self.switches.as_mut();
        switches.is_some_and(|switches| switches.back(tid, time_ns, begins_ns, name))
    }

    /// Records of switches were lost, perhaps its own.
    pub(in crate::copy) fn doubt(&mut self) {
        if let Some(switches) = &mut self.switches {
            switches.doubt();
        }
    }

    /// Recording ends for threads that are off the CPU. Gives how many there were.
    pub(in crate::copy) fn stop_switches(&mut self, time_ns: u64, begins_ns: u64) -> u64 {
        let names = &self.names;
        let switches = self.switches.as_mut();
        switches.map_or(0, |switches| switches.stop(time_ns, begins_ns, names))
    }

    /// Hands over what there is of its context switches. Gives pid and key if this is the first of
    /// it, and how many absences were left out because their end was lost.
    pub(in crate::copy) fn emit_switches(
        &mut self,
        settings: &Settings,
        out: &mut Vec<Chunk>,
    ) -> (Option<(u32, u64)>, u64) {
        let Some(mut switches) = self.switches.take() else {
            return (None, 0);
        };
        let chunks = switches.take();
        let known = self.switches_know;
        if !chunks.is_empty() || (self.bounds && !known.process) {
            let mut records = Records::default();
            if !known.process {
                self.identify(settings, &mut records);
            }
            self.write_mapped(known.mapped, &mut records);
            self.write_described(known.described, &mut records);
            if !records.are_none() {
                let owner = ChunkInfo {
                    sequence: switches.number(),
                    ..self.owner_of_switches(0)
                };
                out.push(records.into_chunk(owner));
            }
            self.switches_know = Known {
                process: true,
                mapped: self.mapped.len(),
                described: self.interpreters.descriptions.count(),
            };
        }
        let first = !chunks.is_empty() && !known.process;
        out.extend(chunks);
        let unpaired = switches.take_unpaired();
        self.switches = Some(switches);
        let owner = (self.owner_of_switches(0).pid, self.key);
        (first.then_some(owner), unpaired)
    }
}
