//! The segment: the file that this process maps and its threads write samples to.
//!
//! Not here: what records hold ([`engine::wire`]), and who writes which ([`crate::thread`]). The
//! file is opened for a moment whenever it must grow, and mapped; no descriptor stays open in the
//! program.
//!
//! # Safety
//! Mapped chunks stay mapped until the process ends, so pointers to them never dangle; a chunk is
//! written by its owner alone. In a fork child the mappings are gone (`MADV_DONTFORK`) and
//! [`Segment::forget`] runs before anything else looks.
#![allow(unsafe_code)]

use crate::arch;
use crate::sys::{self, Errno, File, FileIdentity, Pointers};
use crate::text::{PATH_SIZE, Text};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use engine::wire::chunk::{self, ChunkHeader, ChunkState, SEGMENT_STRIDE};
use engine::wire::file::{self, FileHeader, FileInfo, FileKind};

const MAX_CHUNKS: usize = chunk::MOST_IN_SEGMENT;

/// With room for all of them.
type Chunks = Pointers<u8, 128>;

const _: () = assert!(Chunks::LENGTH >= MAX_CHUNKS);

/// The one segment of the process.
pub struct Segment {
    header: AtomicPtr<FileHeader>,
    file: UnsafeCell<Place>,
    /// Where each chunk of the file is mapped; null if not (yet).
    chunks: Chunks,
    /// The first chunk, which came with the file, until a thread takes it; then null.
    first: AtomicPtr<u8>,
    /// A chunk that is nobody's, while nobody writes to it; else null.
    common: AtomicPtr<u8>,
    /// Chunks begun.
    used: AtomicUsize,
    /// Chunks allowed.
    limit: AtomicUsize,
    /// The next `sequence`.
    sequence: AtomicU64,
    /// Where to look first for a chunk that the collector has freed.
    hint: AtomicUsize,
    /// The next chunk of those that were taken in advance, and where they end.
    laid_in: AtomicUsize,
    laid_in_end: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Place {
    path: Text<PATH_SIZE>,
    identity: Option<FileIdentity>,
    process_key: u64,
    pid: u32,
}

// SAFETY: `file` is written by `create` and `forget` only, which run before other threads use the
// segment; the rest is atomic.
unsafe impl Sync for Segment {}

/// The one segment.
pub static SEGMENT: Segment = Segment {
    header: AtomicPtr::new(ptr::null_mut()),
    file: UnsafeCell::new(Place {
        path: Text::EMPTY,
        identity: None,
        process_key: 0,
        pid: 0,
    }),
    chunks: Chunks::new(),
    first: AtomicPtr::new(ptr::null_mut()),
    common: AtomicPtr::new(ptr::null_mut()),
    used: AtomicUsize::new(0),
    limit: AtomicUsize::new(0),
    sequence: AtomicU64::new(0),
    hint: AtomicUsize::new(0),
    laid_in: AtomicUsize::new(0),
    laid_in_end: AtomicUsize::new(0),
};

/// Who writes a segment.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// In its own PID namespace.
    pub pid: u32,
    /// When the program image started (`CLOCK_MONOTONIC`, ns).
    pub process_key: u64,
    /// When the process started (clock ticks since boot).
    pub start_ticks: u64,
}

