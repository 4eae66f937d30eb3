//! The segment: the file that this process maps and its threads write samples to.
//!
//! Not here: what records hold ([`engine::wire`]), and who writes which ([`crate::thread`]).
//! The file is opened for a moment whenever it must grow, and mapped; no descriptor stays open in the host.
//!
//! # Safety
//! Mapped chunks stay mapped until the process ends, so pointers to them never dangle; a chunk is written by its owner alone. In a
//! fork child the mappings are gone (`MADV_DONTFORK`) and [`Segment::forget`] runs before anything else looks.
#![allow(unsafe_code)]

use crate::arch;
use crate::config::PATH_SIZE;
use crate::sys::{self, Errno, File, FileIdentity};
use crate::text::Text;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use engine::wire::chunk::{self, ChunkHeader, ChunkState, SEGMENT_STRIDE};
use engine::wire::file::{self, FileHeader, FileInfo, FileKind};

/// Most chunks that a segment can have: 2 GiB.
const MAX_CHUNKS: usize = 65_536;

/// The one segment of the process.
pub struct Segment {
    header: AtomicPtr<FileHeader>,
    file: UnsafeCell<Place>,
    /// Where each chunk of the file is mapped; 0 if not (yet).
    chunks: [AtomicUsize; MAX_CHUNKS],
    /// Chunks begun.
    used: AtomicUsize,
    /// Chunks allowed.
    limit: AtomicUsize,
    /// The next `sequence`.
    sequence: AtomicU64,
    /// Where to look first for a chunk that the collector has freed.
    hint: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Place {
    path: Text<PATH_SIZE>,
    identity: Option<FileIdentity>,
    process_key: u64,
    pid: u32,
}

// SAFETY: `file` is written by `create` and `forget` only, which run before other threads use the segment; the rest is atomic.
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
    chunks: [const { AtomicUsize::new(0) }; MAX_CHUNKS],
    used: AtomicUsize::new(0),
    limit: AtomicUsize::new(0),
    sequence: AtomicU64::new(0),
    hint: AtomicUsize::new(0),
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
    /// Creates the file and its first chunk. A file that the same process left when it replaced its program is continued.
    ///
    /// # Errors
    /// As `open`, `fallocate` and `mmap`.
    pub fn create(&self, writer: Writer, size: u64) -> Result<(), Errno> {
        let path = self.path();
        let mut terminated = path;
        let (flags, mode) = (libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW, 0o600);
        let mut file = File::open(terminated.path(), flags, mode)?;
        let mut start = [0u8; 128];
        let existing = FileInfo::parse(file.read(&mut start)).ok();
        let ours = existing.is_some_and(|info| {
            info.kind == FileKind::Segment
                && info.pid == writer.pid
                && info.start_ticks == writer.start_ticks
        });
        if !ours && !start.iter().all(|byte| *byte == 0) {
            // Not truncated: another process may have it mapped, and would die of that.
            sys::remove_file(terminated.path())?;
            file = File::open(terminated.path(), flags | libc::O_EXCL, mode)?;
        }
        file.allocate(0, file::HEADER_SIZE as u64)?;
        let header = sys::map_file(&file, 0, file::HEADER_SIZE, true, 0)?.cast::<FileHeader>();
        sys::advise(header.cast(), file::HEADER_SIZE, libc::MADV_DONTFORK);
        // SAFETY: a fresh shared mapping of a page, aligned, that nobody else of this process knows yet.
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
            0
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
            .saturating_add(continued)
            .min(MAX_CHUNKS as u64);
        self.limit.store(limit.max(1) as usize, Relaxed);
        self.used.store(continued as usize, Relaxed);
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
        for slot in self.chunks.iter().take(used) {
            slot.store(0, Relaxed);
        }
        self.hint.store(0, Relaxed);
    }

    /// The file header, once there is a file.
    pub fn header(&self) -> Option<&FileHeader> {
        // SAFETY: null or a mapping that stays.
        unsafe { self.header.load(Acquire).as_ref() }
    }

    /// Gives a chunk to a thread: one that the collector has freed, else a new one at the end of the file.
    ///
    /// # Signal safety
    /// Atomics and raw system calls; never waits.
    ///
    /// # Errors
    /// `ENOSPC` when the size limit or the disk is full, and as `open`, `fallocate`, `mmap`.
    pub fn claim(&self, tid: u32, thread_key: u64) -> Result<Chunk, Errno> {
        self.header().ok_or(Errno(libc::EBADF))?;
        let base = match self.recycled() {
            Some(base) => base,
            None => self.grow()?,
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

    fn recycled(&self) -> Option<*mut u8> {
        let used = self.used.load(Acquire).min(MAX_CHUNKS);
        let hint = self.hint.load(Relaxed);
        // A bounded look around: a freed chunk that is missed now is found next time.
        for step in 0..used.min(256) {
            let index = hint.wrapping_add(step).checked_rem(used)?;
            let base = self.chunks.get(index)?.load(Acquire);
            if base == 0 {
                continue;
            }
            let chunk = Chunk(base as *mut u8);
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
                return Some(base as *mut u8);
            }
        }
        None
    }

    fn grow(&self) -> Result<*mut u8, Errno> {
        let limit = self.limit.load(Relaxed);
        let next = self.used.fetch_update(AcqRel, Relaxed, |used| {
            (used < limit).then_some(used.wrapping_add(1))
        });
        let index = next.map_err(|_| Errno(libc::ENOSPC))?;
        // SAFETY: as in `claim`.
        let place = unsafe { &*self.file.get() };
        let mut path = place.path;
        let file = File::open(path.path(), libc::O_RDWR | libc::O_NOFOLLOW, 0)?;
        if Some(file.identity()?) != place.identity {
            return Err(Errno(libc::ESTALE)); // the path leads elsewhere by now (chroot, rename)
        }
        let offset = (file::HEADER_SIZE as u64)
            .saturating_add((index as u64).saturating_mul(SEGMENT_STRIDE as u64));
        file.allocate(offset, SEGMENT_STRIDE as u64)?;
        let neighbour = index
            .checked_sub(1)
            .and_then(|before| self.chunks.get(before))
            .map_or(0, |slot| slot.load(Relaxed));
        let near = if neighbour == 0 {
            0
        } else {
            neighbour.wrapping_add(SEGMENT_STRIDE)
        };
        let base = sys::map_file(&file, offset, SEGMENT_STRIDE, true, near)?;
        sys::advise(base, SEGMENT_STRIDE, libc::MADV_DONTFORK);
        if let Some(slot) = self.chunks.get(index) {
            slot.store(base as usize, Release);
        }
        Ok(base)
    }
}

/// A mapped chunk that the holder of this value owns.
#[derive(Clone, Copy, Debug)]
pub struct Chunk(*mut u8);

impl Chunk {
    /// Its header.
    pub fn header(&self) -> &ChunkHeader {
        // SAFETY: chunks are page-aligned mappings of SEGMENT_STRIDE bytes that stay; the header is all atomics.
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

    /// Makes everything up to `committed` visible to readers, whatever happens to this process afterwards.
    pub fn commit(self, committed: usize) {
        self.header().committed.store(committed as u32, Release);
    }

    /// Hands the chunk to the collector; the caller no longer owns it.
    pub fn seal(self) {
        self.header()
            .state
            .store(ChunkState::Sealed as u32, Release);
    }
}
