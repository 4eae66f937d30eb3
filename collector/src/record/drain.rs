//! From the session's segments to the recording: finds segments as processes make them, takes what
//! they seal, and puts away those of processes that are gone.
//!
//! The kernel's halves of samples come through the perf rings of the threads ([`super::rings`]),
//! which are emptied at each look. Whatever programs make of their segments, a look takes one turn
//! ([`super::turn`]), and the next one goes on from there.
//!
//! Not here: one segment ([`super::segment`]), and the form of the recording ([`super::writer`]).

use super::owners::Owners;
use super::perf_map_files::Map;
use super::rings::Rings;
use super::segment::{Opened, Segment, Take};
use super::turn::{Progress, Turn};
use super::writer::Writer;
use crate::jit_map;
use crate::numbers::plural;
use crate::visible::Shown;
use engine::wire::chunk::ChunkInfo;
use engine::wire::record::RecordKind;
use engine::wire::session::{PerfMap, SegmentTotals};
use nix::sys::resource::{Resource, getrlimit};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, ReadDir};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Segments that are kept open between looks, at most; the files of more are opened for each look.
const MOST_OPEN: u64 = 256;
/// Most bytes of JITs' maps that a recording gets: programs that start programs for ever fill no
/// disk with them.
const MOST_MAPPED: u64 = 1 << 30;
/// Reasons not to believe files that are kept word for word.
const MOST_TOLD: usize = 8;

/// The key of the newest program run, by pid and start time of the process.
type Newest = HashMap<(u32, u64), u64>;

/// Program runs so far, those that are recorded now, and threads.
pub type Who = (u64, usize, usize);

/// The drain of one session.
#[derive(Debug)]
pub struct Drain {
    directory: PathBuf,
    /// Its files, as far as they were not looked at in this round.
    entries: Option<ReadDir>,
    /// They were listed for the last time, when nobody is waited for any more.
    is_last: bool,
    segments: BTreeMap<OsString, Segment>,
    /// The segment that the next turn begins with.
    next: Option<OsString>,
    /// The process that is being put away.
    closing: Option<Closing>,
    rings: Rings,
    writer: Writer,
    /// How many segments may stay open: well inside the limit on descriptors, which is left as the
    /// program should find it.
    most_open: u64,
    /// Program runs seen.
    runs: u64,
    /// The longest sampling period that a process had in force, ns.
    period_ns: Option<u64>,
    /// Bytes of JITs' maps that may still be taken.
    maps_left: u64,
    owners: Owners,
    refusals: Refusals,
}

/// A process that is gone, or has replaced its program.
#[derive(Debug)]
struct Closing {
    segment: Segment,
    /// Nothing is left in its segment.
    is_empty: bool,
    /// Its JIT's symbols.
    map: Option<Map>,
}

/// Files that were found where anybody can put some, and were not believed.
#[derive(Debug, Default)]
pub struct Refusals {
    /// The first few reasons.
    told: Vec<String>,
    /// How many more there were.
    untold: u64,
}

impl Refusals {
    fn add(&mut self, why: impl std::fmt::Display) {
        if self.told.len() < MOST_TOLD {
            self.told.push(why.to_string());
        } else {
            self.untold += 1;
        }
    }

    /// One for each of the first few, and one for the rest.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let rest = plural(self.untold, "more file", "more files");
        let rest = (self.untold > 0).then(|| format!("{rest} of other users not read"));
        self.told.iter().cloned().chain(rest).collect()
    }
}

impl Drain {
    /// From a session's directory into a recording.
    #[must_use]
    pub fn new(directory: &Path, rings: Rings, writer: Writer) -> Self {
        Self {
            directory: directory.to_owned(),
            entries: None,
            is_last: false,
            segments: BTreeMap::new(),
            next: None,
            closing: None,
            rings,
            writer,
            most_open: getrlimit(Resource::RLIMIT_NOFILE)
                .map_or(0, |(limit, _)| MOST_OPEN.min(limit / 4)),
            runs: 0,
            period_ns: None,
            maps_left: MOST_MAPPED,
            owners: Owners::default(),
            refusals: Refusals::default(),
        }
    }

    /// One look around. What is not done in its turn waits for the next one.
    ///
    /// # Errors
    /// When the recording cannot be written; what could not be stored is still in its segment.
    pub fn look(&mut self) -> io::Result<Progress> {
        let turn = Turn::begin();
        self.writer.begin()?;
        self.take_up();
        self.rings.look(&mut self.writer)?;
        if self.discover(turn) == Progress::Begun || self.take(turn)? == Progress::Begun {
            return Ok(Progress::Begun);
        }
        self.put_away(turn)
    }