impl Segment {
    /// Creates the file and its first chunk. A file that the same process left when it replaced its
    /// program is continued.
    ///
    /// # Errors
    /// As `open`, `fallocate` and `mmap`.
    pub fn create(&self, writer: Writer, size: u64) -> Result<(), Errno> {
        let path = self.path();
        let mut terminated = path;
        let (flags, mode) = (libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW, 0o600);
        let (file, ours) = match File::open(terminated.path(), flags | libc::O_EXCL, mode) {
            Ok(file) => (file, false),
            Err(Errno(libc::EEXIST)) => {
                let file = File::open(terminated.path(), flags, mode)?;
                match is_continued(&file, writer)? {
                    Some(ours) => (file, ours),
                    None => {
                        // Not truncated: another process may have it mapped, and would die of that.
                        sys::remove_file(terminated.path())?;
                        let file = File::open(terminated.path(), flags | libc::O_EXCL, mode)?;
                        (file, false)
                    }
                }
            }
            Err(error) => return Err(error),
        };
        // With the first chunk, where there is room for it and none yet: a process that ends soon
        // needs no other.
        let with_chunk = file::HEADER_SIZE + SEGMENT_STRIDE;
        let has_chunk = !ours && file.allocate(0, with_chunk as u64).is_ok();
        let length = if has_chunk {
            with_chunk
        } else {
            file.allocate(0, file::HEADER_SIZE as u64)?;
            file::HEADER_SIZE
        };
        let start = sys::map_file(&file, 0, length, true, 0)?;
        sys::advise(start, length, libc::MADV_DONTFORK);
        let header = start.cast::<FileHeader>();
        // SAFETY: a fresh shared mapping of a page, aligned, that nobody else of this process knows
        // yet.
        unsafe {
            (*header).version = file::VERSION;
            (*header).kind = FileKind::Segment as u32;
            (*header).machine = arch::MACHINE;
            (*header).pid = writer.pid;
            (*header).process_key = writer.process_key;
            (*header).start_ticks = writer.start_ticks;
            (*header).magic = file::MAGIC;
        }
        let continued = if ours {
            file.size()?.saturating_sub(file::HEADER_SIZE as u64) / SEGMENT_STRIDE as u64
        } else {
            u64::from(has_chunk)
        };
        let first = match has_chunk {
            true => start.wrapping_add(file::HEADER_SIZE),
            false => ptr::null_mut(),
        };
        let place = Place {
            path,
            identity: Some(file.identity()?),
            process_key: writer.process_key,
            pid: writer.pid,
        };
        // SAFETY: runs before any other use of the segment, see the type.
        unsafe { *self.file.get() = place };
        let limit = (size / SEGMENT_STRIDE as u64)
            .saturating_add(if ours { continued } else { 0 })
            .min(MAX_CHUNKS as u64);
        self.limit.store(limit.max(1) as usize, Relaxed);
        self.used.store(continued as usize, Relaxed);
        if let (true, Some(slot)) = (has_chunk, self.chunks.get(0)) {
            slot.store(first, Relaxed);
        }
        self.first.store(first, Relaxed);
        self.sequence.store(0, Relaxed);
        self.header.store(header, Release);
        Ok(())
    }

    /// Where the file is, or is to be.
    pub fn path(&self) -> Text<PATH_SIZE> {
        // SAFETY: written before other threads use the segment, see the type.
        unsafe { (*self.file.get()).path }
    }

    /// Says where the file is to be.
    pub fn set_path(&self, path: Text<PATH_SIZE>) {
        // SAFETY: as above.
        unsafe { (*self.file.get()).path = path };
    }

    /// In a fork child: the mappings did not come along, and the file is the parent's.
    pub fn forget(&self) {
        self.header.store(ptr::null_mut(), Release);
        let used = self.used.swap(0, Relaxed);
        for slot in (0..used).filter_map(|index| self.chunks.get(index)) {
            slot.store(ptr::null_mut(), Relaxed);
        }
        self.hint.store(0, Relaxed);
        self.laid_in_end.store(0, Relaxed);
        self.first.store(ptr::null_mut(), Relaxed);
        self.common.store(ptr::null_mut(), Relaxed);
    }

    /// The file header, once there is a file.
    pub fn header(&self) -> Option<&FileHeader> {
        // SAFETY: null or a mapping that stays.
        unsafe { self.header.load(Acquire).as_ref() }
    }

