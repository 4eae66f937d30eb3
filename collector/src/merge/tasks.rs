//! Who is who: the program runs that a perf.data file tells of, named as perf's PID namespace names
//! them, and which of them a recording is of, whose processes may have other numbers.
//!
//! A program run is known by where its code lies: the kernel places it differently for every one. A
//! fork's copy lies in the same places, and is told by its number, or by when it began. Threads of
//! a process that has other numbers are paired in the order of their beginnings.

use super::converter::Converter;
use crate::recording::{Process, ProcessId, Recording, ThreadId};
use engine::wire::process::Origin;
use perf_data::{PerfFile, What};
use std::cmp::Reverse;
use std::collections::HashMap;

/// A program run of the file may be noticed this much after the recording says that it began, ns.
const SLACK: u64 = 50_000_000;

/// Code that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) offset: u64,
    pub(super) build_id: Vec<u8>,
    pub(super) path: String,
}

/// A program run: a process from its start, fork or exec on.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// By fork or by exec; `None` if it ran before perf did.
    pub(super) origin: Option<Origin>,
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) from: u64,
    pub(super) maps: Vec<Mapped>,
    /// Threads with their names, and since when, in the order in which they began.
    pub(super) threads: Vec<(u32, String, u64)>,
}

/// All runs of a file, and who they are in the recording.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) runs: Vec<Run>,
    /// The runs of a pid, by time.
    of_pid: HashMap<u32, Vec<usize>>,
    processes: HashMap<usize, ProcessId>,
    /// Threads of the recording by run and tid of the file; several if the tid was used again.
    threads: HashMap<(usize, u32), Vec<(u64, ThreadId)>>,
}

impl Tasks {
    pub(super) fn new(file: &PerfFile, converter: &Converter, recording: &Recording) -> Self {
        let mut tasks = Self::default();
        let mut by_time: Vec<_> = file.records.iter().collect();
        by_time.sort_by_key(|record| record.time);
        for record in by_time {
            tasks.take(&record.what, converter.monotonic(record.time));
        }
        tasks.find_processes(recording);
        tasks.find_threads(recording);
        tasks
    }

    /// The run of a pid at a time.
    pub(super) fn run(&self, pid: u32, time_ns: u64) -> Option<usize> {
        let all = self.of_pid.get(&pid)?;
        let behind = all.partition_point(|run| self.runs[*run].from <= time_ns);
        all.get(behind.saturating_sub(1)).copied()
    }

    /// The recording's process.
    pub(super) fn process(&self, run: usize) -> Option<ProcessId> {
        self.processes.get(&run).copied()
    }

    /// The recording's thread.
    pub(super) fn thread(&self, run: usize, tid: u32, time_ns: u64) -> Option<ThreadId> {
        let all = self.threads.get(&(run, tid))?;
        let behind = all.partition_point(|(from, _)| *from <= time_ns);
        all.get(behind.saturating_sub(1)).map(|(_, id)| *id)
    }

    fn current(&mut self, pid: u32, time_ns: u64) -> &mut Run {
        let last = self.of_pid.get(&pid).and_then(|all| all.last().copied());
        let index = last.unwrap_or_else(|| {
            self.begin(Run {
                pid,
                from: time_ns,
                ..Run::default()
            })
        });
        &mut self.runs[index]
    }

    fn begin(&mut self, run: Run) -> usize {
        let index = self.runs.len();
        self.of_pid.entry(run.pid).or_default().push(index);
        self.runs.push(run);
        index
    }

