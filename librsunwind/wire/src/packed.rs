//! A recording that is done, made small: the head of a file header ([`super::file`], of kind
//! [`super::file::FileKind::Packed`], whose length is that of the recording), then blocks. Unpacked
//! and put one behind the other they are the recording, byte for byte.
//!
//! ```text
//! +---------------------------+---------+---------+--
//! | head of the file header   | block 0 | block 1 | …
//! | 128 bytes                 |         |         |
//! +---------------------------+---------+---------+--
//!
//! block:   | u32 magic | u32 form | u32 packed bytes | u32 plain bytes | packed bytes … |
//! ```
//!
//! Block 0 begins with the file header; all have whole chunks. So what is damaged takes with it
//! the rest of its block at most.

use super::WireError;

/// The first four bytes of a block.
pub const MAGIC: u32 = u32::from_le_bytes(*b"RSPB");
/// Where the first block begins, in bytes.
pub const FIRST_BLOCK: usize = 128;
/// Bytes of a block before its packed ones.
pub const HEADER_SIZE: usize = 16;
/// Most bytes that a block unpacks to.
pub const MOST_PLAIN: usize = 4 << 20;
/// A block unpacks to at most so many times its length: whoever reads can tell from the length of
/// a file how much there may be.
pub const MOST_TIMES: usize = 64;

/// How the bytes of a block are packed. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Form {
    /// Not at all.
    Stored = 0,
    /// With zlib.
    Zlib = 1,
    /// Likewise, and records have their checks in common ([`super::record::merge_checks`]).
    ZlibMergedChecks = 2,
}

/// What the header of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// See [`Form`].
    pub form: Form,
    /// Bytes behind the header.
    pub packed: u32,
    /// Bytes that these unpack to.
    pub plain: u32,
}

impl BlockInfo {
    /// Reads the start of a block.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadMagic`], [`WireError::BadValue`] for a form that
    /// is not known, [`WireError::BadLength`] for one beyond the bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (header, _) = bytes
            .split_first_chunk::<HEADER_SIZE>()
            .ok_or(WireError::Truncated("the header of a block"))?;
        let header = u128::from_le_bytes(*header);
        let [magic, form, packed, plain] = [0, 32, 64, 96].map(|at| (header >> at) as u32);
        if magic != MAGIC {
            return Err(WireError::BadMagic(magic.into()));
        }
        let form = match form {
            0 => Form::Stored,
            1 => Form::Zlib,
            2 => Form::ZlibMergedChecks,
            other => return Err(WireError::BadValue("form of a block", other.into())),
        };
        let most = (packed as usize).saturating_mul(MOST_TIMES).min(MOST_PLAIN);
        if plain as usize > most || (form == Form::Stored && plain != packed) {
            return Err(WireError::BadLength(plain.into()));
        }
        Ok(Self {
            form,
            packed,
            plain,
        })
    }

    /// The bytes that [`BlockInfo::parse`] reads back.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let low = u64::from(MAGIC) | (self.form as u64) << 32;
        let high = u64::from(self.packed) | u64::from(self.plain) << 32;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_beyond_the_bounds_are_refused() {
        let block = |form, packed, plain| BlockInfo {
            form,
            packed,
            plain,
        };
        for sound in [
            block(Form::Stored, 9, 9),
            block(Form::Zlib, 10, 640),
            block(Form::Zlib, 1 << 20, 4 << 20),
            block(Form::ZlibMergedChecks, 10, 640),
        ] {
            let bytes = sound.to_bytes();
            assert_eq!(BlockInfo::parse(&bytes), Ok(sound));
            assert!(BlockInfo::parse(&bytes[..15]).is_err());
        }
        for wrong in [
            block(Form::Stored, 9, 8),
            block(Form::Zlib, 10, 641),
            block(Form::Zlib, 1 << 20, (4 << 20) + 1),
        ] {
            assert!(matches!(
                BlockInfo::parse(&wrong.to_bytes()),
                Err(WireError::BadLength(_))
            ));
        }
    }
}
