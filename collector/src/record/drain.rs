//! From the session's segments to the recording: finds segments as processes make them, takes what they seal, and puts away those of
//! processes that are gone.
//!
//! The kernel's halves of samples come through the perf rings of the threads ([`super::rings`]), which are emptied at each look.
//!
//! Not here: one segment ([`super::segment`]), and the form of the recording ([`super::writer`]).

use super::perf_map;
use super::rings::Rings;
use super::segment::{Segment, Take};
use super::writer::Writer;
use engine::wire::record::RecordKind;
use engine::wire::session::{PerfMap, SegmentTotals};
use nix::sys::resource::{Resource, getrlimit};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Segments that are kept open between looks, at most; the files of more are opened for each look.
const MOST_OPEN: u64 = 256;

/// The key of the newest program run, by pid and start time of the process.
type Newest = HashMap<(u32, u64), u64>;

/// The drain of one session.
#[derive(Debug)]
pub struct Drain {
    directory: PathBuf,
    segments: BTreeMap<OsString, Segment>,
    rings: Rings,
    writer: Writer,
    /// How many segments may stay open: well inside the limit on descriptors, which is left as the program should find it.
    most_open: u64,
    /// Program runs seen.
    runs: u64,
    /// The longest sampling period that a process had in force, ns.
    period_ns: Option<u64>,
}

impl Drain {
    /// From a session's directory into a recording.
    #[must_use]
    pub fn new(directory: &Path, rings: Rings, writer: Writer) -> Self {
        Self {
            directory: directory.to_owned(),
            segments: BTreeMap::new(),
            rings,
            writer,
            most_open: getrlimit(Resource::RLIMIT_NOFILE)
                .map_or(0, |(limit, _)| MOST_OPEN.min(limit / 4)),
            runs: 0,
            period_ns: None,
        }
    }

    /// One look around.
    ///
    /// # Errors
    /// When the recording cannot be written; what could not be stored is still in its segment.
    pub fn look(&mut self) -> io::Result<()> {
        self.writer.begin()?;
        self.rings.look(&mut self.writer)?;
        self.discover();
        let writer = &mut self.writer;
        for segment in self.segments.values_mut() {
            segment.take(Take::Sealed, &mut |info, records| {
                writer.chunk(&info, records)
            })?;
        }
        self.put_away()
    }

    /// The session is about to be over: what can be seen of threads only as long as they are left alone.
    pub fn look_from_outside(&mut self) {
        self.rings.look_from_outside();
    }

    /// The last look: takes everything that is committed, from processes that still run, too.
    ///
    /// # Errors
    /// As [`Drain::look`].
    pub fn finish(&mut self) -> io::Result<()> {
        self.rings.finish(&mut self.writer)?;
        self.discover();
        let newest = self.newest();
        while let Some((_, segment)) = self.segments.pop_first() {
            self.close(segment, &newest)?;
        }
        Ok(())
    }

    /// Whether a process that was recorded may still run.
    #[must_use]
    pub fn anyone_lives(&self) -> bool {
        self.segments.values().any(Segment::may_live)
    }

    /// The perf rings.
    #[must_use]
    pub const fn rings(&self) -> &Rings {
        &self.rings
    }

    /// How many program runs were recorded.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// The longest sampling period that a process had in force, ns.
    #[must_use]
    pub const fn period_ns(&self) -> Option<u64> {
        self.period_ns
    }

    /// Counts program runs that were recorded in another way.
    pub fn count(&mut self, runs: u64, period_ns: u64) {
        self.runs += runs;
        if runs > 0 {
            self.period_ns = self.period_ns.max(Some(period_ns));
        }
    }

    /// The recording, for what else goes into it.
    pub const fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    fn discover(&mut self) {
        for entry in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let known = self.segments.contains_key(&name);
            if known || !name.as_encoded_bytes().ends_with(b".seg") {
                continue;
            }
            let stays_open = (self.segments.len() as u64) < self.most_open;
            if let Some(segment) = Segment::open(entry.path(), stays_open) {
                self.segments.insert(name, segment);
                self.runs += 1;
            }
        }
    }

    fn put_away(&mut self) -> io::Result<()> {
        let newest = self.newest();
        let over = |segment: &Segment| segment.is_over() || is_replaced(segment, &newest);
        let over = self.segments.iter().filter(|(_, segment)| over(segment));
        let over: Vec<OsString> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            if let Some(segment) = self.segments.remove(&name) {
                self.close(segment, &newest)?;
            }
        }
        Ok(())
    }

    /// The newest program run of each process.
    fn newest(&self) -> Newest {
        let mut newest = Newest::new();
        for segment in self.segments.values() {
            let key = newest
                .entry((segment.info.pid, segment.info.start_ticks))
                .or_default();
            *key = segment.info.process_key.max(*key);
        }
        newest
    }

    /// Takes what is left in a segment and what belongs to its process, and removes the file.
    fn close(&mut self, mut segment: Segment, newest: &Newest) -> io::Result<()> {
        let writer = &mut self.writer;
        segment.take(Take::Everything, &mut |info, records| {
            writer.chunk(&info, records)
        })?;
        let totals = segment.totals();
        let about = (segment.info.pid, segment.info.process_key);
        self.rings.close_process(about.0, about.1, writer)?;
        let totals = SegmentTotals {
            homeless_samples: totals.homeless_samples,
            homeless_weight: totals.homeless_weight,
            unarmed_threads: totals.unarmed_threads,
            damaged_bytes: segment.damaged,
        };
        writer.own(about, RecordKind::SegmentTotals, |out| totals.encode(out))?;
        if !is_replaced(&segment, newest) {
            perf_map::take(segment.info.pid, segment.started_ns, &mut |lines| {
                writer.own(about, RecordKind::PerfMap, |out| {
                    PerfMap { lines }.encode(out)
                })
            })?;
        }
        self.period_ns = self.period_ns.max(segment.period_ns);
        segment.remove();
        Ok(())
    }
}

/// Whether the process has replaced its program, and the new one has a segment of its own.
fn is_replaced(segment: &Segment, newest: &Newest) -> bool {
    let key = newest.get(&(segment.info.pid, segment.info.start_ticks));
    key.is_some_and(|key| *key > segment.info.process_key)
}
