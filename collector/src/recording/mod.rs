//! Reads recordings: `.rsu` files, segments left behind by processes, and whole session
//! directories, several at once.
//!
//! Start at [`Contents::open`]. What comes out is a [`Recording`] of processes, threads and
//! modules, and the chunks in which the samples are, which [`crate::correlate`] reads and joins.
//! All that is intact is recovered and the rest is named by its file offset ([`Damage`]); the bytes
//! may be anything at all. The other half, [`write`](mod@write), is what the collector makes
//! recordings with.
//!
//! Not here: samples (`correlate`), names of functions (`symbolize`), and what the bytes of a
//! record mean ([`engine::wire`]).
//!
//! Reading takes two passes. This is the first: `scan` finds the chunks and `facts` takes in all
//! that is not a sample, `switched` last what is about threads under other names. With the modules
//! of all times known, the second takes in the samples, thread by thread in the order of their
//! chunks ([`Part::next`]).

mod chunk_records;
mod contents;
mod error;
#[cfg(test)]
pub(crate) mod example;
mod facts;
mod ids;
mod kernel_half;
mod labels;
mod lineage;
mod model;
mod module_at;
mod modules;
pub mod names;
mod packed;
pub(crate) mod records;
mod scan;
mod source;
mod stack_table;
mod switched;
pub mod write;

pub(crate) use chunk_records::Step;
pub(crate) use contents::{Author, ChunkRecords, Contents, Part};
pub use error::{Damage, Damages, OpenError};
pub use ids::{CodeId, FrameId, LabelsId, LanguageId, ModuleId, ProcessId, StackId, ThreadId};
pub use kernel_half::KernelHalf;
pub use labels::{LabelSets, Labels};
pub(crate) use labels::{Regions, settle};
pub use model::{
    Arming, CodeObject, Event, EventSource, FileReport, Process, RawFrame, RawSample, Recording,
    SessionInfo, StackNode, Thread, ThreadEnd, ThreadName, Totals,
};
pub use modules::{Module, ModuleMap};
pub(crate) use stack_table::StackTable;

use crate::progress;
use chunk_records::{Budget, walk};
use engine::wire::WireError;
use engine::wire::chunk::ChunkInfo;
use engine::wire::file::{self, FileInfo, FileKind};
use engine::wire::names::NamesPart;
use engine::wire::record::{RawRecord, RecordKind};
use engine::wire::session::SegmentTotals;
use facts::Facts;
use names::Parts;
use scan::{Place, Scan};
use source::{Ahead, Source};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use switched::Switched;

/// A file on its way through the two passes.
struct OpenFile {
    source: Option<Source>,
    report: FileReport,
}

impl OpenFile {
    /// Reads the records of a chunk, and gives the offset of the first.
    fn read(&self, place: &Place, records: &mut Vec<u8>) -> Result<u64, OpenError> {
        let first = place.offset + engine::wire::chunk::HEADER_SIZE as u64;
        let Some(source) = &self.source else {
            records.clear();
            return Ok(first);
        };
        let read = source.read(first, place.length, records);
        read.map_err(|error| OpenError::Io {
            path: self.report.path.clone(),
            error,
        })?;
        Ok(first)
    }
}

#[derive(Default)]
struct Reader {
    files: Vec<OpenFile>,
    identities: Vec<(u64, u64)>,
    facts: Facts,
    /// Chunks with their file and thread.
    places: Vec<(ThreadId, usize, Place)>,
    switched: Switched,
}

impl Reader {
    fn open(&mut self, path: &Path) -> Result<(), OpenError> {
        let (source, identity) = Source::open(path)?;
        if self.identities.contains(&identity) {
            return Ok(());
        }
        self.identities.push(identity);
        self.take(path.to_owned(), source)
    }

    fn refuse(&mut self, path: &Path, error: &OpenError) {
        let mut damages = Damages::default();
        damages.add(0, 0, error.to_string());
        let report = FileReport {
            path: path.to_owned(),
            kind: FileKind::Segment,
            length: 0,
            chunks: 0,
            damages,
        };
        self.files.push(OpenFile {
            source: None,
            report,
        });
    }