    fn take(&mut self, what: &What, time_ns: u64) {
        match what {
            What::Map {
                pid,
                start,
                length,
                offset,
                build_id,
                path,
            } => self.current(*pid, time_ns).maps.push(Mapped {
                start: *start,
                length: *length,
                offset: *offset,
                build_id: build_id.clone(),
                path: path.clone(),
            }),
            What::Name {
                pid,
                tid,
                name,
                exec,
            } => {
                // What perf tells of a program that runs when it starts is dated 0.
                if *exec && time_ns > 0 {
                    self.begin(Run {
                        origin: Some(Origin::Exec),
                        pid: *pid,
                        from: time_ns,
                        ..Run::default()
                    });
                }
                let run = self.current(*pid, time_ns);
                if pid == tid {
                    run.name.clone_from(name);
                }
                run.thread(*tid, time_ns).clone_from(name);
            }
            What::Fork {
                pid,
                tid,
                parent_pid,
            } => {
                if pid != parent_pid && time_ns > 0 {
                    let parent = self.current(*parent_pid, time_ns);
                    let child = Run {
                        origin: Some(Origin::Fork),
                        pid: *pid,
                        from: time_ns,
                        threads: Vec::new(),
                        ..parent.clone()
                    };
                    self.begin(child);
                }
                self.current(*pid, time_ns).thread(*tid, time_ns);
            }
            What::Exit { .. } | What::Sample { .. } | What::Deferred { .. } => {}
        }
    }

    fn find_processes(&mut self, recording: &Recording) {
        for (index, process) in recording.processes.iter().enumerate() {
            let id = ProcessId::next_of(index);
            let free = (0..self.runs.len()).filter(|run| !self.processes.contains_key(run));
            let rank = |run: &usize| {
                let run = &self.runs[*run];
                let alike = likeness(recording, id, run);
                let same = is_number_of(process, run.pid);
                let known = alike > 0 || (same && run.maps.is_empty());
                let late = run.from.saturating_sub(process.time_ns);
                (known && late <= SLACK).then_some((
                    same && alike > 0,
                    run.origin == Some(process.origin),
                    alike,
                    // The last that had begun; one that begins later than the process that it is
                    // says that clocks differ.
                    Reverse(late),
                    run.from,
                ))
            };
            let best = free.filter_map(|run| Some((rank(&run)?, run))).max();
            if let Some((_, run)) = best {
                self.processes.insert(run, id);
            }
        }
    }

    fn find_threads(&mut self, recording: &Recording) {
        for (run, process) in self.processes.clone() {
            let (pid, number) = (self.runs[run].pid, recording.processes[process.index()].pid);
            let ours = recording.threads.iter().enumerate();
            let ours = ours.filter(|(_, thread)| thread.process == process);
            let mut ours: Vec<_> = ours
                .map(|(index, thread)| (thread.tid, thread.key, ThreadId::next_of(index)))
                .collect();
            if pid != number {
                let leader = ours.iter().filter(|(tid, ..)| *tid == number);
                let mut paired: Vec<_> = leader.map(|(_, key, id)| (pid, *key, *id)).collect();
                ours.retain(|(tid, ..)| *tid != number);
                paired.extend(self.pair(run, ours));
                ours = paired;
            }
            for (tid, key, id) in ours {
                let all = self.threads.entry((run, tid)).or_default();
                all.push((key, id));
                all.sort_unstable();
            }
        }
    }

    /// Gives threads their numbers in the file: both were numbered in the order in which they
    /// began.
    fn pair(&self, run: usize, mut ours: Vec<(u32, u64, ThreadId)>) -> Vec<(u32, u64, ThreadId)> {
        let run = &self.runs[run];
        let theirs = run.threads.iter().filter(|(tid, ..)| *tid != run.pid);
        let mut theirs: Vec<_> = theirs.map(|(tid, _, from)| (*tid, *from)).collect();
        theirs.sort_unstable();
        ours.sort_unstable_by_key(|(tid, key, _)| (*tid, *key));
        let mut paired = Vec::new();
        let mut next = 0;
        for (index, (_, key, id)) in ours.iter().enumerate() {
            // As many must be left as there are still to be paired; what had begun too late is
            // another one.
            let spare = theirs.len().saturating_sub(next + (ours.len() - index));
            let skip = (0..=spare).find(|skip| {
                let behind = theirs.get(next + skip + 1);
                behind.is_none_or(|(_, from)| *from > *key) || spare == 0
            });
            next += skip.unwrap_or(0);
            let Some((tid, _)) = theirs.get(next) else {
                break;
            };
            paired.push((*tid, *key, *id));
            next += 1;
        }
        paired
    }
}