    /// Empties the rings of threads, and no more.
    ///
    /// # Errors
    /// As [`Drain::look`].
    pub fn look_at_rings(&mut self) -> io::Result<()> {
        self.rings.look(&mut self.writer)
    }

    /// The session is about to be over: what can be seen of threads only as long as they are left
    /// alone.
    pub fn look_from_outside(&mut self) {
        self.rings.look_from_outside();
    }

    /// The last looks, until it is done: take everything that is committed, from processes that
    /// still run, too.
    ///
    /// # Errors
    /// As [`Drain::look`].
    pub fn finish(&mut self) -> io::Result<Progress> {
        let turn = Turn::begin();
        self.take_up();
        self.rings.finish(&mut self.writer)?;
        // What a look has left of its list is without those who came since.
        if !std::mem::replace(&mut self.is_last, true) {
            self.entries = None;
        }
        if self.discover(turn) == Progress::Begun {
            return Ok(Progress::Begun);
        }
        let newest = self.newest();
        loop {
            if self.close(&newest, turn)? == Progress::Begun {
                return Ok(Progress::Begun);
            }
            let Some((_, segment)) = self.segments.pop_first() else {
                return Ok(Progress::Done);
            };
            self.closing = Some(Closing::new(segment));
        }
    }

    /// Segments that nothing was taken out of for the last time.
    #[must_use]
    pub fn left(&self) -> usize {
        self.segments.len() + usize::from(self.closing.is_some())
    }

    /// What was not believed.
    #[must_use]
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Whether a process that was recorded may still run.
    #[must_use]
    pub fn anyone_lives(&self) -> bool {
        !self.segments.values().all(Segment::is_over)
    }

