//! The instructions of a file, of which few are ever looked at: they are read when they are, a
//! piece at a time. A process that runs them has them at hand; where its memory may not be read, or
//! it has ended, the file is opened again, which takes ten times as long.

use super::source::Source;
use crate::intern::HashMap;
use crate::remote_memory::RemoteMemory;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

/// Bytes that are read at a time, and a few of the next piece.
const PIECE: u64 = 1024;
/// So many bytes are asked for at most.
const MOST: usize = 16;
/// So many pieces are kept, then they begin anew: eight megabytes.
const MANY: usize = 8192;

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

    /// The bytes at one of the file's own addresses, by way of a process that has it mapped with
    /// that bias.
    pub(super) fn at<const N: usize>(&self, pid: i32, bias: u64, address: u64) -> Option<[u8; N]> {
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
        let piece = pieces
            .entry(number)
            .or_insert_with(|| self.piece(pid, bias, number));
        let begin = (at % PIECE) as usize;
        piece.get(begin..begin + N)?.try_into().ok()
    }

    fn piece(&self, pid: i32, bias: u64, number: u64) -> Vec<u8> {
        let at = number * PIECE;
        let length = self.range.end - self.range.start - at;
        let mut bytes = vec![0; length.min(PIECE + MOST as u64) as usize];
        let address = self.range.start.wrapping_add(at).wrapping_add(bias);
        if RemoteMemory(pid.unsigned_abs()).read(address, &mut bytes) == bytes.len() {
            return bytes;
        }
        let offset = self.offset.saturating_add(at);
        let file = self.source.open_again(pid);
        let read = file.and_then(|file| file.read_exact_at(&mut bytes, offset).ok());
        read.map_or_else(Vec::new, |()| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::FileId;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    /// Where nothing is mapped.
    const NOWHERE: u64 = 1 << 50;

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
        let last = 1000 + bytes.len() as u64 - 7 - MOST as u64;
        // In this process they are mapped, too.
        let mapped = (bytes.as_ptr() as u64).wrapping_add(7).wrapping_sub(1000);
        for bias in [NOWHERE, mapped] {
            let all = text();
            for address in (1000..=last).step_by(610).chain([last, 1000]) {
                let at = (address - 1000 + 7) as usize;
                let found = all.at::<MOST>(pid, bias, address);
                assert_eq!(found.unwrap()[..], bytes[at..at + MOST], "{address}");
            }
            assert!(all.pieces.lock().unwrap().len() <= MANY);
            assert_eq!(all.at::<MOST>(pid, bias, last + 1), None, "behind the end");
            assert_eq!(all.at::<MOST>(pid, bias, 999), None);
        }
        // Another file at its place is not read, nor one that is gone.
        let (known, unknown) = (text(), text());
        assert!(known.at::<8>(pid, NOWHERE, 1000).is_some());
        fs::write(folder.path().join("new"), &bytes).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(
            known.at::<8>(pid, NOWHERE, 1000).is_some(),
            "it was read before"
        );
        assert_eq!(unknown.at::<8>(pid, NOWHERE, 1000), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(known.at::<8>(pid, NOWHERE, last), None);
    }
}