impl Run {
    fn thread(&mut self, tid: u32, time_ns: u64) -> &mut String {
        let known = self.threads.iter().position(|(known, ..)| *known == tid);
        let index = known.unwrap_or_else(|| {
            self.threads.push((tid, String::new(), time_ns));
            self.threads.len() - 1
        });
        &mut self.threads[index].1
    }
}

fn is_number_of(process: &Process, pid: u32) -> bool {
    process.pid == pid || process.ns_pids.contains(&pid)
}

/// How many modules of a process lie where the run has the same file.
fn likeness(recording: &Recording, process: ProcessId, run: &Run) -> usize {
    let name = |path: &str| {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        path.rsplit('/').next().map(str::to_owned)
    };
    let mut owner = process;
    // A fork that recorded no modules of its own has its parent's.
    for _ in 0..16 {
        let process = &recording.processes[owner.index()];
        match process.parent {
            Some(parent) if process.map.is_empty() => owner = parent,
            _ => break,
        }
    }
    let modules = recording
        .modules
        .iter()
        .filter(|module| module.process == owner);
    let alike = modules.filter(|module| {
        run.maps.iter().any(|map| {
            let inside = (module.start.0..module.end.0).contains(&map.start);
            // The vDSO is everybody's, but nowhere the same.
            inside && name(&module.path) == name(&map.path)
        })
    });
    alike.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::read_bytes;
    use crate::recording::example::{Chunk, recording};
    use engine::wire::module::Module;
    use engine::wire::process::Process as WireProcess;
    use engine::wire::record::RecordKind;
    use perf_data::Record;

    const MS: u64 = 1_000_000;

    fn process(pid: u32, origin: Origin, time_ns: u64) -> Chunk {
        let process = WireProcess {
            origin,
            time_ns,
            ..WireProcess::default()
        };
        let module = Module {
            time_ns,
            start: 0x1000,
            end: 0x2000,
            bias: 0x1000,
            build_id: b"",
            path: b"/bin/program",
            ours: false,
        };
        let chunk = Chunk::new(pid, pid, u64::from(pid));
        let chunk = chunk.record(RecordKind::Process, |out| process.encode(out));
        chunk.record(RecordKind::Module, |out| module.encode(out))
    }

    /// A program begins, and forks a child at once, in a PID namespace of its own: which is which?
    #[test]
    fn a_child_that_comes_at_once_is_not_taken_for_its_parent() {
        let told = [
            (90, 1010, None),
            (103, 1011, Some(1010)), // within the slack of either
            (104, 1012, Some(1010)),
        ];
        let mut file = PerfFile::default();
        for (time, pid, parent) in told {
            let exec = What::Name {
                pid,
                tid: pid,
                name: "program".to_owned(),
                exec: true,
            };
            let what = parent.map_or(exec, |parent_pid| What::Fork {
                pid,
                tid: pid,
                parent_pid,
            });
            let map = What::Map {
                pid,
                start: 0x1000,
                length: 0x1000,
                offset: 0,
                build_id: Vec::new(),
                path: "/bin/program".to_owned(),
            };
            let time = time * MS;
            for what in std::iter::once(what).chain(parent.is_none().then_some(map)) {
                file.records.push(Record {
                    offset: 0,
                    time,
                    what,
                });
            }
        }
        let chunks = [
            process(10, Origin::Exec, 100 * MS),
            process(11, Origin::Fork, 103 * MS + 1),
            process(12, Origin::Fork, 105 * MS),
        ];
        let read = read_bytes("three.rsu", recording(&chunks)).unwrap();
        let tasks = Tasks::new(&file, &Converter::Same, &read);
        for (ours, theirs) in [(10, 1010), (11, 1011), (12, 1012)] {
            let run = tasks.run(theirs, 200 * MS).unwrap();
            let process = tasks.process(run).expect("a process");
            assert_eq!(read.processes[process.index()].pid, ours, "{theirs}");
        }
    }
}