    /// The first pass over one file.
    fn take(&mut self, path: PathBuf, source: Source) -> Result<(), OpenError> {
        let failed = |path: &Path, error: io::Error| OpenError::Io {
            path: path.to_owned(),
            error,
        };
        let (source, promised) = source.unpacked().map_err(|error| failed(&path, error))?;
        let on_disk = std::fs::metadata(&path).map_or(0, |file| file.len());
        let mut start = Vec::new();
        source
            .read(0, file::HEADER_SIZE, &mut start)
            .map_err(|error| failed(&path, error))?;
        let mut damages = Damages::default();
        let header = check_header(&path, &source, &start, &mut damages)?;
        let index = self.files.len();
        self.facts.begin_file(index);
        let mut chunks = 0;
        let (facts, places) = (&mut self.facts, &mut self.places);
        let switched = &mut self.switched;
        let mut found = Damages::default();
        let (mut last, mut names) = (None, Parts::default());
        let mut scan = Scan {
            source: &source,
            ahead: Ahead::of(&source),
            kind: header.map_or(FileKind::Recording, |header| header.kind),
            damages: &mut damages,
            budget: Budget::for_file(source.length()),
        };
        let (whole, mut passed) = (source.length().max(1) as f64, 0);
        let mut pass = |offset: u64| {
            let now = (offset as f64 / whole * on_disk as f64) as u64;
            progress::add(now.saturating_sub(passed));
            passed = now.max(passed);
        };
        let scanned = scan.run(|place, step| {
            if step.is_none() {
                pass(place.offset);
            }
            // Without a record, a chunk says something only of a ring: what did not fit.
            let info = &place.info;
            let says = step.is_some() || info.is_from_ring() || info.is_from_names();
            if says && last != Some(place.offset) {
                last = Some(place.offset);
                chunks += 1;
                if place.info.is_from_names() {
                    names.begin(place.offset);
                } else if place.info.is_from_switches() {
                    switched.put(index, *place);
                } else if let Some(thread) = facts.chunk(&place.info) {
                    places.push((thread, index, *place));
                }
            }
            if let Some(Step::Record(record, offset)) = step
                && !place.info.is_from_switches()
            {
                match RecordKind::from_number(record.kind) {
                    Some(RecordKind::Names) if info.is_from_names() => {
                        match NamesPart::decode(record.payload) {
                            Ok(part) => names.push(&part),
                            Err(error) => found.add(offset, 0, error.to_string()),
                        }
                    }
                    _ => facts.record(&place.info, &record, offset, &mut found),
                }
            }
        });
        pass(source.length());
        scanned.map_err(|error| failed(&path, error))?;
        match names.names() {
            Ok(names) => self.facts.names(names),
            Err(error) => {
                let what = format!(
                    "the names stored in it cannot be read: {error}; functions are named by the programs here, while they are of the same builds"
                );
                found.add(names.offset, 0, what);
            }
        }
        let whole = header.map_or(promised, |header| header.length.max(promised));
        if let Some(missing) = whole
            .checked_sub(source.length())
            .filter(|missing| *missing > 0)
        {
            let what = format!("the file was cut here: its last {missing} bytes are missing");
            damages.add(source.length(), 0, what);
        }
        if chunks == 0 && header.is_none() {
            return Err(OpenError::Foreign {
                path,
                guess: error::guess(&start),
            });
        }
        for damage in found.listed {
            damages.add(damage.offset, damage.length, damage.what);
        }
        if let Some(header) = header {
            let counted = SegmentTotals {
                chunkless_samples: header.chunkless_samples,
                chunkless_weight: header.chunkless_weight,
                unarmed_threads: header.unarmed_threads,
                damaged_bytes: 0,
            };
            let owner = (header.pid, header.process_key);
            self.facts.segment_totals(owner, &counted);
        }
        let report = FileReport {
            path,
            kind: header.map_or(FileKind::Recording, |header| header.kind),
            length: source.length(),
            chunks,
            damages,
        };
        self.files.push(OpenFile {
            source: Some(source),
            report,
        });
        Ok(())
    }

