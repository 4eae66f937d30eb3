//! Writes the recording: a file header, then chunks, each in one write, so that whatever ends rsunwind leaves whole chunks but the last.

use engine::wire::chunk::{ALIGNMENT, ChunkInfo, ChunkState, HEADER_SIZE};
use engine::wire::codec::Encoder;
use engine::wire::file::{FileInfo, FileKind};
use engine::wire::record::{self, RecordKind};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// The ELF machine of what is recorded.
const MACHINE: u32 = if cfg!(target_arch = "aarch64") {
    183
} else {
    62
};

/// Whom a chunk of the collector's own is about: the pid and key of a process, or zeros for the recording itself.
pub type About = (u32, u64);

/// A recording that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    /// Whether the file has an end that can be cut off again.
    regular: bool,
    length: u64,
    /// Chunks of the collector's own.
    own: u64,
    buffer: Vec<u8>,
}

impl Writer {
    /// Into a file whose content, if any, goes when [`Writer::begin`] is called.
    #[must_use]
    pub fn new(file: File) -> Self {
        let regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        Self {
            file,
            regular,
            length: 0,
            own: 0,
            buffer: Vec::new(),
        }
    }

    /// Writes the file header, once.
    ///
    /// # Errors
    /// As write.
    pub fn begin(&mut self) -> io::Result<()> {
        if self.length > 0 {
            return Ok(());
        }
        if self.regular {
            self.file.set_len(0)?;
        }
        let header = FileInfo {
            kind: FileKind::Recording,
            machine: MACHINE,
            pid: 0,
            process_key: 0,
            homeless_samples: 0,
            homeless_weight: 0,
            unarmed_threads: 0,
            start_ticks: 0,
        };
        self.append(&header.to_bytes())
    }

    /// In one piece or not at all, as far as the file can be cut again.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        match written {
            Ok(()) => self.length += bytes.len() as u64,
            Err(_) if self.regular => {
                self.file.set_len(self.length)?;
                self.file.seek(SeekFrom::Start(self.length))?;
            }
            Err(_) => {}
        }
        written
    }

    /// Bytes written.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Appends whole records under the header given; their lengths are the header's business no more.
    ///
    /// # Errors
    /// As write; the file then ends with the chunk before.
    pub fn chunk(&mut self, info: ChunkInfo, records: &[u8]) -> io::Result<()> {
        self.begin()?;
        let stride = (HEADER_SIZE + records.len()).next_multiple_of(ALIGNMENT);
        let fits = u32::try_from(stride)
            .ok()
            .zip(u32::try_from(records.len()).ok());
        let (stride_field, committed) = fits.ok_or(io::ErrorKind::FileTooLarge)?;
        let info = ChunkInfo {
            state: ChunkState::Sealed as u32,
            stride: stride_field,
            committed,
            ..info
        };
        self.buffer.clear();
        self.buffer.extend_from_slice(&info.to_bytes());
        self.buffer.extend_from_slice(records);
        self.buffer.resize(stride, 0);
        let buffer = std::mem::take(&mut self.buffer);
        let written = self.append(&buffer);
        self.buffer = buffer;
        written
    }

    /// Appends one record of the collector's own. `room` bytes must hold its payload.
    ///
    /// # Errors
    /// As [`Writer::chunk`], and for a payload that is longer.
    pub fn own(
        &mut self,
        about: About,
        kind: RecordKind,
        room: usize,
        encode: impl FnOnce(&mut Encoder<'_>),
    ) -> io::Result<()> {
        let mut record = vec![0; record::HEADER_SIZE + room.next_multiple_of(8)];
        let mut encoder = Encoder::new(record.get_mut(record::HEADER_SIZE..).unwrap_or_default());
        encode(&mut encoder);
        let length = encoder
            .finish()
            .and_then(|length| record::seal(&mut record, kind, length));
        let record = length
            .and_then(|length| record.get(..length))
            .ok_or(io::ErrorKind::FileTooLarge)?;
        let info = ChunkInfo {
            pid: about.0,
            process_key: about.1,
            sequence: self.own,
            ..ChunkInfo::default()
        };
        self.own += 1;
        self.chunk(info, record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::wire::session::PerfMap;
    use std::os::unix::fs::FileExt;

    #[test]
    fn chunks_lie_one_behind_the_other_and_read_back() {
        let file = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(file.try_clone().unwrap());
        let about = ChunkInfo {
            pid: 7,
            tid: 8,
            samples: 3,
            ..ChunkInfo::default()
        };
        writer.chunk(about, &[1; 24]).unwrap();
        writer
            .own((7, 9), RecordKind::PerfMap, 64, |out| {
                PerfMap { lines: b"1 2 f\n" }.encode(out)
            })
            .unwrap();

        let mut bytes = vec![0; writer.length() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), writer.length());
        assert_eq!(FileInfo::parse(&bytes).unwrap().kind, FileKind::Recording);
        let first = ChunkInfo::parse(&bytes[4096..]).unwrap();
        assert_eq!(
            (first.pid, first.tid, first.samples, first.committed),
            (7, 8, 3, 24)
        );
        let at = 4096 + first.stride as usize;
        let second = ChunkInfo::parse(&bytes[at..]).unwrap();
        assert_eq!((second.pid, second.process_key, second.tid), (7, 9, 0));
        let record = record::parse(&bytes[at + HEADER_SIZE..]).unwrap();
        assert_eq!(PerfMap::decode(record.payload).unwrap().lines, b"1 2 f\n");
        assert_eq!(at + second.stride as usize, bytes.len());
    }

    #[test]
    fn a_full_disk_is_noticed_and_an_older_recording_goes_only_then() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(
            Writer::new(full).begin().unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );

        let file = tempfile::tempfile().unwrap();
        file.set_len(9999).unwrap();
        let mut writer = Writer::new(file.try_clone().unwrap());
        assert_eq!(file.metadata().unwrap().len(), 9999);
        writer.begin().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
        writer.begin().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }
}
