//! The bytes of one file, from disk or from memory, read at offsets and never mapped: a file that
//! shrinks while it is read gives short reads, not SIGBUS.
//!
//! Not here: what the bytes mean.

use super::error::OpenError;
use super::packed::Packed;
use engine::wire::WireError;
use engine::wire::file::{FileInfo, FileKind};
use engine::wire::packed::{BlockInfo, FIRST_BLOCK, HEADER_SIZE};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Segments up to that length are read at once, bytes.
const LARGEST_COPY: u64 = 32 << 20;

/// So much of a file is read at once where it is gone through, bytes.
pub(super) const AT_ONCE: usize = 256 << 10;

/// One file's bytes.
#[derive(Debug)]
pub(super) enum Source {
    /// A file, and its length when it was opened.
    File(File, u64),
    /// Bytes in memory.
    Memory(Vec<u8>),
    /// One of those, unpacked.
    Packed(Packed),
}

impl Source {
    /// Opens a regular file; never blocks on a pipe.
    pub(super) fn open(path: &Path) -> Result<(Self, (u64, u64)), OpenError> {
        let failed = |error| OpenError::Io {
            path: path.to_owned(),
            error,
        };
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(OpenError::NotAFile {
                path: path.to_owned(),
            });
        }
        let identity = (metadata.dev(), metadata.ino());
        let source = Self::File(file, metadata.len());
        let is_segment = path.extension().is_some_and(|extension| extension == "seg");
        if !is_segment || metadata.len() > LARGEST_COPY {
            return Ok((source, identity));
        }
        // Its process may use a chunk anew between the two looks that are taken at it.
        let mut bytes = Vec::new();
        let length = usize::try_from(metadata.len()).unwrap_or(0);
        source.read(0, length, &mut bytes).map_err(failed)?;
        Ok((Self::Memory(bytes), identity))
    }

    /// What a packed file unpacks to, and how long that should be; any other as it is.
    pub(super) fn unpacked(self) -> io::Result<(Self, u64)> {
        let mut start = Vec::new();
        self.read(0, FIRST_BLOCK + HEADER_SIZE, &mut start)?;
        let has_blocks = |start: &[u8]| BlockInfo::parse(start).is_ok();
        match FileInfo::parse(&start) {
            Ok(info) if info.kind == FileKind::Packed => {
                Ok((Self::Packed(Packed::open(self)?), info.length))
            }
            // The header is damaged.
            Err(WireError::BadMagic(_) | WireError::BadValue(..))
                if start.get(FIRST_BLOCK..).is_some_and(has_blocks) =>
            {
                Ok((Self::Packed(Packed::open(self)?), 0))
            }
            _ => Ok((self, 0)),
        }
    }

    pub(super) fn length(&self) -> u64 {
        match self {
            Self::File(_, length) => *length,
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Packed(packed) => packed.length(),
        }
    }

    /// How many of `length` bytes at `offset` lie before the end.
    fn room(&self, offset: u64, length: usize) -> usize {
        let there = self.length().saturating_sub(offset);
        length.min(usize::try_from(there).unwrap_or(usize::MAX))
    }

    /// Up to `length` bytes at `offset` into `buffer`, which afterwards holds those that are there.
    pub(super) fn read(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
        let length = self.room(offset, length);
        match self {
            Self::Memory(bytes) => {
                buffer.clear();
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let part = bytes.get(start..start.saturating_add(length));
                buffer.extend_from_slice(part.unwrap_or_default());
            }
            Self::Packed(packed) => {
                buffer.clear();
                packed.read(offset, length, buffer)?;
            }
            Self::File(file, _) => {
                // What is there is read over: only what is longer has to be filled first.
                buffer.resize(length, 0);
                let mut done = 0;
                while done < length {
                    match file.read_at(&mut buffer[done..], offset + done as u64) {
                        Ok(0) => break,
                        Ok(count) => done += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                buffer.truncate(done);
            }
        }
        Ok(())
    }

    /// The first offset from `offset` on that is not in a hole of a sparse file; `None` if only
    /// holes follow.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let Self::File(file, length) = self else {
            return Some(offset);
        };
        let Ok(at) = i64::try_from(offset) else {
            return None;
        };
        match nix::unistd::lseek(file, at, nix::unistd::Whence::SeekData) {
            Ok(found) => Some(u64::try_from(found).unwrap_or(offset).min(*length)),
            Err(nix::Error::ENXIO) => None,
            Err(_) => Some(offset),
        }
    }
}

