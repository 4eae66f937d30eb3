//! One segment: what the collector knows of a profiled process's file, and how it takes chunks out
//! of it.
//!
//! The process that writes the file is trusted with nothing: it is read with pread, never mapped,
//! so that a file that is cut short does no harm, and what does not check is left out. However long
//! it says it is, only so many chunks are looked at, and none in a hole. Free → owned → sealed are
//! the process's steps, sealed → free is ours ([`engine::wire::chunk::ChunkState`]).

use super::owners::Owners;
use super::turn::{Progress, Turn};
use crate::processes::{self, Stat};
use engine::wire::WireError;
use engine::wire::chunk::{
    ChunkHeader, ChunkInfo, ChunkState, FROM_OUTSIDE, FROM_RING, FROM_SWITCHES, HEADER_SIZE,
    MOST_IN_SEGMENT, SEGMENT_STRIDE,
};
use engine::wire::event::{Event, EventKind};
use engine::wire::file::{self, FileInfo, FileKind};
use engine::wire::process::Process;
use engine::wire::record::{self, RecordKind};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::kill;
use nix::unistd::{Pid, Whence, geteuid, lseek};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{Ordering::Acquire, fence};

/// A segment and what has been seen of its process.
#[derive(Debug)]
pub struct Segment {
    path: PathBuf,
    /// Open all the time while there are few segments, else for each look.
    file: Option<File>,
    stays_open: bool,
    /// The file header as first read.
    pub info: FileInfo,
    /// The process was seen alive under its pid, so that pid means the same to us.
    known: bool,
    /// It was gone before it was seen: its pid means the same to us, and is nobody's or another's.
    gone: bool,
    /// It has said that it replaces its program.
    pub farewell: bool,
    /// Sampling period in force, ns, once known.
    pub period_ns: Option<u64>,
    /// When it started (`CLOCK_MONOTONIC`, ns) in wall clock time, ns since the epoch, once known.
    pub started_ns: Option<u64>,
    /// Bytes of chunks that did not check.
    pub damaged: u64,
    /// The users whose process it was seen to be; files of theirs may be about it.
    pub users: BTreeSet<u32>,
    /// The first chunk that the next turn looks at.
    next: u64,
}

/// A file in the session's directory, looked at.
#[derive(Debug)]
pub enum Opened {
    /// A segment.
    Segment(Box<Segment>),
    /// None, or one that its process is still making.
    NotYet,
    /// It says that it is a process's that belongs to somebody else than the file.
    Foreign,
}

/// Where chunks go: a header and its whole records.
pub type Sink<'a> = dyn FnMut(ChunkInfo, &[u8]) -> io::Result<()> + 'a;

/// Which chunks to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Those that are sealed; they are freed.
    Sealed,
    /// What is committed in others, too: nobody writes any more, or nobody will wait for it.
    Everything,
}

impl Segment {
    /// Finds out whose segment that is, by the process if it lives, else by what is known of it.
    pub fn open(path: PathBuf, stays_open: bool, owners: &Owners) -> Opened {
        let Ok(file) = open(&path) else {
            return Opened::NotYet;
        };
        let is_segment = |info: &FileInfo| info.kind == FileKind::Segment;
        let (Some(info), Ok(metadata)) = (header(&file).ok().filter(is_segment), file.metadata())
        else {
            return Opened::NotYet;
        };
        // Of a process that is gone, or of another PID namespace, there is what was known before;
        // and that somebody told it the way.
        let known = start_ticks(info.pid) == Some(info.start_ticks);
        let mut users = BTreeSet::new();
        if known {
            users = users_of(info.pid);
        }
        let user = metadata.uid();
        let is_own = user == geteuid().as_raw();
        let may_be = match users.is_empty() {
            true => owners.may_be(user, info.pid, info.start_ticks, info.process_key),
            false => users.contains(&user),
        };
        if !may_be && !is_own {
            return Opened::Foreign;
        }
        users.insert(user);
        Opened::Segment(Box::new(Self {
            path,
            file: stays_open.then_some(file),
            stays_open,
            info,
            known,
            gone: false,
            farewell: false,
            period_ns: None,
            started_ns: None,
            damaged: 0,
            users,
            next: 0,
        }))
    }

