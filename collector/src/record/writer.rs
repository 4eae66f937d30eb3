//! The recording's file while it is written: begun late, so that an older recording stays until
//! there is a new one, and cut back to whole chunks when the disk is full.
//!
//! Not here: the form of a recording ([`crate::recording::write`]).

use crate::recording::write::{self, OwnChunks};
use engine::wire::chunk::ChunkInfo;
use engine::wire::codec::Encoder;
use engine::wire::record::RecordKind;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};

/// Whom a chunk of the collector's own is about: the pid and key of a process, or zeros for the
/// recording itself.
pub type About = (u32, u64);

/// A recording that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    /// Whether the file has an end that can be cut off again.
    regular: bool,
    begun: Option<write::Writer<File>>,
    /// Chunks of the collector's own.
    own: u64,
}

impl Writer {
    /// Into a file whose content, if any, goes when [`Writer::begin`] is called.
    #[must_use]
    pub fn new(file: File) -> Self {
        let regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        Self {
            file,
            regular,
            begun: None,
            own: 0,
        }
    }

    /// Writes the file header, once.
    ///
    /// # Errors
    /// As write.
    pub fn begin(&mut self) -> io::Result<()> {
        if self.begun.is_some() {
            return Ok(());
        }
        if self.regular {
            self.file.set_len(0)?;
        }
        self.begun = Some(write::Writer::begin(self.file.try_clone()?)?);
        Ok(())
    }

    /// Notes in the header that this is all of the recording, where the file can be gone back in.
    ///
    /// # Errors
    /// As write.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.begun {
            Some(writer) if self.regular => writer.finish(),
            _ => Ok(()),
        }
    }

    /// Bytes written.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.begun.as_ref().map_or(0, write::Writer::length)
    }

    /// Appends whole records under the header given, whose lengths are made to fit.
    ///
    /// # Errors
    /// As write; the file then ends with the chunk before.
    pub fn chunk(&mut self, info: &ChunkInfo, records: &[u8]) -> io::Result<()> {
        self.whole(|writer| writer.append(info, records))
    }

    /// Appends chunks that were made here.
    ///
    /// # Errors
    /// As [`Writer::chunk`].
    pub fn chunks(&mut self, chunks: OwnChunks) -> io::Result<()> {
        self.whole(|writer| writer.append_own(chunks))
    }

    /// Appends one record of the collector's own.
    ///
    /// # Errors
    /// As [`Writer::chunk`], and for a record that is longer than one can be.
    pub fn own(
        &mut self,
        about: About,
        kind: RecordKind,
        encode: impl Fn(&mut Encoder<'_>),
    ) -> io::Result<()> {
        let mut chunks = OwnChunks::new(ChunkInfo {
            pid: about.0,
            process_key: about.1,
            sequence: self.own,
            ..ChunkInfo::default()
        });
        if !chunks.push(kind, encode) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.own += 1;
        self.whole(|writer| writer.append_own(chunks))
    }

    /// In one piece or not at all, as far as the file can be cut.
    fn whole(
        &mut self,
        append: impl FnOnce(&mut write::Writer<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.begin()?;
        let Some(writer) = &mut self.begun else {
            return Ok(());
        };
        let before = writer.length();
        let written = append(writer);
        if written.is_err() && self.regular {
            self.file.set_len(before)?;
            self.file.seek(SeekFrom::Start(before))?;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::wire::chunk::HEADER_SIZE;
    use engine::wire::file::{FileInfo, FileKind};
    use engine::wire::record;
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
            committed: 24,
            ..ChunkInfo::default()
        };
        writer.chunk(&about, &[1; 24]).unwrap();
        let map = PerfMap {
            lines: b"1 2 f\n".as_slice(),
        };
        writer
            .own((7, 9), RecordKind::PerfMap, |out| map.encode(out))
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
        assert_eq!(PerfMap::decode(record.payload), Ok(map));
        assert_eq!(at + second.stride as usize, bytes.len());

        assert_eq!(FileInfo::parse(&bytes).unwrap().length, 0);
        writer.finish().unwrap();
        let length = bytes.len() as u64;
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(FileInfo::parse(&bytes).unwrap().length, length);
        assert_eq!(file.metadata().unwrap().len(), length);
    }

    #[test]
    fn a_full_disk_is_noticed_and_an_older_recording_goes_only_when_a_new_one_begins() {
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