/// Goes through a file: what is next is mostly there already, with what was before.
#[derive(Debug)]
pub(super) struct Ahead<'a> {
    source: &'a Source,
    /// Where the bytes begin.
    begin: u64,
    bytes: Vec<u8>,
}

impl<'a> Ahead<'a> {
    pub(super) const fn of(source: &'a Source) -> Self {
        Self {
            source,
            begin: 0,
            bytes: Vec::new(),
        }
    }

    /// Up to `length` bytes at `offset`: those that are there.
    ///
    /// # Errors
    /// As the file is read.
    pub(super) fn read(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let length = self.source.room(offset, length);
        let (begin, bytes) = match self.source {
            Source::Memory(bytes) => (0, bytes),
            _ => {
                if !self.has(offset, length) {
                    // Of holes no more than is asked for.
                    let is_data = self.source.next_data(offset) == Some(offset);
                    let most = if is_data { AT_ONCE } else { 0 };
                    self.begin = offset;
                    let bytes = &mut self.bytes;
                    self.source.read(offset, length.max(most), bytes)?;
                }
                (self.begin, &self.bytes)
            }
        };
        let from = usize::try_from(offset - begin).unwrap_or(usize::MAX);
        let found = bytes.get(from..).unwrap_or_default();
        Ok(&found[..length.min(found.len())])
    }

    fn has(&self, offset: u64, length: usize) -> bool {
        let end = self.begin.saturating_add(self.bytes.len() as u64);
        self.begin <= offset && offset.saturating_add(length as u64) <= end
    }
}

/// The files that a path stands for: itself, or the segments of a session directory and recordings
/// in it, by name. A session's directory has them in its one inner directory.
pub(super) fn files_of(path: &Path) -> Result<Vec<PathBuf>, OpenError> {
    files_in(path, Innermost::No)
}

/// Whether to look no further down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Innermost {
    No,
    Yes,
}

fn files_in(path: &Path, innermost: Innermost) -> Result<Vec<PathBuf>, OpenError> {
    let failed = |error| OpenError::Io {
        path: path.to_owned(),
        error,
    };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut files, mut inner) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file = entry.path();
        let ours = |extension: &std::ffi::OsStr| extension == "seg" || extension == "rsu";
        if file.extension().is_some_and(ours) {
            files.push(file);
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            inner.push(file);
        }
    }
    if let ([], [inner]) = (&*files, &*inner)
        && innermost == Innermost::No
    {
        return files_in(inner, Innermost::Yes);
    }
    files.sort();
    if files.is_empty() {
        return Err(OpenError::NoSegments {
            path: path.to_owned(),
        });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_ahead_is_what_is_there() {
        const HOLE: usize = 3 * AT_ONCE;
        let file = tempfile::tempfile().unwrap();
        let mut whole: Vec<u8> = (0..HOLE)
            .map(|at| ((at * 7) >> 8) as u8 ^ at as u8)
            .collect();
        file.write_all_at(&whole, 0).unwrap();
        whole.resize(2 * HOLE, 0);
        file.write_all_at(b"behind", whole.len() as u64).unwrap();
        whole.extend(b"behind");
        let length = whole.len() as u64;
        for source in [Source::File(file, length), Source::Memory(whole.clone())] {
            let mut ahead = Ahead::of(&source);
            let mut read = |at: usize, length: usize| {
                let there = &whole[at.min(whole.len())..];
                let there = &there[..length.min(there.len())];
                assert!(
                    ahead.read(at as u64, length).unwrap() == there,
                    "{length} at {at}"
                );
            };
            for at in (0..whole.len()).step_by(AT_ONCE / 3 + 1) {
                read(at, 4);
                read(at + 100, 3000);
            }
            // Across what is there at once, all of it, what is behind the end, and back.
            read(AT_ONCE - 10, 20);
            read(0, whole.len() + 1);
            read(whole.len() - 3, 8);
            read(whole.len(), 8);
            read(whole.len() + 9, 8);
            read(5, 5);
        }
    }
}