    /// Gives a chunk to a thread: one that the collector has freed, else a new one at the end of
    /// the file.
    ///
    /// # Signal safety
    /// Atomics and raw system calls; never waits.
    ///
    /// # Errors
    /// `ENOSPC` when the size limit or the disk is full, and as `open`, `fallocate`, `mmap`.
    pub fn claim(&self, tid: u32, thread_key: u64) -> Result<Chunk, Errno> {
        self.header().ok_or(Errno(libc::EBADF))?;
        let first = self.first.swap(ptr::null_mut(), AcqRel);
        let taken = Some(first).filter(|first| !first.is_null());
        let taken = taken.or_else(|| self.recycled());
        let base = match taken.or_else(|| self.laid_in()) {
            Some(base) => base,
            None => self.map(self.reserve(1)?)?,
        };
        let chunk = Chunk(base);
        // SAFETY: `file` does not change while the segment is in use.
        let place = unsafe { &*self.file.get() };
        let header = chunk.header();
        header.committed.store(0, Relaxed);
        header.stride.store(SEGMENT_STRIDE as u32, Relaxed);
        header.pid.store(place.pid, Relaxed);
        header.tid.store(tid, Relaxed);
        header.process_key.store(place.process_key, Relaxed);
        header.thread_key.store(thread_key, Relaxed);
        header
            .sequence
            .store(self.sequence.fetch_add(1, Relaxed), Relaxed);
        header.state.store(ChunkState::Owned as u32, Relaxed);
        header.magic.store(chunk::MAGIC, Release);
        Ok(chunk)
    }

    /// Takes the chunk that is nobody's, for a record that says itself whom it is about: whoever
    /// has it has it alone. Two who ask at the same time have two.
    ///
    /// # Signal safety
    /// As [`Segment::claim`].
    ///
    /// # Errors
    /// As [`Segment::claim`].
    pub fn take_common(&self) -> Result<Chunk, Errno> {
        let base = self.common.swap(ptr::null_mut(), AcqRel);
        match base.is_null() {
            true => self.claim(0, 0),
            false => Ok(Chunk(base)),
        }
    }

    /// Leaves it to the next.
    pub fn leave_common(&self, chunk: Chunk) {
        let left = self
            .common
            .compare_exchange(ptr::null_mut(), chunk.0, AcqRel, Relaxed);
        if left.is_err() {
            chunk.seal();
        }
    }

    /// Takes so many chunks more from the file, for threads to come upon, and none after that: soon
    /// nobody may open files any more.
    pub fn lay_in(&self, count: usize) {
        if self.header().is_none() {
            return;
        }
        let room = self.limit.load(Relaxed);
        let count = count.min(room.saturating_sub(self.used.load(Relaxed)));
        if let Ok(first) = self.reserve(count) {
            let end = first.wrapping_add(count);
            let laid_in = (first..end).take_while(|index| self.map(*index).is_ok());
            let end = first.wrapping_add(laid_in.count());
            self.laid_in.store(first, Relaxed);
            self.laid_in_end.store(end, Release);
        }
        self.limit.store(0, Relaxed);
    }

    /// One that was taken in advance.
    fn laid_in(&self) -> Option<*mut u8> {
        let end = self.laid_in_end.load(Acquire);
        let next = |index: usize| (index < end).then_some(index.wrapping_add(1));
        let index = self.laid_in.fetch_update(AcqRel, Relaxed, next).ok()?;
        self.chunks.get(index).map(|slot| slot.load(Acquire))
    }

    fn recycled(&self) -> Option<*mut u8> {
        let used = self.used.load(Acquire).min(MAX_CHUNKS);
        let hint = self.hint.load(Relaxed);
        // A bounded look around: a freed chunk that is missed now is found next time.
        for step in 0..used.min(256) {
            let index = hint.wrapping_add(step).checked_rem(used)?;
            let slot = self.chunks.get(index).map(|slot| slot.load(Acquire));
            let Some(base) = slot.filter(|base| !base.is_null()) else {
                continue;
            };
            let chunk = Chunk(base);
            let header = chunk.header();
            // magic is 0 in a chunk that is mapped but not begun: its claimer is about to.
            let begun = header.magic.load(Relaxed) == chunk::MAGIC;
            let (free, owned) = (ChunkState::Free as u32, ChunkState::Owned as u32);
            if begun
                && header
                    .state
                    .compare_exchange(free, owned, AcqRel, Relaxed)
                    .is_ok()
            {
                self.hint.store(index.wrapping_add(1), Relaxed);
                return Some(base);
            }
        }
        None
    }

