//! Writes recordings: the file header, chunks taken from segments, and chunks of the collector's
//! own.
//!
//! Each chunk goes out with one write, so that a collector that is killed leaves a recording that
//! lacks at most the chunk in flight. What is written is read back by [`super::Contents`].

use super::packed;
pub use super::records::LONGEST_RECORD;
use super::records::append;
use engine::wire::chunk::{self, ChunkInfo, ChunkState};
use engine::wire::codec::Encoder;
use engine::wire::file::{FileInfo, FileKind, HEADER_SIZE};
use engine::wire::names::{FIRST_SEQUENCE, NamesPart};
use engine::wire::packed::{FIRST_BLOCK, MOST_PLAIN};
use engine::wire::record::RecordKind;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The ELF machine of what is recorded.
const MACHINE: u32 = if cfg!(target_arch = "aarch64") {
    183
} else {
    62
};

/// A block is closed when it has this many bytes.
const BLOCK: usize = 64 << 10;
/// No chunk of ours is longer, bytes; a block that gets one more is still within the bounds.
const LARGEST: usize = MOST_PLAIN - BLOCK;

/// The header of a recording that has not been finished.
pub(crate) const fn header() -> FileInfo {
    FileInfo {
        kind: FileKind::Recording,
        machine: MACHINE,
        pid: 0,
        process_key: 0,
        chunkless_samples: 0,
        chunkless_weight: 0,
        unarmed_threads: 0,
        start_ticks: 0,
        length: 0,
    }
}

/// A recording being written.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    header: FileInfo,
    buffer: Vec<u8>,
    length: u64,
    /// What is appended becomes blocks.
    packed: bool,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a recording with its file header; its kind should be
    /// [`engine::wire::file::FileKind::Recording`].
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, header: &FileInfo) -> io::Result<Self> {
        out.write_all(&header.to_bytes())?;
        Ok(Self {
            out,
            header: *header,
            buffer: Vec::new(),
            length: HEADER_SIZE as u64,
            packed: false,
        })
    }

    /// Begins a recording that is made here.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn begin(out: W) -> io::Result<Self> {
        Self::new(out, &header())
    }

    /// Packs a recording that is done: whoever reads it finds the same in it. `go_on` is asked
    /// again and again, with the bytes that are done of how many. `false` if it said no, or the
    /// recording is damaged or cut: then it has to stay as it is.
    ///
    /// # Errors
    /// Those of `out` and `recording`.
    pub fn pack(
        recording: &mut impl Read,
        out: W,
        mut go_on: impl FnMut(u64, u64) -> bool,
    ) -> io::Result<bool> {
        let mut plain = vec![0; HEADER_SIZE];
        recording.read_exact(&mut plain)?;
        let Ok(header) = FileInfo::parse(&plain) else {
            return Ok(false);
        };
        let mut writer = Self {
            out,
            header: FileInfo {
                kind: FileKind::Packed,
                ..header
            },
            buffer: Vec::new(),
            length: 0,
            packed: true,
        };
        writer.write_header()?;
        while writer.length + (plain.len() as u64) < header.length {
            let start = plain.len();
            plain.resize(start + chunk::HEADER_SIZE, 0);
            recording.read_exact(&mut plain[start..])?;
            let stride = ChunkInfo::parse(&plain[start..]).map_or(0, |info| info.stride as usize);
            if !(chunk::HEADER_SIZE..=LARGEST).contains(&stride) {
                return Ok(false);
            }
            plain.resize(start + stride, 0);
            recording.read_exact(&mut plain[start + chunk::HEADER_SIZE..])?;
            if plain.len() >= BLOCK {
                writer.put(std::mem::take(&mut plain))?;
                if !go_on(writer.length, header.length) {
                    return Ok(false);
                }
            }
        }
        if !plain.is_empty() {
            writer.put(plain)?;
        }
        writer.finish()?;
        Ok(writer.length == header.length)
    }

    /// Goes on with a recording that was finished; behind its length nothing is kept.
    ///
    /// # Errors
    /// Those of `out`, and [`io::ErrorKind::InvalidData`] if it is none.
    pub fn reopen(mut out: W) -> io::Result<Self>
    where
        W: Read,
    {
        let mut page = [0; FIRST_BLOCK]; // a packed one may be shorter than a file header
        out.read_exact(&mut page)?;
        let header = FileInfo::parse(&page).ok();
        let header = header.filter(|header| header.length >= HEADER_SIZE as u64);
        let header = header.ok_or(io::ErrorKind::InvalidData)?;
        let packed = header.kind == FileKind::Packed;
        out.seek(match packed {
            true => SeekFrom::End(0),
            false => SeekFrom::Start(header.length),
        })?;
        Ok(Self {
            out,
            header,
            buffer: Vec::new(),
            length: header.length,
            packed,
        })
    }

    /// Appends a chunk: `info` is its header as found in the segment, `records` its committed bytes
    /// (longer is cut to `info.committed`, shorter lowers it). The stride is made to fit.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn append(&mut self, info: &ChunkInfo, records: &[u8]) -> io::Result<()> {
        let committed = records.len().min(info.committed as usize);
        let records = records.get(..committed).unwrap_or_default();
        let stride = (chunk::HEADER_SIZE + committed).next_multiple_of(chunk::ALIGNMENT);
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "a chunk of over 4 GB");
        let header = ChunkInfo {
            state: ChunkState::Sealed as u32,
            stride: u32::try_from(stride).map_err(too_long)?,
            committed: u32::try_from(committed).map_err(too_long)?,
            ..*info
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(&header.to_bytes());
        buffer.extend_from_slice(records);
        buffer.resize(stride, 0);
        self.put(buffer)
    }

    /// Appends bytes of the recording, and keeps the buffer for the next ones.
    fn put(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let length = bytes.len() as u64;
        self.buffer = match self.packed {
            true => packed::block(bytes)?,
            false => bytes,
        };
        self.out.write_all(&self.buffer)?;
        self.length += length;
        Ok(())
    }

    fn write_header(&mut self) -> io::Result<()> {
        let page = self.header.to_bytes();
        let length = match self.packed {
            true => FIRST_BLOCK,
            false => page.len(),
        };
        self.out.write_all(page.get(..length).unwrap_or(&page))
    }

    /// Appends the chunks of a builder, which must all be of one owner.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn append_own(&mut self, own: OwnChunks) -> io::Result<()> {
        for (info, records) in own.chunks {
            self.append(&info, &records)?;
        }
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes the file header again, with the length that the recording has, and flushes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(&mut self) -> io::Result<()> {
        self.header.length = self.length;
        self.out.seek(SeekFrom::Start(0))?;
        self.write_header()?;
        self.out.seek(SeekFrom::End(0))?;
        self.out.flush()
    }

    /// What was written to.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Records that the collector itself adds (or a test makes), put into as many chunks as they need.