    /// Whether the process is gone for certain, or has replaced its program and cannot be found. A
    /// process of another PID namespace that still runs is never taken for gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.gone || (self.known || self.farewell) && !exists(self.info.pid)
    }

    /// Finds out whether a process that nobody has seen alive is gone. Most short programs are
    /// before the first look, and their segments would stay until recording ends.
    fn look_for_process(&mut self) {
        if self.known || self.gone {
            return;
        }
        let started = start_ticks(self.info.pid);
        let is_another = started.is_some_and(|ticks| ticks != self.info.start_ticks);
        if is_another || !exists(self.info.pid) {
            let own = fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino());
            self.gone = own.is_ok_and(|own| self.namespace() == Some(own));
        }
    }

    /// The PID namespace that its first record names.
    fn namespace(&mut self) -> Option<u64> {
        let mut start = [0; 8192];
        let offset = (file::HEADER_SIZE + HEADER_SIZE) as u64;
        let count = self.opened().ok()?.read_at(&mut start, offset).ok()?;
        let record = record::parse(start.get(..count)?).ok()?;
        let is_process = RecordKind::from_number(record.kind) == Some(RecordKind::Process);
        let process = is_process.then(|| Process::decode(record.payload).ok())?;
        process.map(|process| process.pid_namespace)
    }

    /// Whether the process is known to be there.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.known && exists(self.info.pid)
    }

    /// The file header as it is now.
    #[must_use]
    pub fn totals(&mut self) -> FileInfo {
        let info = self.opened().and_then(header);
        info.unwrap_or(self.info)
    }

    /// Where it is.
    #[must_use]
    pub const fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Removes the file.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Gives the chunks that may be taken to `sink`, as header and whole records; `sink` stores
    /// them or fails, and a chunk is freed only when it is stored. At least one chunk is looked at,
    /// whatever the turn.
    ///
    /// # Errors
    /// What `sink` says. A segment that cannot be read is none.
    pub fn take(&mut self, take: Take, turn: Turn, sink: &mut Sink<'_>) -> io::Result<Progress> {
        let taken = self.take_chunks(take, turn, sink);
        self.look_for_process();
        if !self.stays_open {
            self.file = None;
        }
        taken
    }

    fn take_chunks(&mut self, take: Take, turn: Turn, sink: &mut Sink<'_>) -> io::Result<Progress> {
        let Ok(length) = self.opened().and_then(|file| Ok(file.metadata()?.len())) else {
            return Ok(Progress::Done);
        };
        let chunks = length.saturating_sub(file::HEADER_SIZE as u64) / SEGMENT_STRIDE as u64;
        let chunks = chunks.min(MOST_IN_SEGMENT as u64);
        let mut buffer = [0; SEGMENT_STRIDE];
        let first = std::mem::take(&mut self.next);
        let mut index = first;
        let mut stored = false;
        while index < chunks {
            if index > first && turn.is_over() {
                self.next = index;
                return Ok(Progress::Begun);
            }
            let offset = file::HEADER_SIZE as u64 + index * SEGMENT_STRIDE as u64;
            index += 1;
            let found = self
                .opened()
                .and_then(|file| wanted(file, offset, take, &mut buffer));
            let (state, info) = match found {
                Ok(Found::Chunk(state, info)) => (state, info),
                Ok(Found::NotBegun) => {
                    let behind = offset + SEGMENT_STRIDE as u64;
                    let data = self.opened().map(|file| next_data(file, behind));
                    let data = data
                        .unwrap_or(u64::MAX)
                        .saturating_sub(file::HEADER_SIZE as u64);
                    index = index.max(data / SEGMENT_STRIDE as u64);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    // Once: whatever is wrong is looked at again and again until the end.
                    let last = take == Take::Everything;
                    self.damaged += if last { SEGMENT_STRIDE as u64 } else { 0 };
                    continue;
                }
                Ok(Found::NotWanted) | Err(_) => continue,
            };
            let records = buffer
                .get(HEADER_SIZE..HEADER_SIZE + info.committed as usize)
                .unwrap_or(&[]);
            if (info.pid, info.process_key) != (self.info.pid, self.info.process_key) {
                // Somebody else's: nothing of it is believed.
                self.damaged += records.len() as u64;
                self.free(offset);
                continue;
            }
            let intact = self.look_at(records);
            self.damaged += (records.len() - intact) as u64;
            sink(
                ChunkInfo {
                    committed: intact as u32,
                    sequence: info.sequence & !(FROM_RING | FROM_OUTSIDE | FROM_SWITCHES),
                    ..info
                },
                records.get(..intact).unwrap_or(&[]),
            )?;
            stored = true;
            if state == ChunkState::Sealed {
                self.free(offset);
            }
        }
        if stored {
            self.note_users();
        }
        Ok(Progress::Done)
    }

    /// A program may become another user's while it runs.
    fn note_users(&mut self) {
        if self.known && start_ticks(self.info.pid) == Some(self.info.start_ticks) {
            self.users.extend(users_of(self.info.pid));
        }
    }

    /// Notes what concerns the collector, and gives the length of the records up to the first that
    /// does not check, or that no program may write.
    fn look_at(&mut self, records: &[u8]) -> usize {
        let mut at = 0;
        while let Some(record) = records
            .get(at..)
            .filter(|rest| !rest.is_empty())
            .and_then(|rest| record::parse(rest).ok())
        {
            match RecordKind::from_number(record.kind) {
                Some(kind) if kind.is_of_the_collector() => break,
                Some(RecordKind::Process) => {
                    if let Ok(process) = Process::decode(record.payload) {
                        self.period_ns = Some(process.period_ns);
                        self.started_ns = process.time_ns.checked_add(process.realtime_offset_ns);
                    }
                }
                Some(RecordKind::Event) => {
                    match Event::decode(record.payload).map(|event| event.kind) {
                        Ok(EventKind::Exec) => self.farewell = true,
                        Ok(EventKind::ExecFailed) => self.farewell = false,
                        _ => {}
                    }
                }
                _ => {}
            }
            at += record.length;
        }
        at
    }

    /// The last step of a chunk's round. `committed` goes first: whoever claims the chunk next has
    /// it say nothing until it says something new.
    fn free(&mut self, offset: u64) {
        let Ok(file) = self.opened() else { return };
        let _ = file.write_all_at(
            &0u32.to_le_bytes(),
            offset + offset_of!(ChunkHeader, committed) as u64,
        );
        let _ = file.write_all_at(
            &(ChunkState::Free as u32).to_le_bytes(),
            offset + offset_of!(ChunkHeader, state) as u64,
        );
    }

    fn opened(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            self.file = Some(open(&self.path)?);
        }
        self.file
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// What stands at the place of a chunk.
enum Found {
    /// One that is to be taken.
    Chunk(ChunkState, ChunkInfo),
    /// One that is not.
    NotWanted,
    /// None yet, or a hole.
    NotBegun,
}

