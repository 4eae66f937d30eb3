//! Chunks about time off the CPU ([`engine::wire::chunk::FROM_SWITCHES`]): whose they are among the processes and threads that have said
//! something of themselves.
//!
//! The kernel's records name a program run by pid and the time of exec or fork, a thread by tid and the time of its making. The library gets
//! to know of both a little later, and takes its own keys from then: it is the first of that number to begin within the life of the other.
//! Program runs and threads that no library was in stand for themselves.

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
    /// Whether a record says something that is not known better already.
    pub(super) fn tells(&self, record: &RawRecord<'_>) -> bool {
        match RecordKind::from_number(record.kind) {
            Some(RecordKind::Process) => !self.process_known,
            Some(RecordKind::Thread | RecordKind::ThreadEnd) => !self.thread_known,
            _ => true,
        }
    }
}