    /// The rest of the first pass: what is said of threads under other names. Gives those.
    fn adopt(
        &mut self,
        budget: &mut Budget,
    ) -> Result<BTreeMap<ThreadName, ThreadName>, OpenError> {
        let mut records = Vec::new();
        let mut names = BTreeMap::new();
        let name = |info: &ChunkInfo| (info.pid, info.process_key, info.tid, info.thread_key);
        for adopted in std::mem::take(&mut self.switched).adopt(&self.facts) {
            let file = &mut self.files[adopted.file];
            let first = file.read(&adopted.place, &mut records)?;
            let (facts, owner) = (&mut self.facts, &adopted.owner);
            // The process may have said something long before the thread does.
            let of_process = ChunkInfo {
                thread_key: adopted.place.info.thread_key,
                ..*owner
            };
            for before in [&adopted.place.info, &of_process] {
                names.insert(name(before), name(owner));
            }
            let thread = facts.chunk(owner);
            if let Some(thread) = thread {
                self.places.push((thread, adopted.file, adopted.place));
            }
            let armed = thread.is_some_and(|thread| facts.is_armed(thread));
            let (mut known, damages) = (Damages::default(), &mut file.report.damages);
            walk(&records, first, true, budget, &mut known, |step| {
                if let Step::Record(record, offset) = step
                    && adopted.tells(&record, armed)
                    && !(is_module(&record) && facts.knows_module(owner, &record))
                {
                    facts.record(owner, &record, offset, damages);
                }
            });
        }
        names.retain(|name, own| name != own);
        Ok(names)
    }

    /// The end of the first pass.
    fn finish(mut self) -> Result<Contents, OpenError> {
        let lengths = self.files.iter().map(|file| file.report.length);
        let mut budget = Budget::for_file(lengths.fold(0, u64::saturating_add));
        let adopted = self.adopt(&mut budget)?;
        Ok(Contents {
            recording: Recording {
                adopted,
                ..self.facts.finish()
            },
            files: self.files,
            places: contents::without_copies(self.places),
            budget,
        })
    }
}

fn is_module(record: &RawRecord<'_>) -> bool {
    RecordKind::from_number(record.kind) == Some(RecordKind::Module)
}

/// The bytes of a file, a packed one's unpacked.
///
/// # Errors
/// As open and read.
pub fn unpacked(path: &Path) -> io::Result<Vec<u8>> {
    let (source, _) = Source::Memory(std::fs::read(path)?).unpacked()?;
    let mut bytes = Vec::new();
    source.read(0, usize::MAX, &mut bytes)?;
    Ok(bytes)
}

/// The file header; `None` if it is damaged or foreign, which the chunks will show.
fn check_header(
    path: &Path,
    source: &Source,
    start: &[u8],
    damages: &mut Damages,
) -> Result<Option<FileInfo>, OpenError> {
    let path = || path.to_owned();
    let length = source.length();
    let short = start.len() < file::HEADER_SIZE;
    match FileInfo::parse(start) {
        _ if length == 0 => Err(OpenError::Empty { path: path() }),
        Ok(_) if short => Err(OpenError::Short {
            path: path(),
            length,
        }),
        Ok(info) => Ok(Some(info)),
        Err(WireError::NewerVersion(version)) => Err(OpenError::Newer {
            path: path(),
            version,
        }),
        Err(_) if short && start.starts_with(&file::MAGIC.to_le_bytes()) => Err(OpenError::Short {
            path: path(),
            length,
        }),
        Err(_) if short => Err(OpenError::Foreign {
            path: path(),
            guess: error::guess(start),
        }),
        Err(error) => {
            damages.add(0, 0, format!("the file header: {error}"));
            Ok(None)
        }
    }
}
