//! Numbers and strings in payloads: LEB128 varints, zigzag for signed ones, length-prefixed bytes.
//!
//! Not here: the record frame around a payload ([`super::record`]).

use super::WireError;

/// Writes into a caller's buffer; what does not fit is dropped and remembered, so that the caller
/// checks once, at the end.
#[derive(Debug)]
pub struct Encoder<'a> {
    buffer: &'a mut [u8],
    at: usize,
    overflowed: bool,
}

impl<'a> Encoder<'a> {
    /// An encoder at the start of `buffer`.
    #[must_use]
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            buffer,
            at: 0,
            overflowed: false,
        }
    }

    /// Bytes written, or `None` if they did not fit.
    #[must_use]
    pub fn finish(self) -> Option<usize> {
        (!self.overflowed).then_some(self.at)
    }

    /// One byte.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only, as all methods here.
    #[inline]
    pub fn byte(&mut self, value: u8) {
        match self.buffer.get_mut(self.at) {
            Some(slot) => {
                *slot = value;
                self.at = self.at.wrapping_add(1);
            }
            None => self.overflowed = true,
        }
    }

    /// An unsigned number, 1 to 10 bytes.
    #[inline]
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte((value as u8) | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// The signed distance from `from` to `to`, modulo 2^64.
    #[inline]
    pub fn difference(&mut self, from: u64, to: u64) {
        self.number(zigzag(to.wrapping_sub(from)));
    }

    /// Length-prefixed bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Bytes whose number is written elsewhere.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        let end = self.at.saturating_add(bytes.len());
        match self.buffer.get_mut(self.at..end) {
            Some(slot) => {
                // Not copy_from_slice, which could panic as far as the compiler can see.
                slot.iter_mut()
                    .zip(bytes)
                    .for_each(|(to, from)| *to = *from);
                self.at = end;
            }
            None => self.overflowed = true,
        }
    }
}

/// Reads what [`Encoder`] wrote, from bytes that may be anything.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// One byte.
    ///
    /// # Errors
    /// [`WireError::Truncated`] at the end, as for all methods here.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, WireError> {
        let (&first, rest) = self
            .rest
            .split_first()
            .ok_or(WireError::Truncated("a payload"))?;
        self.rest = rest;
        Ok(first)
    }

    /// Whether all has been read: an older version wrote no more.
    #[inline]
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// An unsigned number.
    ///
    /// # Errors
    /// [`WireError::BadValue`] when it does not fit 64 bits.
    #[inline]
    pub fn number(&mut self) -> Result<u64, WireError> {
        // Most are short, and have something behind them.
        if let Some(bytes) = self.rest.first_chunk()
            && let Some((value, length)) = number_in(u64::from_le_bytes(*bytes))
            && let Some(rest) = self.rest.get(length..)
        {
            self.rest = rest;
            return Ok(value);
        }
        self.number_by_bytes()
    }

    /// Passes over a number.
    ///
    /// # Errors
    /// As [`Decoder::number`].
    #[inline]
    pub(crate) fn pass_number(&mut self) -> Result<(), WireError> {
        if let Some(bytes) = self.rest.first_chunk()
            && let ends = !u64::from_le_bytes(*bytes) & LAST
            && ends != 0
            && let Some(rest) = self.rest.get(length_to(ends)..)
        {
            self.rest = rest;
            return Ok(());
        }
        self.number_by_bytes().map(drop)
    }

    fn number_by_bytes(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64u32).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            let shifted = part.wrapping_shl(shift);
            if shifted.wrapping_shr(shift) != part {
                return Err(WireError::BadValue("a varint", part));
            }
            value |= shifted;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::BadValue("a varint", value))
    }

    /// A number that must fit 32 bits, named for the error.
    ///
    /// # Errors
    /// [`WireError::BadValue`] when it does not.
    #[inline]
    pub fn small(&mut self, field: &'static str) -> Result<u32, WireError> {
        let value = self.number()?;
        u32::try_from(value).map_err(|_| WireError::BadValue(field, value))
    }

    /// `from` plus the signed distance stored, modulo 2^64.
    ///
    /// # Errors
    /// As [`Decoder::number`].
    #[inline]
    pub fn difference(&mut self, from: u64) -> Result<u64, WireError> {
        Ok(from.wrapping_add(unzigzag(self.number()?)))
    }

    /// Length-prefixed bytes.
    ///
    /// # Errors
    /// [`WireError::BadLength`] when the length points past the end.
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.number()?;
        let split = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length));
        let (bytes, rest) = split.ok_or(WireError::BadLength(length))?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// What of eight bytes is not set in the last one of a number.
