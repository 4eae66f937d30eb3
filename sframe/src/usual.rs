//! The usual row, found in few instructions: a DEFAULT row of a function that is no repeated block,
//! in a little-endian section, with no more than eight bytes of words. Whatever is not usual, wrong
//! bytes included, is left to `function.rs`, which reads every row.
//!
//! Starts, info bytes and words are taken out of eight bytes at once, whatever their widths: a
//! branch for each width costs more than all the rest, as it cannot be foreseen.

use crate::index::Entry;
use crate::recovery::{Conventions, Kind};
use crate::{Abi, ByteOrder, Row, Section, fre};

/// The rows of a function, and what is said of all of them.
struct Rows<'a> {
    bytes: &'a [u8],
    count: u32,
    info: u8,
}

impl Section<'_> {
    /// The row for the instruction `offset` bytes into the function. None where the row is not of
    /// the usual kind, or there is none, or it is wrong.
    #[inline]
    pub(crate) fn usual_row(&self, entry: &Entry, offset: u32) -> Option<Row> {
        let header = &self.header;
        if header.byte_order != ByteOrder::Little || header.abi == Abi::S390x {
            return None;
        }
        let rows = self.usual_rows(entry)?;
        let (info, words) = rows.last_at_or_before(offset)?;
        let conventions = Conventions::new(header, Kind::Default, rows.info);
        let count = fre::word_count(info);
        if count == 0 || count > conventions.most_words() || fre::words_len(info) > 8 {
            return None;
        }
        Some(conventions.default_row(info, split(info, words)))
    }

    #[inline]
    fn usual_rows(&self, entry: &Entry) -> Option<Rows<'_>> {
        let bytes = self.rows.get(entry.rows as usize..)?;
        let rows = match entry.attribute {
            Some(attribute) => Rows {
                bytes,
                count: attribute.rows,
                info: attribute.info,
            },
            None => {
                let (&[c0, c1, info, 0, _], bytes) = bytes.split_first_chunk()? else {
                    return None;
                };
                let count = u16::from_le_bytes([c0, c1]).into();
                Rows { bytes, count, info }
            }
        };
        // A known width of the row starts, and no repeated block.
        (rows.info & 0x1f <= 2).then_some(rows)
    }
}

impl Rows<'_> {
    /// The info byte of the last row that begins at or before `offset`, and eight bytes from its
    /// first word.
    #[inline]
    fn last_at_or_before(&self, offset: u32) -> Option<(u8, u64)> {
        let start_bits = 8_u32 << (self.info & 3);
        let start_mask = u64::MAX >> (64_u32.wrapping_sub(start_bits) & 63);
        let head = (start_bits / 8).wrapping_add(1) as usize;
        let (mut next, mut found, mut undefined) = (0_usize, None, 0);
        for _ in 0..self.count {
            let word = eight(self.bytes, next)?;
            if word & start_mask > u64::from(offset) {
                break;
            }
            let info = (word >> (start_bits & 63)) as u8;
            let words = next.wrapping_add(head);
            found = Some((info, words));
            // Both bits of a word size that does not exist.
            undefined |= info & info >> 1 & 0x20;
            next = words.wrapping_add(fre::words_len(info));
        }
        let (info, words) = found.filter(|_| undefined == 0)?;
        Some((info, eight(self.bytes, words)?))
    }
}

#[inline]
fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The first three words out of no more than eight bytes of them; zero for those that are not
/// there.
#[inline]
fn split(info: u8, words: u64) -> [i32; 3] {
    let bits = 8_u32 << (fre::word_size(info) & 3);
    let unused = 64_u32.wrapping_sub((fre::words_len(info) as u32).wrapping_mul(8));
    let words = words & u64::MAX >> (unused & 63);
    let signed = |word: u64| {
        let unused = 64_u32.wrapping_sub(bits) & 63;
        ((word << unused).cast_signed() >> unused) as i32
    };
    let second = words >> (bits & 63);
    [signed(words), signed(second), signed(second >> (bits & 63))]
}
