//! Numbers out of bytes in the section's byte order. Knows no structure of the format.

/// The order of the bytes of a number in a section: that of the target, found from the magic number
/// (specification 2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    #[inline]
    pub(crate) const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(crate) const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(crate) const fn i32(self, bytes: [u8; 4]) -> i32 {
        self.u32(bytes).cast_signed()
    }

    #[inline]
    pub(crate) const fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }
}

/// The width of a row start or of a data word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    One,
    Two,
    Four,
}

impl Width {
    /// From the two- and four-bit fields of the info bytes: 0, 1, 2.
    #[inline]
    pub(crate) const fn from_field(field: u8) -> Option<Self> {
        match field {
            0 => Some(Self::One),
            1 => Some(Self::Two),
            2 => Some(Self::Four),
            _ => None,
        }
    }
}

/// Takes an unsigned number off the front of `bytes`.
#[inline]
pub(crate) fn take_unsigned(bytes: &[u8], width: Width, order: ByteOrder) -> Option<(u32, &[u8])> {
    match width {
        Width::One => bytes
            .split_first()
            .map(|(byte, rest)| (u32::from(*byte), rest)),
        Width::Two => bytes
            .split_first_chunk()
            .map(|(chunk, rest)| (u32::from(order.u16(*chunk)), rest)),
        Width::Four => bytes
            .split_first_chunk()
            .map(|(chunk, rest)| (order.u32(*chunk), rest)),
    }
}

/// The data words behind a row, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) width: Width,
    pub(crate) order: ByteOrder,
}

impl Words<'_> {
    /// The next word, zero-extended.
    #[inline]
    pub(crate) fn unsigned(&mut self) -> Option<u32> {
        let (word, rest) = take_unsigned(self.bytes, self.width, self.order)?;
        self.bytes = rest;
        Some(word)
    }

    /// The next word, sign-extended.
    #[inline]
    pub(crate) fn signed(&mut self) -> Option<i32> {
        let word = self.unsigned()?;
        Some(match self.width {
            Width::One => i32::from(word as u8 as i8),
            Width::Two => i32::from(word as u16 as i16),
            Width::Four => word.cast_signed(),
        })
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
