//! The first 4,096 bytes of a segment or recording.

use super::WireError;
use core::sync::atomic::AtomicU64;

/// The first eight bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RSUNWIND");
/// The version this code writes, and the newest it reads. (2: samples may say in which call the
/// signal was held back. 3: what the kernel charged, by which signal threads are asked, and which
/// module is the library that unwinds. 4: recordings may be packed. 5: samples may have labels.
/// 6: packed records may have checks in common.)
pub const VERSION: u32 = 6;
/// Where the first chunk starts, in bytes.
pub const HEADER_SIZE: usize = 4096;

/// What kind of file this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FileKind {
    /// Mapped and written by one profiled process; chunks at a fixed stride.
    Segment = 1,
    /// Written by the collector; chunks of any stride.
    Recording = 2,
    /// Likewise, and packed when it was done ([`super::packed`]).
    Packed = 3,
}

/// The file header, as it lies in memory and on disk.
#[derive(Debug)]
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// A [`FileKind`].
    pub kind: u32,
    /// The ELF machine of the code that was sampled (`EM_X86_64` 62, `EM_AARCH64` 183).
    pub machine: u32,
    /// The process that writes a segment, in its own PID namespace; 0 in a recording.
    pub pid: u32,
    /// [`super::chunk::ChunkHeader::process_key`] of that process.
    pub process_key: u64,
    /// Samples of threads that had no chunk to write to: the segment was full or could not grow.
    pub chunkless_samples: AtomicU64,
    /// Their weight, in sampling periods.
    pub chunkless_weight: AtomicU64,
    /// Threads that could not be armed.
    pub unarmed_threads: AtomicU64,
    /// Start time of the process (field 22 of `/proc/PID/stat`, clock ticks since boot): a program
    /// that replaces itself by exec goes on with the file of its pid, another process of the same
    /// pid does not.
    pub start_ticks: u64,
    /// Bytes of a recording that was finished: a shorter file was cut. 0 in a segment, and in a
    /// recording whose collector did not live to finish it.
    pub length: u64,
}

/// A validated copy of the fields of a [`FileHeader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Segment or recording.
    pub kind: FileKind,
    /// ELF machine.
    pub machine: u32,
    /// See [`FileHeader::pid`].
    pub pid: u32,
    /// See [`FileHeader::process_key`].
    pub process_key: u64,
    /// See [`FileHeader::chunkless_samples`].
    pub chunkless_samples: u64,
    /// See [`FileHeader::chunkless_weight`].
    pub chunkless_weight: u64,
    /// See [`FileHeader::unarmed_threads`].
    pub unarmed_threads: u64,
    /// See [`FileHeader::start_ticks`].
    pub start_ticks: u64,
    /// See [`FileHeader::length`].
    pub length: u64,
}

impl FileInfo {
    /// Reads the start of a file.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadMagic`], [`WireError::NewerVersion`], or
    /// [`WireError::BadValue`] for the kind.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let word = |offset: usize| {
            let bytes = offset.checked_add(8).and_then(|end| bytes.get(offset..end));
            bytes
                .and_then(|b| b.try_into().ok())
                .map(u64::from_le_bytes)
                .ok_or(WireError::Truncated("the file header"))
        };
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let magic = word(0)?;
        if magic != MAGIC {
            return Err(WireError::BadMagic(magic));
        }
        let version_and_kind = word(8)?;
        if low(version_and_kind) > VERSION {
            return Err(WireError::NewerVersion(low(version_and_kind)));
        }
        let kind = match high(version_and_kind) {
            1 => FileKind::Segment,
            2 => FileKind::Recording,
            3 => FileKind::Packed,
            other => return Err(WireError::BadValue("file kind", u64::from(other))),
        };
        let machine_and_pid = word(16)?;
        Ok(Self {
            kind,
            machine: low(machine_and_pid),
            pid: high(machine_and_pid),
            process_key: word(24)?,
            chunkless_samples: word(32)?,
            chunkless_weight: word(40)?,
            unarmed_threads: word(48)?,
            start_ticks: word(56)?,
            length: word(64)?,
        })
    }

    /// The header page that [`FileInfo::parse`] reads back.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let mut page = [0; HEADER_SIZE];
        let words = [
            MAGIC,
            u64::from(VERSION) | (self.kind as u64) << 32,
            u64::from(self.machine) | u64::from(self.pid) << 32,
            self.process_key,
            self.chunkless_samples,
            self.chunkless_weight,
            self.unarmed_threads,
            self.start_ticks,
            self.length,
        ];
        for (slot, word) in page.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> FileInfo {
        FileInfo {
            kind: FileKind::Segment,
            machine: 62,
            pid: 4711,
            process_key: 0x1234_5678_9abc,
            chunkless_samples: 3,
            chunkless_weight: 5,
            unarmed_threads: 1,
            start_ticks: 99,
            length: 8192,
        }
    }

    #[test]
    fn a_header_round_trips_and_lies_as_the_struct_says() {
        let page = example().to_bytes();
        assert_eq!(FileInfo::parse(&page), Ok(example()));
        assert_eq!(core::mem::offset_of!(FileHeader, process_key), 24);
        assert_eq!(core::mem::offset_of!(FileHeader, unarmed_threads), 48);
        assert_eq!(core::mem::offset_of!(FileHeader, start_ticks), 56);
        assert_eq!(core::mem::offset_of!(FileHeader, length), 64);
    }

    #[test]
    fn foreign_newer_and_short_files_are_told_apart() {
        let mut page = example().to_bytes();
        assert_eq!(
            FileInfo::parse(&page[..20]),
            Err(WireError::Truncated("the file header"))
        );
        page[8] = 9;
        assert_eq!(FileInfo::parse(&page), Err(WireError::NewerVersion(9)));
        page[0] = b'X';
        assert!(matches!(
            FileInfo::parse(&page),
            Err(WireError::BadMagic(_))
        ));
    }
}