/// Reads the chunk at `offset` if it is to be taken: the header first, and what it counts after it.
/// `InvalidData`: a chunk whose header cannot be true.
fn wanted(
    file: &File,
    offset: u64,
    take: Take,
    buffer: &mut [u8; SEGMENT_STRIDE],
) -> io::Result<Found> {
    let mut header = [0; HEADER_SIZE];
    file.read_exact_at(&mut header, offset)?;
    fence(Acquire);
    let info = match ChunkInfo::parse(&header) {
        Ok(info) if info.stride as usize <= SEGMENT_STRIDE => info,
        // Without its magic it is not begun.
        Err(WireError::BadMagic(_)) => return Ok(Found::NotBegun),
        Ok(_) | Err(_) => return Err(io::ErrorKind::InvalidData.into()),
    };
    let state = match info.state {
        state if state == ChunkState::Sealed as u32 => ChunkState::Sealed,
        state if state == ChunkState::Owned as u32 && take == Take::Everything => ChunkState::Owned,
        _ => return Ok(Found::NotWanted),
    };
    file.read_exact_at(buffer, offset)?;
    match state {
        // Its header stands still now, and did perhaps not when it was read first.
        ChunkState::Sealed => ChunkInfo::parse(buffer)
            .map(|info| Found::Chunk(state, info))
            .map_err(|_| io::ErrorKind::InvalidData.into()),
        _ => Ok(Found::Chunk(state, info)),
    }
}

/// The first byte from there on that is in no hole; past the end if there is none.
fn next_data(file: &File, offset: u64) -> u64 {
    let Ok(at) = i64::try_from(offset) else {
        return u64::MAX;
    };
    match lseek(file, at, Whence::SeekData) {
        Ok(found) => u64::try_from(found).unwrap_or(offset),
        Err(Errno::ENXIO) => u64::MAX,
        Err(_) => offset,
    }
}

fn open(path: &std::path::Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

fn header(file: &File) -> io::Result<FileInfo> {
    let mut page = [0; 128];
    file.read_exact_at(&mut page, 0)?;
    FileInfo::parse(&page).map_err(io::Error::other)
}

/// When a process started, in ticks since boot. Unknown where `/proc` is another PID namespace's,
/// which has other processes of our numbers.
fn start_ticks(pid: u32) -> Option<u64> {
    static PROC_IS_OURS: LazyLock<bool> = LazyLock::new(processes::proc_is_ours);
    PROC_IS_OURS.then(|| Stat::read(pid)?.start_ticks())?
}

fn exists(pid: u32) -> bool {
    i32::try_from(pid)
        .is_ok_and(|pid| pid > 0 && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH))
}

/// The real, effective, saved and file system user of a process; none if that cannot be seen.
fn users_of(pid: u32) -> BTreeSet<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let users = users.unwrap_or_default().split_ascii_whitespace();
    users.filter_map(|user| user.parse().ok()).collect()
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