    /// The first of so many chunks that nobody has.
    fn reserve(&self, count: usize) -> Result<usize, Errno> {
        let limit = self.limit.load(Relaxed);
        let next = self.used.fetch_update(AcqRel, Relaxed, |used| {
            let next = used.wrapping_add(count);
            (next <= limit).then_some(next)
        });
        next.map_err(|_| Errno(libc::ENOSPC))
    }

    /// Brings such a chunk into the file, and into memory.
    fn map(&self, index: usize) -> Result<*mut u8, Errno> {
        // SAFETY: as in `claim`.
        let place = unsafe { &*self.file.get() };
        let mut path = place.path;
        let file = File::open(path.path(), libc::O_RDWR | libc::O_NOFOLLOW, 0)?;
        if Some(file.identity()?) != place.identity {
            return Err(Errno(libc::ESTALE)); // the path leads elsewhere by now (chroot, rename)
        }
        let slot = self.chunks.needed(index)?;
        let offset = (file::HEADER_SIZE as u64)
            .saturating_add((index as u64).saturating_mul(SEGMENT_STRIDE as u64));
        file.allocate(offset, SEGMENT_STRIDE as u64)?;
        let neighbour = index
            .checked_sub(1)
            .and_then(|before| self.chunks.get(before))
            .map_or(ptr::null_mut(), |slot| slot.load(Relaxed));
        let near = match neighbour.is_null() {
            true => 0,
            false => neighbour.wrapping_add(SEGMENT_STRIDE) as usize,
        };
        let base = sys::map_file(&file, offset, SEGMENT_STRIDE, true, near)?;
        sys::advise(base, SEGMENT_STRIDE, libc::MADV_DONTFORK);
        slot.store(base, Release);
        Ok(base)
    }
}

/// Whether a file that is there already is this very process's, to be continued; `false` if it is
/// empty, `None` if it cannot be used.
fn is_continued(file: &File, writer: Writer) -> Result<Option<bool>, Errno> {
    let mut start = [0u8; 128];
    let existing = FileInfo::parse(file.read(&mut start)).ok();
    let ours = existing.is_some_and(|info| {
        info.kind == FileKind::Segment
            && info.pid == writer.pid
            && info.start_ticks == writer.start_ticks
    });
    // Whoever owns a file can cut it short, which would kill us.
    let usable = file.is_own()? && (ours || start.iter().all(|byte| *byte == 0));
    Ok(usable.then_some(ours))
}

/// A mapped chunk that the holder of this value owns.
#[derive(Clone, Copy, Debug)]
pub struct Chunk(*mut u8);

impl Chunk {
    /// One in memory of a test's.
    ///
    /// # Safety
    /// `SEGMENT_STRIDE` zeroed bytes, aligned to 8, which outlive all copies of it and are used
    /// through them alone.
    #[cfg(test)]
    pub(crate) unsafe fn at(memory: *mut u8) -> Self {
        Self(memory)
    }

    /// Its header.
    pub fn header(&self) -> &ChunkHeader {
        // SAFETY: chunks are page-aligned mappings of SEGMENT_STRIDE bytes that stay; the header is
        // all atomics.
        unsafe { &*self.0.cast::<ChunkHeader>() }
    }

    /// The bytes behind `committed`.
    ///
    /// # Safety
    /// The caller owns the chunk and holds no other such slice of it.
    pub unsafe fn tail<'a>(self, committed: usize) -> &'a mut [u8] {
        let start = chunk::HEADER_SIZE
            .saturating_add(committed)
            .min(SEGMENT_STRIDE);
        // SAFETY: within the mapping; exclusive by the caller's promise.
        unsafe {
            core::slice::from_raw_parts_mut(self.0.add(start), SEGMENT_STRIDE.wrapping_sub(start))
        }
    }

    /// Makes everything up to `committed` visible to readers, whatever happens to this process
    /// afterwards.
    pub fn commit(self, committed: usize) {
        self.header().committed.store(committed as u32, Release);
    }

    /// What was made visible so far, bytes.
    pub fn committed(self) -> usize {
        self.header().committed.load(Relaxed) as usize
    }

    /// Hands the chunk to the collector; the caller no longer owns it.
    pub fn seal(self) {
        self.header()
            .state
            .store(ChunkState::Sealed as u32, Release);
    }
}
