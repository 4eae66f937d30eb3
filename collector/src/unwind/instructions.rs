//! What the instructions of a file tell who unwinds: the file is looked through once, and they are
//! not kept. There are many more than unwind tables.

use super::registers::SIGNAL_RETURN;
use engine::table::outset;
use memchr::{memchr_iter, memmem};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// So many are looked at together, at most: each place has as many around it in one of the pieces.
const TOGETHER: usize = 32;
/// More instructions are left alone, bytes.
const LARGEST: u64 = 1 << 30;
/// So many places of a kind are known at most: a C++ program of 400 MB has some ten thousand.
const MOST: usize = 1 << 20;
/// A call of a function whose distance is said.
const CALL: u8 = 0xe8;

/// Places in a file, as its own addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Landmarks {
    signal_returns: Vec<u64>,
    outsets: Vec<u64>,
}

impl Landmarks {
    /// Those of a section that begins at that offset of the file, with those addresses.
    ///
    /// # Errors
    /// As read; what ends too early has none.
    pub(super) fn find(file: &File, mut offset: u64, text: Range<u64>) -> io::Result<Self> {
        let mut found = Self::default();
        let Some(mut left) = text.end.checked_sub(text.start).filter(|it| *it <= LARGEST) else {
            return Ok(found);
        };
        let mut buffer = vec![0; PIECE.min(left as usize)];
        let (mut address, mut kept) = (text.start, 0);
        while left > 0 {
            let room = buffer.len() - kept;
            let new = room.min(usize::try_from(left).unwrap_or(room));
            match file.read_exact_at(&mut buffer[kept..kept + new], offset) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Self::default());
                }
                read => read?,
            }
            (offset, left) = (offset.saturating_add(new as u64), left - new as u64);
            let all = kept + new;
            found.look(&buffer[..all], address);
            kept = TOGETHER.min(all);
            buffer.copy_within(all - kept..all, 0);
            address = address.wrapping_add((all - kept) as u64);
        }
        for places in [&mut found.signal_returns, &mut found.outsets] {
            places.sort_unstable();
            places.dedup();
            places.shrink_to_fit();
        }
        Ok(found)
    }

    fn look(&mut self, bytes: &[u8], address: u64) {
        if SIGNAL_RETURN.is_empty() {
            return; // code of an architecture on which none of this can be told
        }
        let add = |places: &mut Vec<u64>, at: usize| {
            if places.len() < MOST {
                places.push(address.wrapping_add(at as u64));
            }
        };
        for at in memmem::find_iter(bytes, SIGNAL_RETURN) {
            add(&mut self.signal_returns, at);
        }
        for call in memchr_iter(CALL, bytes) {
            let places = [2, 3]
                .into_iter()
                .filter_map(|before| call.checked_sub(before));
            for at in places.filter(|at| is_outset(bytes, *at)) {
                add(&mut self.outsets, at);
            }
        }
    }

    /// Whether signal handlers return there.
    pub(super) fn is_signal_return(&self, address: u64) -> bool {
        self.signal_returns.binary_search(&address).is_ok()
    }

    /// Whether execution begins in the function to which a call returns there, as its code tells.
    pub(super) fn is_outset(&self, address: u64) -> bool {
        self.outsets.binary_search(&address).is_ok()
    }

    /// Bytes that they take.
    pub(super) const fn size(&self) -> usize {
        (self.signal_returns.capacity() + self.outsets.capacity()) * size_of::<u64>()
    }
}

fn is_outset(bytes: &[u8], at: usize) -> bool {
    let around = at.checked_sub(8).and_then(|from| bytes.get(from..at + 8));
    let (Some(before), Some(behind)) = (
        around.and_then(|around| around.first_chunk()),
        around.and_then(|around| around.last_chunk()),
    ) else {
        return false;
    };
    outset::is_outset(*before, *behind)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn places_are_found_wherever_pieces_end() {
        // call *%rax; mov %eax, %edi; call; and with 64 bits.
        let outsets: [&[u8]; 2] = [
            &[0xff, 0xd0, 0x89, 0xc7, CALL, 1, 2, 3, 4],
            &[0xff, 0x50, 0x18, 0x48, 0x89, 0xc7, CALL, 1, 2, 3, 4],
        ];
        let mut bytes = vec![0x90; 3 * PIECE];
        let mut expected = Landmarks::default();
        let mut at = 20;
        for step in 0.. {
            if at + TOGETHER > bytes.len() {
                break;
            }
            let code = match step % 3 {
                2 => SIGNAL_RETURN,
                which => outsets[which],
            };
            bytes[at..at + code.len()].copy_from_slice(code);
            match step % 3 {
                0 => expected.outsets.push(1000 + at as u64 + 2),
                1 => expected.outsets.push(1000 + at as u64 + 3),
                _ => expected.signal_returns.push(1000 + at as u64),
            }
            // Around the ends of pieces they lie close together.
            at += match at % PIECE {
                40..262_000 => 262_000 - at % PIECE,
                _ => 11,
            };
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"head").unwrap();
        file.write_all(&bytes).unwrap();
        let end = 1000 + bytes.len() as u64;
        let found = Landmarks::find(&file, 4, 1000..end).unwrap();
        assert!(expected.outsets.len() > 30 && expected.signal_returns.len() > 15);
        assert_eq!(found, expected);
        assert!(found.is_outset(expected.outsets[9]) && !found.is_outset(1000));
        for other in [1000..end + 1, 0..u64::MAX] {
            let none = Landmarks::find(&file, 4, other).unwrap();
            assert_eq!(none, Landmarks::default());
        }
    }
}
