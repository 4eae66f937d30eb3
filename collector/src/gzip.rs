//! Small pieces compressed with gzip, one after the other.
//!
//! The compressor is kept: a new one fills 380 KB of memory first, which takes longer than what it
//! is made for.

use flate2::{Compress, Compression, FlushCompress, Status};
use std::cell::RefCell;
use std::io;

/// The window of the format, in bits.
const WINDOW_BITS: u8 = 15;
/// A part that is ended, and the end of all, take a few bytes whatever is in them.
const ROOM: usize = 64;

thread_local! {
    /// The one used last, and how much it tries.
    static KEPT: RefCell<Option<(Compression, Compress)>> = const { RefCell::new(None) };
}

/// These parts, one behind the other. What was sent up to the end of a part can be unpacked, which
/// parts of another kind are for: each is described by itself.
///
/// # Errors
/// Those of compression into memory: none.
pub(crate) fn gzip<'a>(
    parts: impl IntoIterator<Item = &'a [u8]>,
    level: Compression,
) -> io::Result<Vec<u8>> {
    let kept = KEPT.take().filter(|(its, _)| *its == level);
    let mut packer = match kept {
        Some((_, packer)) => packer,
        None => Compress::new_gzip(level, WINDOW_BITS),
    };
    let mut out = Vec::new();
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next() {
        let flush = match parts.peek() {
            Some(_) => FlushCompress::Sync,
            None => FlushCompress::Finish,
        };
        push(&mut packer, part, &mut out, flush)?;
    }
    packer.reset();
    KEPT.set(Some((level, packer)));
    Ok(out)
}

fn push(
    packer: &mut Compress,
    mut part: &[u8],
    out: &mut Vec<u8>,
    flush: FlushCompress,
) -> io::Result<()> {
    loop {
        out.reserve(part.len() / 4 + ROOM);
        let before = packer.total_in();
        let status = packer.compress_vec(part, out, flush)?;
        part = &part[(packer.total_in() - before) as usize..];
        let is_done = match flush {
            FlushCompress::Finish => status == Status::StreamEnd,
            // Room that is left says that there was no more.
            _ => part.is_empty() && out.len() < out.capacity(),
        };
        if is_done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read as _;

    fn unpacked(packed: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
        plain
    }

    /// Bytes that cannot be made fewer.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1u32;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn what_is_packed_by_one_kept_is_what_a_new_one_makes() {
        for level in [Compression::fast(), Compression::default()] {
            let texts: [&[u8]; 4] = [b"", b"a", &noise(100_000), &[7; 300_000]];
            let first = texts.map(|text| gzip([text], level).unwrap());
            let again = texts.map(|text| gzip([text], level).unwrap());
            assert_eq!(first, again);
            assert_eq!(first.each_ref().map(|packed| unpacked(packed)), texts);
        }
    }

    #[test]
    fn parts_are_joined_and_end_where_they_are_said_to() {
        for length in (0..300).chain([70_000, 200_000]) {
            let parts = [&noise(length)[..], b"text text text", &noise(length / 2)];
            let packed = gzip(parts, Compression::default()).unwrap();
            assert_eq!(unpacked(&packed), parts.concat());
            let mut first = vec![0; length];
            let alone = gzip([parts[0], b""], Compression::default()).unwrap();
            GzDecoder::new(&*alone).read_exact(&mut first).unwrap();
            // As long as they are alone, but for the end: nothing of one is in another.
            let apart = packed.len() >= alone.len() - 10;
            assert!(first == parts[0] && apart, "{length}");
        }
    }
}
