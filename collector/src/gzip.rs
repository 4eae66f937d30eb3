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
    /// Those that are not in use, and how much each tries.
    static KEPT: RefCell<Vec<(Compression, Compress)>> = const { RefCell::new(Vec::new()) };
}

/// These parts, one behind the other. What is packed up to the end of a part can be unpacked, and
/// the next part has codes of its own.
///
/// # Errors
/// Those of compression into memory: none.
pub(crate) fn gzip<'a>(
    parts: impl IntoIterator<Item = &'a [u8]>,
    level: Compression,
) -> io::Result<Vec<u8>> {
    let mut packer = KEPT.with_borrow_mut(|kept| {
        let at = kept.iter().position(|(its, _)| *its == level);
        let kept = at.map(|at| kept.swap_remove(at).1);
        kept.unwrap_or_else(|| Compress::new_gzip(level, WINDOW_BITS))
    });
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
    KEPT.with_borrow_mut(|kept| kept.push((level, packer)));
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
            let end = gzip([parts[0], b""], Compression::default()).unwrap().len();
            // But for what is said at the end of all.
            let mut begun = GzDecoder::new(&packed[..end - 10]);
            begun.read_exact(&mut first).unwrap();
            assert!(first == parts[0], "{length}");
        }
    }
}
