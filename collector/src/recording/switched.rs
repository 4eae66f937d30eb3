//! Chunks about time off the CPU ([`engine::wire::chunk::FROM_SWITCHES`]): whose they are among the
//! processes and threads that have said something of themselves.
//!
//! The kernel's records name a program run by pid and the time of exec or fork, a thread by tid and
//! the time of its making. The library gets to know of both a little later, and takes its own keys
//! from then: it is the first of that number to begin within the life of the other. Program runs
//! and threads that no library was in stand for themselves.

use super::facts::Facts;
use super::scan::Place;
use engine::wire::chunk::ChunkInfo;
use engine::wire::record::{RawRecord, RecordKind};
use std::collections::BTreeSet;

/// The chunks, until all others are known.
#[derive(Debug, Default)]
pub(super) struct Switched {
    /// With the number of their file.
    chunks: Vec<(usize, Place)>,
}

/// A chunk, and whose it is.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) file: usize,
    pub(super) place: Place,
    /// Its header, if it were of the process and thread that have said something of themselves.
    pub(super) owner: ChunkInfo,
    /// Whether there are such.
    process_known: bool,
    thread_known: bool,
}

impl Switched {
    /// Puts a chunk aside.
    pub(super) fn put(&mut self, file: usize, place: Place) {
        self.chunks.push((file, place));
    }

    /// Finds the owners, now that all other chunks are known.
    pub(super) fn adopt(self, facts: &Facts) -> Vec<Adopted> {
        let processes: BTreeSet<(u32, u64)> = facts.process_names().collect();
        let threads: BTreeSet<(u32, u64, u32, u64)> = facts.thread_names().collect();
        let infos = || self.chunks.iter().map(|(_, place)| &place.info);
        let own_processes: BTreeSet<_> = infos().map(|info| (info.pid, info.process_key)).collect();
        let own_threads: BTreeSet<_> = infos()
            .map(|info| (info.pid, info.process_key, info.tid, info.thread_key))
            .collect();
        let adopt = |(file, place): &(usize, Place)| {
            let info = &place.info;
            let (pid, tid) = (info.pid, info.tid);
            let until =
                first(own_processes.range((pid, behind(info.process_key))..=(pid, u64::MAX)));
            let until = until.map_or(u64::MAX, |(_, key)| key);
            let process = first(processes.range((pid, info.process_key)..=(pid, u64::MAX)));
            let process = process.map(|(_, key)| key).filter(|key| *key < until);
            let thread = process.and_then(|process| {
                let run = info.process_key;
                let later = (pid, run, tid, behind(info.thread_key))..=(pid, run, tid, u64::MAX);
                let until = first(own_threads.range(later)).map_or(u64::MAX, |thread| thread.3);
                let ones = (pid, process, tid, info.thread_key)..=(pid, process, tid, u64::MAX);
                let thread = first(threads.range(ones)).map(|thread| thread.3);
                thread.filter(|key| *key < until)
            });
            Adopted {
                file: *file,
                place: *place,
                owner: ChunkInfo {
                    process_key: process.unwrap_or(info.process_key),
                    thread_key: thread.unwrap_or(info.thread_key),
                    ..*info
                },
                process_known: process.is_some(),
                thread_known: thread.is_some(),
            }
        };
        self.chunks.iter().map(adopt).collect()
    }
}

const fn behind(key: u64) -> u64 {
    key.saturating_add(1)
}

fn first<'a, T: Copy + 'a>(mut range: impl Iterator<Item = &'a T>) -> Option<T> {
    range.next().copied()
}

