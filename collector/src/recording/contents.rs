//! What files hold but for the samples, and the chunks in which those are: gone through part by
//! part, thread by thread.
//!
//! Not here: the first pass, which finds them ([`super::Reader`]).

use super::chunk_records::{Budget, Step, walk};
use super::error::{Damages, OpenError};
use super::ids::{ProcessId, ThreadId};
use super::model::{FileReport, Recording, Thread};
use super::scan::Place;
use super::source::Source;
use super::{OpenFile, Reader, source};
use crate::intern::HashMap;
use crate::progress;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// What files hold: everything but the samples, and the chunks in which those are.
pub(crate) struct Contents {
    /// Without samples and stacks.
    pub(crate) recording: Recording,
    pub(super) files: Vec<OpenFile>,
    /// Thread by thread.
    pub(super) places: Vec<(ThreadId, usize, Place)>,
    pub(super) budget: Budget,
}

/// The chunks of some processes, thread by thread.
pub(crate) struct Part<'a> {
    files: &'a [OpenFile],
    places: std::vec::IntoIter<(ThreadId, usize, Place)>,
    budget: Budget,
    records: Vec<u8>,
    /// What was found in each file.
    damages: Vec<Damages>,
}

/// Who wrote a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// The thread, or who saw nothing but it.
    Thread,
    /// The collector, of the kernel's records, beside what the thread says itself.
    Beside,
    /// The collector, of what belongs to samples of the thread's.
    Collector,
}

/// The records of one chunk, to be gone through.
pub(crate) struct ChunkRecords<'a> {
    /// Whose it is.
    pub(crate) thread: ThreadId,
    /// Who wrote it.
    pub(crate) by: Author,
    /// Which file it is in.
    pub(crate) file: usize,
    records: &'a [u8],
    /// Of the first record in the file, bytes.
    offset: u64,
    budget: &'a mut Budget,
    damages: &'a mut Damages,
}

impl Contents {
    /// Reads files, segments and session directories as one recording.
    ///
    /// # Errors
    /// [`OpenError`] for the first path of which nothing could be read. In a directory, files that
    /// are no recordings are reported as damages if another one is.
    pub(crate) fn open(paths: &[impl AsRef<Path>]) -> Result<Self, OpenError> {
        let mut reader = Reader::default();
        let found: Result<Vec<_>, _> = paths.iter().map(|p| source::files_of(p.as_ref())).collect();
        let found = found?;
        let lengths = found.iter().flatten().map(|file| length(file));
        progress::begin("reading", lengths.fold(0, u64::saturating_add));
        for files in found {
            let several = files.len() > 1;
            let mut refused = None;
            let before = reader.files.len();
            for file in files {
                match reader.open(&file) {
                    Ok(()) => {}
                    Err(error) if several => {
                        reader.refuse(&file, &error);
                        refused.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            let readable = reader.files[before..]
                .iter()
                .any(|file| file.source.is_some());
            if let Some(error) = refused.filter(|_| !readable) {
                return Err(error);
            }
        }
        reader.finish()
    }

    /// Reads what is in memory; `name` stands for its path in reports.
    ///
    /// # Errors
    /// [`OpenError`] if it is no recording at all.
    pub(crate) fn of_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self, OpenError> {
        let mut reader = Reader::default();
        reader.take(name.into(), Source::Memory(bytes))?;
        reader.finish()
    }

    /// The chunks in at most so many parts of about one size, each of whole processes.
    pub(crate) fn parts(&self, threads: &[Thread], most: usize) -> Vec<Part<'_>> {
        let process = |thread: ThreadId| threads[thread.index()].process;
        let mut sizes: HashMap<ProcessId, usize> = HashMap::default();
        for (thread, _, place) in &self.places {
            *sizes.entry(process(*thread)).or_default() += place.length;
        }
        let mut sizes: Vec<_> = sizes.into_iter().collect();
        sizes.sort_unstable_by_key(|(process, size)| (Reverse(*size), *process));
        let whole = self.places.iter().map(|(.., place)| place.length as u64);
        progress::begin("reading samples", whole.fold(0, u64::saturating_add));
        let mut parts = vec![(0, Vec::new()); most.min(sizes.len()).max(1)];
        let mut owners = HashMap::default();
        for (process, size) in sizes {
            let smallest = parts.iter().enumerate().min_by_key(|(_, part)| part.0);
            let owner = smallest.map_or(0, |(owner, _)| owner);
            parts[owner].0 += size;
            owners.insert(process, owner);
        }
        for place in &self.places {
            parts[owners[&process(place.0)]].1.push(*place);
        }
        let part = |(_, places): (usize, Vec<_>)| Part {
            files: &self.files,
            places: places.into_iter(),
            budget: self.budget.clone(),
            records: Vec::new(),
            damages: vec![Damages::default(); self.files.len()],
        };
        parts.into_iter().map(part).collect()
    }

    /// What was found in each file, with what was found in each part of them.
    pub(crate) fn reports(self, of_parts: Vec<Vec<Damages>>) -> Vec<FileReport> {
        let mut reports: Vec<_> = self.files.into_iter().map(|file| file.report).collect();
        for found in of_parts {
            for (report, found) in reports.iter_mut().zip(found) {
                report.damages.append(found);
            }
        }
        reports
    }
}

impl Part<'_> {
    /// The next chunk, thread by thread; `None` if that was the last.
    ///
    /// # Errors
    /// [`OpenError::Io`] if it cannot be read any more.
    pub(crate) fn next(&mut self) -> Result<Option<ChunkRecords<'_>>, OpenError> {
        let Some((thread, file, place)) = self.places.next() else {
            return Ok(None);
        };
        progress::add(place.length as u64);
        let offset = self.files[file].read(&place, &mut self.records)?;
        let info = &place.info;
        let by = match (info.is_from_switches(), info.is_from_ring()) {
            (true, _) => Author::Beside,
            (_, true) => Author::Collector,
            _ if info.is_from_outside() => Author::Collector,
            _ => Author::Thread,
        };
        Ok(Some(ChunkRecords {
            thread,
            by,
            file,
            records: &self.records,
            offset,
            budget: &mut self.budget,
            damages: &mut self.damages[file],
        }))
    }

