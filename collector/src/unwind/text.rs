//! The instructions of a file, of which few are ever looked at: they are read when they are, a
//! piece at a time.

use super::source::Source;
use crate::intern::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

/// Bytes that are read at a time, and a few of the next piece.
const PIECE: u64 = 4096;
/// So many bytes are asked for at most.
const MOST: usize = 16;
/// So many pieces are kept, then they begin anew: one megabyte.
const MANY: usize = 256;

/// The section of one file.
#[derive(Debug)]
pub(super) struct Text {
    source: Source,
    /// Where in the file it begins.
    offset: u64,
    /// The file's own addresses of it.
    range: Range<u64>,
    /// What was read, by its number; what cannot be is short.
    pieces: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Text {
    pub(super) fn new(source: Source, offset: u64, range: Range<u64>) -> Self {
        Self {
            source,
            offset,
            range,
            pieces: Mutex::default(),
        }
    }

    pub(super) const fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        self.range.contains(&address)
    }

    /// The bytes at one of the file's own addresses, read by way of a process that has it mapped.
    pub(super) fn at<const N: usize>(&self, pid: i32, address: u64) -> Option<[u8; N]> {
        const { assert!(N <= MOST) };
        let end = address.checked_add(N as u64)?;
        if !self.contains(address) || end > self.range.end {
            return None;
        }
        let at = address - self.range.start;
        let number = at / PIECE;
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.len() >= MANY && !pieces.contains_key(&number) {
            pieces.clear();
        }
        let piece = pieces.entry(number).or_insert_with(|| {
            let file = self.source.open_again(pid);
            file.map_or(Vec::new(), |file| self.piece(&file, number))
        });
        let begin = (at % PIECE) as usize;
        piece.get(begin..begin + N)?.try_into().ok()
    }

    fn piece(&self, file: &File, number: u64) -> Vec<u8> {
        let at = number * PIECE;
        let length = self.range.end - self.range.start - at;
        let mut bytes = vec![0; length.min(PIECE + MOST as u64) as usize];
        let offset = self.offset.saturating_add(at);
        match file.read_exact_at(&mut bytes, offset) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::FileId;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn what_is_read_piece_by_piece_is_what_the_file_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let bytes: Vec<u8> = (0..(MANY as u32 + 9) * PIECE as u32 + 100)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        fs::write(&path, &bytes).unwrap();
        let pid = std::process::id().cast_signed();
        let key = (path.as_os_str().as_bytes().to_owned(), FileId::default());
        let text = || {
            let (source, _) = Source::open(pid, &key).unwrap();
            Text::new(source, 7, 1000..1000 + bytes.len() as u64 - 7)
        };
        let all = text();
        let last = 1000 + bytes.len() as u64 - 7 - MOST as u64;
        for address in (1000..=last).step_by(61).chain([last, 1000]) {
            let at = (address - 1000 + 7) as usize;
            let found = all.at::<MOST>(pid, address);
            assert_eq!(found.unwrap()[..], bytes[at..at + MOST], "{address}");
        }
        assert!(all.pieces.lock().unwrap().len() <= MANY);
        assert_eq!(all.at::<MOST>(pid, last + 1), None, "behind the end");
        assert_eq!(all.at::<MOST>(pid, 999), None);
        // Another file at its place is not read, nor one that is gone.
        let other = text();
        fs::write(folder.path().join("new"), &bytes).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(other.at::<8>(pid, 1000), None);
        assert!(all.at::<8>(pid, 1000).is_some(), "it was read before");
    }
}
