//! The header of a chunk: whose it is, how much of it holds whole records, and that thread's
//! running totals.

use super::WireError;
use super::names::FIRST_SEQUENCE;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first four bytes of a chunk.
pub const MAGIC: u32 = u32::from_le_bytes(*b"RSCK");
/// Bytes of a chunk header; records follow.
pub const HEADER_SIZE: usize = 128;
/// Bytes from one chunk to the next in a segment.
pub const SEGMENT_STRIDE: usize = 32 * 1024;
/// Most chunks that a segment can have: 2 GiB.
pub const MOST_IN_SEGMENT: usize = 65_536;
/// Chunks of a recording start on multiples of this.
pub const ALIGNMENT: usize = 64;
/// Bit of [`ChunkHeader::sequence`] in chunks that the collector made of what it took out of a
/// thread's perf ring. They hold kernel samples only, in the order of their cursors, and of the
/// totals only [`ThreadTotals::lost_in_ring`], since the chunk before.
pub const FROM_RING: u64 = 1 << 63;

/// Likewise in chunks with what the collector saw of a thread from outside, at the end: a last
/// sample and the modules that it lies in. No totals.
pub const FROM_OUTSIDE: u64 = 1 << 62;

/// Likewise in chunks that the collector made of the kernel's records of threads beside what those
/// say themselves: of context switches, kernel samples of [`super::source::OFF_CPU`]; of threads
/// that unwind themselves in user mode only, or from some time on, those of CPU time that they have
/// not, by which the weight of the next of their own is less. Each is followed by its user stack;
/// modules and names that they need are there, too. Processes and threads are named by when the
/// kernel says that they began ([`ChunkHeader::process_key`], [`ChunkHeader::thread_key`]), which
/// is before they could say so themselves: the reader finds those that did. Totals are for threads
/// that did not.
pub const FROM_SWITCHES: u64 = 1 << 61;

/// Who may touch a chunk of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ChunkState {
    /// Nobody uses it; a thread of the process may claim it.
    Free = 0,
    /// A thread writes to it.
    Owned = 1,
    /// Full, or its thread has ended: the collector may read it and free it.
    Sealed = 2,
}

/// A chunk header, as it lies in the shared memory.
#[derive(Debug)]
#[repr(C)]
pub struct ChunkHeader {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// A [`ChunkState`].
    pub state: AtomicU32,
    /// Bytes to the next chunk, this header included.
    pub stride: AtomicU32,
    /// Bytes behind this header that hold whole records; stored with release order.
    pub committed: AtomicU32,
    /// The writer's process, in its own PID namespace.
    pub pid: AtomicU32,
    /// The writing thread, likewise.
    pub tid: AtomicU32,
    /// When the process image started (`CLOCK_MONOTONIC`, ns): with the pid it names one program
    /// run, across pid reuse and exec.
    pub process_key: AtomicU64,
    /// Counts the chunks of a process, from 0, in the order in which they were claimed.
    pub sequence: AtomicU64,
    /// When the thread was first seen (`CLOCK_MONOTONIC`, ns): with the tid it names one thread,
    /// across tid reuse.
    pub thread_key: AtomicU64,
    /// Totals of the thread so far.
    pub totals: ThreadTotals,
}

/// Running totals of one thread. Each chunk of the thread has a copy; the newest holds.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ThreadTotals {
    /// Samples written.
    pub samples: AtomicU64,
    /// Weight of those, in sampling periods.
    pub weight: AtomicU64,
    /// Samples that could not be written.
    pub lost_samples: AtomicU64,
    /// Weight of those, in sampling periods.
    pub lost_weight: AtomicU64,
    /// Time spent in the handler, ns.
    pub handler_ns: AtomicU64,
    /// CPU time of the thread when last looked at, ns; 0 if never.
    pub cpu_ns: AtomicU64,
    /// CPU time that the thread had used before it was armed, ns.
    pub unarmed_cpu_ns: AtomicU64,
    /// Samples of kernel and user mode that the kernel could not put into the thread's perf ring,
    /// because it was full. Their CPU time is in the weight of the samples around them.
    pub lost_in_ring: AtomicU64,
    /// CPU time that arming the thread took, ns; it is in the weight of the samples. Version 2 does
    /// not say.
    pub arming_ns: AtomicU64,
    /// Time from the kernel's samples to the handler's walks, ns: for each what it took on the
    /// average where that was seen. Earlier versions do not say.
    pub delivery_ns: AtomicU64,
}