    /// The pids of recorded processes that run.
    pub fn living(&self) -> impl Iterator<Item = u32> {
        let living = self.segments.values().filter(|segment| segment.lives());
        living.map(|segment| segment.info.pid)
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

    /// Who is recorded.
    #[must_use]
    pub fn who(&self) -> Who {
        (self.runs, self.left(), self.rings.count())
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

    fn take_up(&mut self) {
        let mut refused = Vec::new();
        self.rings.take_up(&mut self.owners, &mut refused);
        refused.iter().for_each(|why| self.refusals.add(why));
    }

    fn discover(&mut self, turn: Turn) -> Progress {
        let entries = self.entries.take();
        let Some(mut entries) = entries.or_else(|| fs::read_dir(&self.directory).ok()) else {
            return Progress::Done;
        };
        while let Some(entry) = entries.next() {
            if let Ok(entry) = entry {
                self.meet(entry.file_name());
            }
            if turn.is_over() {
                self.entries = Some(entries);
                return Progress::Begun;
            }
        }
        Progress::Done
    }

    fn meet(&mut self, name: OsString) {
        if !name.as_encoded_bytes().ends_with(b".seg") || self.segments.contains_key(&name) {
            return;
        }
        let closing = self.closing.as_ref().map(|closing| closing.segment.path());
        let path = self.directory.join(&name);
        if closing == Some(&path) {
            return;
        }
        let stays_open = (self.segments.len() as u64) < self.most_open;
        let mut opened = Segment::open(path.clone(), stays_open, &self.owners);
        if matches!(opened, Opened::Foreign) {
            // Its process may have said since the last look whose it is.
            self.take_up();
            opened = Segment::open(path.clone(), stays_open, &self.owners);
        }
        match opened {
            Opened::Segment(segment) => {
                let info = segment.info;
                self.owners.saw(info.pid, info.start_ticks, &segment.users);
                self.segments.insert(name, *segment);
                self.runs += 1;
            }
            Opened::NotYet => {}
            Opened::Foreign => {
                self.refusals.add(format_args!(
                    "{} is not read: it belongs to another user than the process that it names",
                    path.shown()
                ));
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Takes what is sealed, from where the turn before ended.
    fn take(&mut self, turn: Turn) -> io::Result<Progress> {
        let first = self.next.take().map_or(Bound::Unbounded, Bound::Included);
        let mut later = false;
        for (name, segment) in self
            .segments
            .range_mut::<OsString, _>((first, Bound::Unbounded))
        {
            if later && turn.is_over() {
                self.next = Some(name.clone());
                return Ok(Progress::Begun);
            }
            later = true;
            let writer = &mut self.writer;
            let mut sink = |info: ChunkInfo, records: &[u8]| writer.chunk(&info, records);
            if segment.take(Take::Sealed, turn, &mut sink)? == Progress::Begun {
                self.next = Some(name.clone());
                return Ok(Progress::Begun);
            }
        }
        Ok(Progress::Done)
    }

    fn put_away(&mut self, turn: Turn) -> io::Result<Progress> {
        let newest = self.newest();
        if self.close(&newest, turn)? == Progress::Begun {
            return Ok(Progress::Begun);
        }
        let over = |segment: &Segment| segment.is_over() || is_replaced(segment, &newest);
        let over = self.segments.iter().filter(|(_, segment)| over(segment));
        let over: Vec<OsString> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            self.closing = self.segments.remove(&name).map(Closing::new);
            if self.close(&newest, turn)? == Progress::Begun {
                return Ok(Progress::Begun);
            }
        }
        Ok(Progress::Done)
    }

    /// The newest program run of each process.
    fn newest(&self) -> Newest {
        let mut newest = Newest::new();
        let closing = self.closing.as_ref().map(|closing| &closing.segment);
        for segment in self.segments.values().chain(closing) {
            let key = newest
                .entry((segment.info.pid, segment.info.start_ticks))
                .or_default();
            *key = segment.info.process_key.max(*key);
        }
        newest
    }

    /// Takes what is left in the segment that is being put away and what belongs to its process,
    /// and removes the file.
    fn close(&mut self, newest: &Newest, turn: Turn) -> io::Result<Progress> {
        let Some(mut closing) = self.closing.take() else {
            return Ok(Progress::Done);
        };
        let progress = self.go_on(&mut closing, newest, turn);
        if matches!(progress, Ok(Progress::Done)) {
            closing.segment.remove();
        } else {
            self.closing = Some(closing);
        }
        progress
    }

    fn go_on(
        &mut self,
        closing: &mut Closing,
        newest: &Newest,
        turn: Turn,
    ) -> io::Result<Progress> {
        let (segment, writer) = (&mut closing.segment, &mut self.writer);
        let about = (segment.info.pid, segment.info.process_key);
        if !closing.is_empty {
            let mut sink = |info: ChunkInfo, records: &[u8]| writer.chunk(&info, records);
            if segment.take(Take::Everything, turn, &mut sink)? == Progress::Begun {
                return Ok(Progress::Begun);
            }
            closing.is_empty = true;
            let totals = segment.totals();
            self.owners
                .saw(segment.info.pid, segment.info.start_ticks, &segment.users);
            self.rings.close_process(about.0, about.1, writer)?;
            let totals = SegmentTotals {
                chunkless_samples: totals.chunkless_samples,
                chunkless_weight: totals.chunkless_weight,
                unarmed_threads: totals.unarmed_threads,
                damaged_bytes: segment.damaged,
            };
            writer.own(about, RecordKind::SegmentTotals, |out| totals.encode(out))?;
            self.period_ns = self.period_ns.max(segment.period_ns);
            if !is_replaced(segment, newest) {
                closing.map = map_of(segment, &mut self.maps_left, &mut self.refusals);
            }
        }
        let Some(map) = &mut closing.map else {
            return Ok(Progress::Done);
        };
        map.take(turn, &mut |lines| {
            writer.own(about, RecordKind::PerfMap, |out| {
                PerfMap { lines }.encode(out)
            })
        })
    }
}

impl Closing {
    const fn new(segment: Segment) -> Self {
        Self {
            segment,
            is_empty: false,
            map: None,
        }
    }
}

/// The JIT's symbols of a segment's process.
fn map_of(segment: &Segment, left: &mut u64, refusals: &mut Refusals) -> Option<Map> {
    let is_rightful = |user| segment.users.contains(&user);
    match jit_map::open(segment.info.pid, segment.started_ns?, is_rightful) {
        Ok(found) => found.map(|mut file| {
            file.set_limit(file.limit().min(*left));
            *left -= file.limit();
            Map::new(file)
        }),
        Err(refused) => {
            refusals.add(refused);
            None
        }
    }
}

/// Whether the process has replaced its program, and the new one has a segment of its own.
fn is_replaced(segment: &Segment, newest: &Newest) -> bool {
    let key = newest.get(&(segment.info.pid, segment.info.start_ticks));
    key.is_some_and(|key| *key > segment.info.process_key)
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
