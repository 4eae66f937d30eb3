//! Frame row entries as bytes: where each begins, its info byte and its data words (specification
//! 2.4). What the words mean is `recovery.rs`.

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
    /// The bytes behind it.
    rest: &'a [u8],
}

impl<'a> RawRows<'a> {
    /// The next row; none after the last.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<RawRow<'a>>, Error> {
        let Some(remaining) = self.remaining.checked_sub(1) else {
            return Ok(None);
        };
        let row = self.first(self.bytes)?;
        self.remaining = remaining;
        self.bytes = row.rest;
        Ok(Some(row))
    }

    /// The row `bytes` begin with.
    #[inline]
    fn first(&self, bytes: &'a [u8]) -> Result<RawRow<'a>, Error> {
        let out_of_bounds = || Error::RowsOutOfBounds { offset: self.end };
        let (start, rest) =
            take_unsigned(bytes, self.start_width, self.order).ok_or_else(out_of_bounds)?;
        let info_offset = self.end.wrapping_sub(rest.len() as u64);
        let (&info, rest) = rest.split_first().ok_or_else(out_of_bounds)?;
        let bad_size = || Error::BadWordSize {
            offset: info_offset,
            info,
        };
        let width = Width::from_field(word_size(info)).ok_or_else(bad_size)?;
        let (words, rest) = rest
            .split_at_checked(words_len(info))
            .ok_or_else(out_of_bounds)?;
        let words = Words {
            bytes: words,
            width,
            order: self.order,
        };
        Ok(RawRow {
            start,
            info,
            words,
            info_offset,
            rest,
        })
    }

    /// The last row that begins at or before `offset`.
    #[inline]
    pub(crate) fn last_at_or_before(&self, offset: u32) -> Result<Option<RawRow<'a>>, Error> {
        let order = self.order;
        let found = match self.start_width {
            Width::One => self.skip_to::<1>(offset, |[start]| u32::from(start)),
            Width::Two => self.skip_to::<2>(offset, |start| u32::from(order.u16(start))),
            Width::Four => self.skip_to::<4>(offset, |start| order.u32(start)),
        }?;
        found.map(|bytes| self.first(bytes)).transpose()
    }

    /// The bytes from the last row that begins at or before `offset`. Looks at no more than the
    /// start and the length of the rows before it.
    #[inline]
    fn skip_to<const N: usize>(
        &self,
        offset: u32,
        start: impl Fn([u8; N]) -> u32,
    ) -> Result<Option<&'a [u8]>, Error> {
        let out_of_bounds = || Error::RowsOutOfBounds { offset: self.end };
        let (mut bytes, mut found) = (self.bytes, None);
        for _ in 0..self.remaining {
            let (chunk, rest) = bytes.split_first_chunk::<N>().ok_or_else(out_of_bounds)?;
            if start(*chunk) > offset {
                break;
            }
            found = Some(bytes);
            let (&info, rest) = rest.split_first().ok_or_else(out_of_bounds)?;
            if word_size(info) == 3 {
                // Where the next row begins is not known; reading this one says why.
                break;
            }
            bytes = rest.get(words_len(info)..).ok_or_else(out_of_bounds)?;
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
}

/// Whether the CFA of a DEFAULT row counts from the stack pointer; else from the frame pointer.
#[inline]
pub(crate) const fn is_based_on_stack_pointer(info: u8) -> bool {
    info & 1 != 0
}

/// Whether the return address carries an authentication code.
#[inline]
pub(crate) const fn has_mangled_ra(info: u8) -> bool {
    info & 0x80 != 0
}

#[inline]
pub(crate) const fn word_count(info: u8) -> u8 {
    info >> 1 & 0xf
}

/// 0, 1, 2 for words of 1, 2, 4 bytes.
#[inline]
pub(crate) const fn word_size(info: u8) -> u8 {
    info >> 5 & 0x3
}

/// Bytes of all words.
#[inline]
pub(crate) const fn words_len(info: u8) -> usize {
    (word_count(info) as usize) << word_size(info)
}