impl Adopted {
    /// Whether a record says something that is not known better already; `armed`: the thread said
    /// how it was sampled.
    pub(super) fn tells(&self, record: &RawRecord<'_>, armed: bool) -> bool {
        match RecordKind::from_number(record.kind) {
            Some(RecordKind::Process) => !self.process_known,
            Some(RecordKind::Thread) => !self.thread_known || !armed,
            Some(RecordKind::ThreadEnd) => !self.thread_known,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::{Chunk, absences, head, recording};
    use super::super::model::Recording;
    use crate::correlate::read_bytes;
    use engine::wire::chunk::FROM_SWITCHES;
    use engine::wire::module::Module;
    use engine::wire::process::Process;
    use engine::wire::record::RecordKind;
    use engine::wire::source::OFF_CPU;
    use engine::wire::thread::Thread;

    fn read(chunks: &[Chunk]) -> Recording {
        let found = read_bytes("x.rsu", recording(chunks)).unwrap();
        assert_eq!(found.damage_count(), 0);
        found
    }

    /// Pid, its key, tid, its key, time and value of each absence.
    fn absent(found: &Recording) -> Vec<(u32, u64, u32, u64, u64, u64)> {
        let absences = found.samples.iter().filter(|s| s.event == OFF_CPU);
        let line = |sample: &super::super::RawSample| {
            let thread = &found.threads[sample.thread.index()];
            let process = &found.processes[thread.process.index()];
            let (time_ns, value) = (sample.time_ns, sample.value);
            (
                process.pid,
                process.key,
                thread.tid,
                thread.key,
                time_ns,
                value,
            )
        };
        absences.map(line).collect()
    }

    fn told(chunk: Chunk, name: &[u8]) -> Chunk {
        let process = Process {
            command: name,
            ..Process::default()
        };
        let thread = Thread {
            time_ns: 1,
            name,
            ..Thread::default()
        };
        let chunk = chunk.record(RecordKind::Process, |out| process.encode(out));
        chunk.record(RecordKind::Thread, |out| thread.encode(out))
    }

    #[test]
    fn absences_are_those_of_the_threads_that_speak_for_themselves() {
        // The process says that it began at 42,000, and its threads soon after; the kernel saw that
        // a little earlier.
        let own = told(Chunk::new(42, 42, 0), b"own\0").sample(head(43_000, 5), &[0x30]);
        let other = Chunk::new(42, 44, 1).sample(head(44_500, 2), &[0x30]);
        let seen = told(
            absences((42, 41_900), (42, 41_900), 0, &[(42_500, 70), (42_900, 7)]),
            b"seen\0",
        );
        let more = absences((42, 41_900), (44, 43_990), 1, &[(44_100, 9)]);
        let found = read(&[seen, own, more, other]);
        assert_eq!(
            absent(&found),
            [
                (42, 42_000, 42, 42_001, 42_500, 70),
                (42, 42_000, 42, 42_001, 42_900, 7),
                (42, 42_000, 44, 44_001, 44_100, 9),
            ]
        );
        assert_eq!((found.processes.len(), found.threads.len()), (1, 2));
        assert_eq!(found.processes[0].command, ["own"]);
        assert_eq!(found.threads[0].name, "own\0");
        let weight: u64 = found.samples.iter().map(|s| s.weight).sum();
        assert_eq!(weight, 7, "absences weigh no CPU time");
    }

    #[test]
    fn who_says_nothing_stands_for_itself() {
        let seen = told(absences((42, 100), (42, 100), 0, &[(500, 70)]), b"seen\0");
        // In the same process later: another program, which speaks.
        let bound = Chunk::new(42, 0, FROM_SWITCHES | 1);
        let mut bound = bound.record(RecordKind::Process, |out| Process::default().encode(out));
        bound.info.process_key = 41_000;
        bound.info.thread_key = 0;
        let own = Chunk::new(42, 42, 0).sample(head(43_000, 5), &[0x30]);
        let found = read(&[seen, bound, own]);
        assert_eq!(absent(&found), [(42, 100, 42, 100, 500, 70)]);
        assert_eq!(found.processes.len(), 2);
        assert_eq!(found.threads.len(), 2);
        let seen = found.processes.iter().find(|p| p.key == 100).unwrap();
        assert_eq!(seen.command, ["seen"]);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_thread() {
        let chunk = |key, sequence| {
            let mut chunk = Chunk::new(42, 44, sequence).sample(head(key + 5, 1), &[0x30]);
            chunk.info.thread_key = key;
            chunk
        };
        let seen =
            |key, number, time_ns| absences((42, 41_900), (44, key), number, &[(time_ns, 1)]);
        // The second of three never had a chunk of its own.
        let found = read(&[
            chunk(44_000, 0),
            chunk(47_000, 1),
            seen(43_900, 0, 43_950),
            seen(45_000, 1, 45_100),
            seen(46_900, 2, 46_950),
        ]);
        let keys: Vec<u64> = absent(&found).iter().map(|absence| absence.3).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [44_000, 45_000, 47_000]);
        assert_eq!(found.threads.len(), 3);
    }

    #[test]
    fn a_module_that_is_known_is_not_known_twice() {
        let module = |start, time_ns| Module {
            time_ns,
            start,
            end: start + 0x1000,
            bias: start,
            build_id: &[7],
            path: b"/lib/x",
            ours: false,
        };
        let own = Chunk::new(42, 42, 0).record(RecordKind::Module, |out| {
            module(0x1000, 43_000).encode(out);
        });
        let seen = absences((42, 41_900), (42, 41_900), 0, &[(42_500, 70)]);
        let seen = [0x1000, 0x4000, 0x4000].iter().fold(seen, |chunk, start| {
            chunk.record(RecordKind::Module, |out| module(*start, 42_000).encode(out))
        });
        let found = read(&[own, seen]);
        let mut starts: Vec<u64> = found.modules.iter().map(|m| m.start.0).collect();
        starts.sort_unstable();
        assert_eq!(starts, [0x1000, 0x4000]);
    }
}
