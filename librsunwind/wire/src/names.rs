//! Names of the functions that a recording's samples are in, which the collector appends when it is
//! done. What the bytes are is between collectors: they are compressed, and longer than a record
//! can be.

use super::WireError;
use super::codec::{Decoder, Encoder};

/// The sequence number of the first chunk with names, behind all others of the collector's: so that
/// they are known for what they are even where no record in them can be read.
pub const FIRST_SEQUENCE: u64 = 1 << 60;

/// A part of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesPart<'a> {
    /// Which part it is, from 0.
    pub part: u64,
    /// Of how many.
    pub parts: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> NamesPart<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.part);
        out.number(self.parts);
        out.bytes(self.bytes);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            part: from.number()?,
            parts: from.number()?,
            bytes: from.bytes()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_round_trip() {
        let part = NamesPart {
            part: 1,
            parts: 3,
            bytes: b"xyz",
        };
        let mut buffer = [0; 16];
        let mut out = Encoder::new(&mut buffer);
        part.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(NamesPart::decode(&buffer[..length]), Ok(part));
        assert!(NamesPart::decode(&buffer[..length - 1]).is_err());
    }
}