const LAST: u64 = 0x8080_8080_8080_8080;

/// The number that eight bytes begin with, and how many of them it takes; `None` if it goes on
/// behind them.
#[inline]
const fn number_in(bytes: u64) -> Option<(u64, usize)> {
    let ends = !bytes & LAST;
    if ends == 0 {
        return None;
    }
    // All bits up to that of the first byte which is a last one.
    let own = ends ^ ends.wrapping_sub(1);
    let sevens = bytes & own & !LAST;
    let low = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let low = low & 0x0000_3fff_0000_3fff | (low & 0x3fff_0000_3fff_0000) >> 2;
    let value = low & 0x0fff_ffff | (low & 0x0fff_ffff_0000_0000) >> 4;
    Some((value, length_to(ends)))
}

/// Bytes up to the first last one, of which `ends` has the high bits.
#[inline]
const fn length_to(ends: u64) -> usize {
    (ends.trailing_zeros() >> 3).wrapping_add(1) as usize
}

/// Small magnitudes to small unsigned numbers: 0, -1, 1, -2 … become 0, 1, 2, 3 ….
#[inline]
#[must_use]
pub const fn zigzag(value: u64) -> u64 {
    (value << 1) ^ ((value as i64) >> 63) as u64
}

/// The inverse of [`zigzag`].
#[inline]
#[must_use]
pub const fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_at_every_width() {
        for bit in 0..64 {
            for value in [1u64 << bit, (1u64 << bit).wrapping_sub(1), u64::MAX >> bit] {
                let mut buffer = [0; 32];
                let mut encoder = Encoder::new(&mut buffer);
                encoder.number(value);
                encoder.difference(7, value);
                encoder.bytes(b"name");
                let length = encoder.finish().unwrap();
                let mut decoder = Decoder::new(&buffer[..length]);
                assert_eq!(decoder.number().unwrap(), value);
                assert_eq!(decoder.difference(7).unwrap(), value);
                assert_eq!(decoder.bytes().unwrap(), b"name");
                assert!(decoder.byte().is_err());
            }
        }
    }

    #[test]
    fn eight_bytes_at_once_are_read_as_one_by_one() {
        // Bytes of all kinds; the high bits of each say whether it is the last one.
        let mut seed = 1u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let more = seed.rotate_left(32) & seed.rotate_left(11) & 0x8080_8080_8080_8080;
            let bytes = (seed | more).to_le_bytes();
            let [mut at_once, mut passed, mut one_by_one] = [Decoder::new(&bytes); 3];
            let number = one_by_one.number_by_bytes();
            assert_eq!(passed.pass_number(), number.map(drop));
            assert_eq!(at_once.number(), number);
            assert_eq!([at_once.rest, passed.rest], [one_by_one.rest; 2]);
        }
    }

    #[test]
    fn an_overlong_varint_and_a_long_length_are_refused() {
        assert!(Decoder::new(&[0xff; 11]).number().is_err());
        assert!(Decoder::new(&[0x80; 9]).number().is_err());
        assert_eq!(
            Decoder::new(&[5, 1, 2]).bytes(),
            Err(WireError::BadLength(5))
        );
    }

    #[test]
    fn a_full_buffer_is_noticed() {
        let mut buffer = [0; 3];
        let mut encoder = Encoder::new(&mut buffer);
        encoder.number(1 << 40);
        assert_eq!(encoder.finish(), None);
    }
}
