//! Keeps a recording that goes on from growing for ever. Its beginning is taken away, and of that
//! only what later samples need is kept in a file beside it: processes, modules, threads and code
//! of those that have not ended.
//!
//! Not here: when what was recorded is not needed any more ([`super::windows`]).

use crate::processes::Stat;
use crate::recording::write::Writer;
use engine::wire::chunk::{self, ChunkInfo};
use engine::wire::file::HEADER_SIZE;
use engine::wire::label::{LabelSet, RENEWED_NS};
use engine::wire::record::{self, RawRecord, RecordKind};
use engine::wire::thread::{ThreadAccount, ThreadEnd};
use nix::fcntl::{FallocateFlags, fallocate};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What later samples need.
const KEPT: [RecordKind; 11] = [
    RecordKind::Process,
    RecordKind::Module,
    RecordKind::ModuleGone,
    RecordKind::Thread,
    RecordKind::ThreadName,
    RecordKind::PerfMap,
    RecordKind::Code,
    RecordKind::MoreLines,
    RecordKind::CodeGone,
    RecordKind::Labels,
    RecordKind::Source,
];

/// Where the first chunk of a recording begins.
pub(super) const FIRST: u64 = HEADER_SIZE as u64;

/// Takes away the part of a recording between two offsets; `to` may lie inside a chunk, which then
/// stays. `gone`: its processes are recorded from outside, and their end is not in it; those that
/// were gone the last time, and then those that are now. Gives where the next part begins.
///
/// # Errors
/// As read, write and fallocate; and if the chunks do not lead from one to the next.
pub(super) fn carry(
    recording: &Path,
    beside: &Path,
    from: u64,
    to: u64,
    gone: Option<&mut HashSet<(u32, u64)>>,
) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(recording)?;
    let mut chunks = Chunks::default();
    match File::open(beside) {
        Ok(old) => {
            let length = old.metadata()?.len();
            chunks.take(&old, FIRST, length)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let end = chunks.take(&file, from, to)?;
    if end == from {
        return Ok(from);
    }
    if let Some(gone) = gone {
        let is_gone = |info: &ChunkInfo| info.pid != 0 && Stat::read(info.pid).is_none();
        let all = chunks.list.iter().map(|(info, _)| info);
        let now = all.filter(|info| is_gone(info)).map(process_of).collect();
        // What was sampled last is written a while after the end, and not before it.
        let before = std::mem::replace(gone, now);
        let later = processes_behind(&file, end)?;
        let over = gone.intersection(&before);
        chunks
            .processes
            .extend(over.filter(|process| !later.contains(process)));
    }
    let left = chunks.left();
    write(&left, beside)?;
    let offset = |at: u64| i64::try_from(at).map_err(io::Error::other);
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    // All that is before was taken away, but for the rest of the block in which that ended.
    fallocate(&file, flags, offset(FIRST)?, offset(end - FIRST)?)?;
    Ok(end)
}

#[derive(Default)]
struct Chunks {
    list: Vec<(ChunkInfo, Vec<u8>)>,
    /// Pid and key of program runs that are over.
    processes: HashSet<(u32, u64)>,
    /// The same with tid and key of threads that are.
    threads: HashSet<(u32, u64, u32, u64)>,
}

impl Chunks {
    /// Takes in whole chunks; gives where the last one ends.
    fn take(&mut self, file: &File, from: u64, to: u64) -> io::Result<u64> {
        let mut at = from;
        let mut header = [0; chunk::HEADER_SIZE];
        let mut records = Vec::new();
        while at + chunk::HEADER_SIZE as u64 <= to {
            file.read_exact_at(&mut header, at)?;
            let info = ChunkInfo::parse(&header).map_err(io::Error::other)?;
            let next = at + u64::from(info.stride);
            if next > to {
                break;
            }
            records.resize(info.committed as usize, 0);
            file.read_exact_at(&mut records, at + chunk::HEADER_SIZE as u64)?;
            let kept = self.kept(&info, &records);
            if !kept.is_empty() {
                self.list.push((info, kept));
            }
            at = next;
        }
        Ok(at)
    }

    /// The records of a chunk that are kept; ends are noted.
    fn kept(&mut self, info: &ChunkInfo, records: &[u8]) -> Vec<u8> {
        let process = process_of(info);
        select(records, |found| {
            let ended = match RecordKind::from_number(found.kind) {
                Some(RecordKind::SegmentTotals) => {
                    self.processes.insert(process);
                    None
                }
                Some(RecordKind::ThreadEnd) => ThreadEnd::decode(found.payload).ok(),
                Some(RecordKind::ThreadAccount) => {
                    let account = ThreadAccount::decode(found.payload).ok();
                    account.map(|account| account.end)
                }
                Some(kind) => return KEPT.contains(&kind),
                None => None,
            };
            self.threads
                .extend(ended.map(|end| (process.0, process.1, end.tid, end.thread_key)));
            false
        })
    }

    /// Labels are described anew from time to time: who has a sample needs them from then on.
    fn forget_labels(&mut self) {
        let time = |found: &RawRecord<'_>| {
            let is_set = found.kind == RecordKind::Labels as u8;
            let set = is_set
                .then(|| LabelSet::decode(found.payload).ok())
                .flatten();
            set.map(|set| set.time_ns)
        };
        let mut newest = 0;
        for (_, records) in &self.list {
            select(records, |found| {
                newest = newest.max(time(found).unwrap_or(0));
                false
            });
        }
        for (_, records) in &mut self.list {
            let is_needed = |at: u64| at.saturating_add(2 * RENEWED_NS) >= newest;
            *records = select(records, |found| time(found).is_none_or(is_needed));
        }
    }

    /// Those of processes and threads that have not ended.
    fn left(mut self) -> Vec<(ChunkInfo, Vec<u8>)> {
        let processes = &self.processes;
        self.list
            .retain(|(info, _)| !processes.contains(&process_of(info)));
        for (info, records) in &mut self.list {
            let thread = (info.pid, info.process_key, info.tid, info.thread_key);
            if self.threads.contains(&thread) {
                let of_thread = [RecordKind::Thread, RecordKind::ThreadName].map(|kind| kind as u8);
                *records = select(records, |found| !of_thread.contains(&found.kind));
            }
        }
        self.forget_labels();
        self.list.retain(|(_, records)| !records.is_empty());
        self.list
    }
}

