//! The labels of regions: what a program says that a thread is at, as keys and values. A set is
//! described once by number, before the first sample that has it, so that a killed process loses
//! none.

use super::WireError;
use super::codec::{Decoder, Encoder};

/// Longest key, bytes.
pub const LONGEST_KEY: usize = 63;
/// Longest value, bytes; of longer ones the beginning is kept.
pub const LONGEST_VALUE: usize = 255;

/// A set is described anew in each stretch of so much time, ns: who reads on and on need not keep
/// those of requests that are long over.
pub const RENEWED_NS: u64 = 1 << 34;

/// A set of labels: those of all regions that a thread was in, from the outermost in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LabelSet<'a> {
    /// Its number in the process: [`super::sample::SampleHead::labels`]. Never 0, and never used
    /// for another.
    pub number: u64,
    /// When it was described (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// Keys and values in turn, each behind its length in one byte. Of those with one key the last
    /// holds.
    pub labels: &'a [u8],
}

impl<'a> LabelSet<'a> {
    /// Writes the payload of a set whose labels lie in several pieces.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode<'p>(
        (number, time_ns): (u64, u64),
        length: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
        out: &mut Encoder<'_>,
    ) {
        out.number(number);
        out.number(time_ns);
        out.number(length as u64);
        for piece in pieces {
            out.raw(piece);
        }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        let found = Self {
            number: from.number()?,
            time_ns: from.number()?,
            labels: from.bytes()?,
        };
        let read: usize = found
            .iter()
            .map(|(key, value)| key.len().saturating_add(value.len()).saturating_add(2))
            .sum();
        match read == found.labels.len() {
            true => Ok(found),
            false => Err(WireError::Truncated("labels of a region")),
        }
    }

    /// Keys and values, as far as they are whole.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.labels;
        core::iter::from_fn(move || {
            let (key, behind) = part(rest)?;
            let (value, behind) = part(behind)?;
            rest = behind;
            Some((key, value))
        })
    }
}

/// Bytes behind their length, and what follows.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_round_trip_and_cut_payloads_are_errors() {
        let pieces: [&[u8]; 2] = [b"\x05route\x05/cart", b"\x04user\x00"];
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        let length = pieces.iter().map(|piece| piece.len()).sum();
        LabelSet::encode((7, 9), length, pieces.into_iter(), &mut out);
        let length = out.finish().unwrap();
        let found = LabelSet::decode(&buffer[..length]).unwrap();
        assert_eq!((found.number, found.time_ns), (7, 9));
        let labels: Vec<_> = found.iter().collect();
        assert_eq!(labels, [(&b"route"[..], &b"/cart"[..]), (b"user", b"")]);
        for cut in 0..length {
            assert!(LabelSet::decode(&buffer[..cut]).is_err(), "cut at {cut}");
        }
        buffer[3] = 4; // a length that does not lead to the next one
        assert!(LabelSet::decode(&buffer[..length]).is_err());
    }
}