/// Not for samples that lean on each other across a chunk's end: each new chunk begins afresh.
#[derive(Debug, Default)]
pub struct OwnChunks {
    owner: ChunkInfo,
    chunks: Vec<(ChunkInfo, Vec<u8>)>,
}

/// A chunk of the collector's is closed when it has this many bytes.
const FULL: usize = 1 << 20;
/// Bytes of names in a record.
const PART: usize = 256 << 10;

impl OwnChunks {
    /// Chunks of that owner: pid and process key of the process spoken of (0 for the session), tid
    /// 0 for the collector's own, and the sequence number of the first.
    #[must_use]
    pub fn new(owner: ChunkInfo) -> Self {
        Self {
            owner,
            chunks: Vec::new(),
        }
    }

    /// Names, as [`super::names::encode`] has compressed them.
    #[must_use]
    pub fn of_names(bytes: &[u8]) -> Self {
        let parts = bytes.len().div_ceil(PART) as u64;
        let mut chunks = Self::new(ChunkInfo {
            sequence: FIRST_SEQUENCE,
            ..ChunkInfo::default()
        });
        for (bytes, part) in bytes.chunks(PART).zip(0..) {
            let part = NamesPart { part, parts, bytes };
            let _ = chunks.push(RecordKind::Names, |out| part.encode(out));
        }
        chunks
    }

    /// Adds a record; `encode` writes its payload. Gives `false`, and adds nothing, if it is longer
    /// than a record can be.
    #[must_use]
    pub fn push(&mut self, kind: RecordKind, encode: impl Fn(&mut Encoder<'_>)) -> bool {
        if self.chunks.last().is_none_or(|last| last.1.len() >= FULL) {
            let sequence = self.owner.sequence + self.chunks.len() as u64;
            let info = ChunkInfo {
                sequence,
                ..self.owner
            };
            self.chunks.push((info, Vec::new()));
        }
        let Some((info, records)) = self.chunks.last_mut() else {
            return false;
        };
        let added = append(records, kind, encode);
        info.committed = u32::try_from(records.len()).unwrap_or(u32::MAX);
        added
    }
}