/// A validated copy of the fields of a [`ChunkHeader`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the field of ChunkHeader or ThreadTotals of that name"
)]
pub struct ChunkInfo {
    pub state: u32,
    pub stride: u32,
    pub committed: u32,
    pub pid: u32,
    pub tid: u32,
    pub process_key: u64,
    pub sequence: u64,
    pub thread_key: u64,
    pub samples: u64,
    pub weight: u64,
    pub lost_samples: u64,
    pub lost_weight: u64,
    pub handler_ns: u64,
    pub cpu_ns: u64,
    pub unarmed_cpu_ns: u64,
    pub lost_in_ring: u64,
    pub arming_ns: u64,
    pub delivery_ns: u64,
}

impl ChunkInfo {
    /// Whether the collector made it of what it took out of a perf ring.
    #[must_use]
    pub const fn is_from_ring(&self) -> bool {
        self.sequence & FROM_RING != 0
    }

    /// Whether the collector made it of the kernel's records of context switches.
    #[must_use]
    pub const fn is_from_switches(&self) -> bool {
        self.sequence & FROM_SWITCHES != 0
    }

    /// Whether names of functions are in it, and nothing else.
    #[must_use]
    pub const fn is_from_names(&self) -> bool {
        self.tid == 0 && self.sequence >> FIRST_SEQUENCE.trailing_zeros() == 1
    }

    /// Whether the collector made it of what it saw of the thread from outside.
    #[must_use]
    pub const fn is_from_outside(&self) -> bool {
        self.sequence & FROM_OUTSIDE != 0
    }

    /// Reads a header. `bytes` starts at the chunk and may end anywhere.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadMagic`], or [`WireError::BadLength`] when stride
    /// and committed length contradict each other.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let word = |offset: usize| {
            let bytes = offset.checked_add(4).and_then(|end| bytes.get(offset..end));
            bytes
                .and_then(|b| b.try_into().ok())
                .map(u32::from_le_bytes)
                .ok_or(WireError::Truncated("a chunk header"))
        };
        let long = |offset: usize| {
            let bytes = offset.checked_add(8).and_then(|end| bytes.get(offset..end));
            bytes
                .and_then(|b| b.try_into().ok())
                .map(u64::from_le_bytes)
                .ok_or(WireError::Truncated("a chunk header"))
        };
        let magic = word(0)?;
        if magic != MAGIC {
            return Err(WireError::BadMagic(u64::from(magic)));
        }
        let info = Self {
            state: word(4)?,
            stride: word(8)?,
            committed: word(12)?,
            pid: word(16)?,
            tid: word(20)?,
            process_key: long(24)?,
            sequence: long(32)?,
            thread_key: long(40)?,
            samples: long(48)?,
            weight: long(56)?,
            lost_samples: long(64)?,
            lost_weight: long(72)?,
            handler_ns: long(80)?,
            cpu_ns: long(88)?,
            unarmed_cpu_ns: long(96)?,
            lost_in_ring: long(104)?,
            arming_ns: long(112)?,
            delivery_ns: long(120)?,
        };
        let end = (info.committed as usize).saturating_add(HEADER_SIZE);
        if end > info.stride as usize || !(info.stride as usize).is_multiple_of(ALIGNMENT) {
            return Err(WireError::BadLength(u64::from(info.stride)));
        }
        Ok(info)
    }

    /// The header bytes that [`ChunkInfo::parse`] reads back.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [
            pair(MAGIC, self.state),
            pair(self.stride, self.committed),
            pair(self.pid, self.tid),
            self.process_key,
            self.sequence,
            self.thread_key,
            self.samples,
            self.weight,
            self.lost_samples,
            self.lost_weight,
            self.handler_ns,
            self.cpu_ns,
            self.unarmed_cpu_ns,
            self.lost_in_ring,
            self.arming_ns,
            self.delivery_ns,
        ];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips_and_lies_as_the_struct_says() {
        let info = ChunkInfo {
            stride: 4096,
            committed: 64,
            tid: 7,
            handler_ns: 9,
            unarmed_cpu_ns: 11,
            lost_in_ring: 13,
            arming_ns: 15,
            delivery_ns: 17,
            ..ChunkInfo::default()
        };
        assert_eq!(ChunkInfo::parse(&info.to_bytes()), Ok(info));
        assert_eq!(core::mem::offset_of!(ChunkHeader, totals), 48);
        assert_eq!(core::mem::offset_of!(ThreadTotals, lost_in_ring), 56);
        assert_eq!(core::mem::offset_of!(ThreadTotals, arming_ns), 64);
        assert!(size_of::<ChunkHeader>() <= HEADER_SIZE);
    }

    #[test]
    fn a_committed_length_beyond_the_stride_is_refused() {
        let info = ChunkInfo {
            stride: 4096,
            committed: 4000,
            ..ChunkInfo::default()
        };
        assert_eq!(
            ChunkInfo::parse(&info.to_bytes()),
            Err(WireError::BadLength(4096))
        );
    }
}
