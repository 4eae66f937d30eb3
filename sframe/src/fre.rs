//! Frame row entries as bytes: where each begins, its info byte and its data words (specification 2.4). What the words
//! mean is `recovery.rs`.

use crate::Error;
use crate::bytes::{ByteOrder, Width, Words, take_unsigned};

/// The rows of one function, one after the other, not yet interpreted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRows<'a> {
    /// From the next row to the end of all functions' rows.
    pub(crate) bytes: &'a [u8],
    /// Where `bytes` ends, in bytes from the beginning of the section.
    pub(crate) end: u64,
    /// Rows still to come.
    pub(crate) remaining: u32,
    /// Of the row starts.
    pub(crate) start_width: Width,
    pub(crate) order: ByteOrder,
}

/// One row, not yet interpreted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRow<'a> {
    /// Bytes from the start of the function, or of the repeated block.
    pub(crate) start: u32,
    pub(crate) info: u8,
    pub(crate) words: Words<'a>,
    /// Where the info byte is, in bytes from the beginning of the section.
    pub(crate) info_offset: u64,
}

impl<'a> RawRows<'a> {
    /// The next row; none after the last.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<RawRow<'a>>, Error> {
        let Some(remaining) = self.remaining.checked_sub(1) else {
            return Ok(None);
        };
        let out_of_bounds = Error::RowsOutOfBounds { offset: self.end };
        let (start, rest) =
            take_unsigned(self.bytes, self.start_width, self.order).ok_or(out_of_bounds)?;
        let info_offset = self.end.wrapping_sub(rest.len() as u64);
        let (info, rest) = rest.split_first().ok_or(out_of_bounds)?;
        let info = *info;
        let width = Width::from_field(info >> 5 & 0x3).ok_or(Error::BadWordSize {
            offset: info_offset,
            info,
        })?;
        let len = usize::from(word_count(info)).wrapping_mul(width.bytes());
        let (words, rest) = rest.split_at_checked(len).ok_or(out_of_bounds)?;
        self.bytes = rest;
        self.remaining = remaining;
        let words = Words {
            bytes: words,
            width,
            order: self.order,
        };
        Ok(Some(RawRow {
            start,
            info,
            words,
            info_offset,
        }))
    }

    /// The last row that begins at or before `offset`.
    #[inline]
    pub(crate) fn last_at_or_before(mut self, offset: u32) -> Result<Option<RawRow<'a>>, Error> {
        let mut found = None;
        while let Some(row) = self.next()? {
            if row.start > offset {
                break;
            }
            found = Some(row);
        }
        Ok(found)
    }

    /// Where the next row begins, in bytes from the beginning of the section.
    pub(crate) const fn offset(&self) -> u64 {
        self.end.wrapping_sub(self.bytes.len() as u64)
    }
}

impl RawRow<'_> {
    /// The number of data words.
    #[inline]
    pub(crate) const fn word_count(&self) -> u8 {
        word_count(self.info)
    }

    /// Whether the CFA of a DEFAULT row counts from the stack pointer; else from the frame pointer.
    #[inline]
    pub(crate) const fn is_based_on_stack_pointer(&self) -> bool {
        self.info & 1 != 0
    }

    /// Whether the return address carries an authentication code.
    #[inline]
    pub(crate) const fn has_mangled_ra(&self) -> bool {
        self.info & 0x80 != 0
    }
}

#[inline]
const fn word_count(info: u8) -> u8 {
    info >> 1 & 0xf
}