fn process_of(info: &ChunkInfo) -> (u32, u64) {
    (info.pid, info.process_key)
}

/// The processes that have chunks behind an offset; the last chunk may be in the making.
fn processes_behind(file: &File, mut at: u64) -> io::Result<HashSet<(u32, u64)>> {
    let mut found = HashSet::new();
    let mut header = [0; chunk::HEADER_SIZE];
    let length = file.metadata()?.len();
    while at + chunk::HEADER_SIZE as u64 <= length {
        file.read_exact_at(&mut header, at)?;
        let Ok(info) = ChunkInfo::parse(&header) else {
            break;
        };
        found.insert(process_of(&info));
        at += u64::from(info.stride);
    }
    Ok(found)
}

/// The records that are wanted, of whole ones.
fn select(records: &[u8], mut wanted: impl FnMut(&RawRecord<'_>) -> bool) -> Vec<u8> {
    let mut selected = Vec::new();
    let mut at = 0;
    while let Some(found) = records.get(at..).and_then(|rest| record::parse(rest).ok()) {
        if wanted(&found) {
            selected.extend_from_slice(records.get(at..at + found.length).unwrap_or_default());
        }
        at += found.length;
    }
    selected
}

/// Writes chunks to a file, in the place of what is there.
fn write(chunks: &[(ChunkInfo, Vec<u8>)], path: &Path) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut writer = Writer::begin(io::BufWriter::new(File::create(&new)?))?;
    for (info, records) in chunks {
        let info = ChunkInfo {
            committed: u32::try_from(records.len()).unwrap_or(u32::MAX),
            ..*info
        };
        writer.append(&info, records)?;
    }
    writer.finish()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate;
    use crate::recording::example::{Chunk, head, recording};
    use engine::wire::sample::Trigger;
    use engine::wire::session::SegmentTotals;
    use engine::wire::thread::{Thread, ThreadEndReason};
    use std::os::unix::fs::MetadataExt;

    fn begins(pid: u32, tid: u32, sequence: u64, time_ns: u64) -> Chunk {
        let thread = Thread {
            time_ns,
            trigger: Trigger::PerfKernel,
            period_ns: 1000 + u64::from(tid),
            periods: 1,
            refused: 0,
            signal: 0,
            unarmed_cpu_ns: 0,
            name: b"t",
        };
        let chunk = Chunk::new(pid, tid, sequence);
        let chunk = chunk.record(RecordKind::Thread, |out| thread.encode(out));
        // Enough for the room that is given back to be seen.
        (0..2000).fold(chunk, |chunk, at| {
            chunk.sample(head(time_ns + at, 1), &[0x1000 + at])
        })
    }

    #[test]
    fn what_is_taken_away_leaves_what_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let (path, beside) = (
            directory.path().join("a.rsu"),
            directory.path().join("b.rsu"),
        );
        let end = ThreadEnd {
            tid: 12,
            thread_key: 12_001,
            time_ns: 30,
            cpu_ns: 5,
            reason: ThreadEndReason::Stopped,
        };
        let totals = SegmentTotals {
            chunkless_samples: 0,
            chunkless_weight: 0,
            unarmed_threads: 0,
            damaged_bytes: 0,
        };
        let chunks = [
            begins(10, 11, 0, 10),
            begins(10, 12, 1, 20).record(RecordKind::ThreadEnd, |out| end.encode(out)),
            begins(13, 13, 0, 30),
            Chunk::new(13, 0, 0).record(RecordKind::SegmentTotals, |out| totals.encode(out)),
            Chunk::new(10, 11, 2).sample(head(90_000, 7), &[0x9000]),
        ];
        let before = recording(&chunks[..4]).len() as u64;
        fs::write(&path, recording(&chunks)).unwrap();
        let blocks = fs::metadata(&path).unwrap().blocks();
        // Into the middle of a chunk, to its end, and nothing.
        let first = carry(&path, &beside, FIRST, before - 100, None).unwrap();
        assert!(first > FIRST && first < before);
        assert_eq!(carry(&path, &beside, first, before, None).unwrap(), before);
        assert_eq!(carry(&path, &beside, before, before, None).unwrap(), before);
        assert!(fs::metadata(&path).unwrap().blocks() < blocks / 2);
        let left = correlate::read(&[&beside, &path]).unwrap();
        let [sample] = &left.samples[..] else {
            panic!("{:?}", left.samples);
        };
        assert_eq!((sample.weight, left.period_ns(sample.thread)), (7, 1011));
        assert_eq!((left.processes.len(), left.threads.len()), (1, 1));
        let alone = correlate::read(&[&path]).unwrap();
        assert_ne!(alone.period_ns(alone.samples[0].thread), 1011);
    }

    #[test]
    fn nothing_is_left_of_the_blocks_in_which_parts_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (path, beside) = (path("a.rsu"), path("b.rsu"));
        let all = (0..20).map(|at| begins(10, 11, at, at * 10_000));
        let chunks: Vec<_> = all.collect();
        fs::write(&path, recording(&chunks)).unwrap();
        let mut from = FIRST;
        for count in 1..=chunks.len() {
            let to = recording(&chunks[..count]).len() as u64;
            from = carry(&path, &beside, from, to, None).unwrap();
        }
        // The header, and the block in which the last part ended.
        let left = fs::metadata(&path).unwrap().blocks() * 512;
        assert!(left <= 2 * FIRST, "{left} bytes");
    }

    #[test]
    fn a_process_that_is_recorded_from_outside_is_kept_until_its_last_samples_are_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (path, beside) = (path("a.rsu"), path("b.rsu"));
        // More than there can be, and one that there is.
        let (pid, own) = (u32::MAX >> 1, std::process::id());
        let chunks = [
            begins(pid, pid, 0, 10),
            begins(own, own, 0, 20),
            Chunk::new(own, own, 1).sample(head(30, 7), &[0x9000]),
            Chunk::new(pid, pid, 1).sample(head(40, 7), &[0x9000]),
            Chunk::new(own, own, 2).sample(head(50, 7), &[0x9000]),
        ];
        let upto = |count: usize| recording(&chunks[..count]).len() as u64;
        fs::write(&path, recording(&chunks)).unwrap();
        let mut gone = HashSet::new();
        let mut begins = FIRST;
        let mut left = |count: usize| {
            begins = carry(&path, &beside, begins, upto(count), Some(&mut gone)).unwrap();
            assert_eq!(begins, upto(count));
            let left = correlate::read(&[&beside]).unwrap().processes;
            left.iter()
                .map(|process| process.pid)
                .collect::<HashSet<_>>()
        };
        let both = HashSet::from([pid, own]);
        assert_eq!(left(2), both, "it was there the last time");
        assert_eq!(left(3), both, "its last chunk is still needed");
        assert_eq!(left(4), HashSet::from([own]));
    }

    #[test]
    fn what_is_no_chunk_is_an_error_and_nothing_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let (path, beside) = (
            directory.path().join("a.rsu"),
            directory.path().join("b.rsu"),
        );
        fs::write(&path, vec![1; 9000]).unwrap();
        assert!(carry(&path, &beside, FIRST, 9000, None).is_err());
        assert_eq!(fs::read(&path).unwrap(), vec![1; 9000]);
        assert!(!beside.exists());
    }
}