    /// What was found in each file.
    pub(crate) fn damages(self) -> Vec<Damages> {
        self.damages
    }
}

impl<'a> ChunkRecords<'a> {
    /// Goes through them; what cannot be read is added to the damages of its file.
    pub(crate) fn walk(self, mut visit: impl FnMut(Step<'a>, &mut Damages)) {
        // Those of the records themselves were found in the first pass.
        let mut known = Damages::default();
        let (budget, damages) = (self.budget, self.damages);
        walk(
            self.records,
            self.offset,
            true,
            budget,
            &mut known,
            |step| {
                visit(step, damages);
            },
        );
    }
}

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |file| file.len())
}

/// Names a chunk: pid, process key, sequence. A chunk may be in a recording and still in its
/// segment.
type ChunkName = (u32, u64, u64);

/// Drops copies of a chunk but for the longest, and sorts by thread and sequence.
pub(super) fn without_copies(
    places: Vec<(ThreadId, usize, Place)>,
) -> Vec<(ThreadId, usize, Place)> {
    let name = |place: &Place| -> ChunkName {
        let info = &place.info;
        (info.pid, info.process_key, info.sequence)
    };
    let mut best: HashMap<(ChunkName, ThreadId), (usize, Place)> = HashMap::default();
    for (thread, file, place) in places {
        let entry = best.entry((name(&place), thread)).or_insert((file, place));
        if entry.1.length < place.length {
            *entry = (file, place);
        }
    }
    let mut places: Vec<_> = best
        .into_iter()
        .map(|((_, thread), (file, place))| (thread, file, place))
        .collect();
    // Context switches wait for nothing. What came out of rings goes next: it waits for the user
    // stacks. What was seen from outside is for what still waits in the end.
    places.sort_by_key(|(thread, file, place)| {
        let info = &place.info;
        let switches = info.is_from_switches();
        let rank = (!switches, !info.is_from_ring(), info.is_from_outside());
        (*thread, rank, info.sequence, *file, place.offset)
    });
    places
}
