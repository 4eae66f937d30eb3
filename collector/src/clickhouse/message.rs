//! A window's rows on their way to ClickHouse. What each window has of its own is ready to be
//! sent; frames and stacks are rows, of which those are sent that are not there yet.

use super::native::Block;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message;
use serde::Deserialize;
use std::io::{self, Read as _, Write as _};

/// Nothing that was packed is longer, bytes: a damaged message must not fill memory.
const LONGEST: u64 = 256 << 20;
/// Nor are there more rows: one of two bytes takes some hundred in memory.
const MOST_ROWS: usize = 1 << 20;

/// The rows of a window.
#[derive(PartialEq, Eq, Message)]
pub(crate) struct Rows {
    #[prost(message, repeated, tag = "1")]
    pub(crate) frames: Vec<FrameRow>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) stacks: Vec<StackRow>,
    /// Its row of the table of windows: the body of a request.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) window: Vec<u8>,
    /// Its samples, likewise.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) samples: Vec<u8>,
}

/// A row of the table of frames.
#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
pub(crate) struct FrameRow {
    #[prost(fixed64, tag = "1")]
    pub(crate) hash: u64,
    #[prost(string, tag = "2")]
    pub(crate) function: String,
    #[prost(string, tag = "3")]
    pub(crate) short: String,
    #[prost(string, tag = "4")]
    pub(crate) file: String,
    #[prost(uint32, tag = "5")]
    pub(crate) line: u32,
    #[prost(string, tag = "6")]
    pub(crate) binary: String,
    #[prost(string, tag = "7")]
    pub(crate) build_id: String,
    #[prost(string, tag = "8")]
    pub(crate) language: String,
    #[prost(uint32, tag = "9")]
    pub(crate) inlined: u32,
}

/// A row of the table of stacks.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StackRow {
    #[prost(fixed64, tag = "1")]
    pub(crate) hash: u64,
    /// Places in [`Rows::frames`], from the innermost.
    #[prost(uint32, repeated, tag = "2")]
    pub(crate) frames: Vec<u32>,
}

impl Rows {
    /// Those frames as the body of an insert; `None` if there are none.
    pub(crate) fn frames_that(
        &self,
        mut are_meant: impl FnMut(&FrameRow) -> bool,
    ) -> Option<io::Result<Vec<u8>>> {
        let rows: Vec<_> = self.frames.iter().filter(|row| are_meant(row)).collect();
        let all = || rows.iter().copied();
        let mut block = Block::of(rows.len());
        block.u64s("hash", all().map(|row| row.hash));
        block.texts("function", all().map(|row| &*row.function));
        block.texts("short", all().map(|row| &*row.short));
        block.texts("file", all().map(|row| &*row.file));
        block.u32s("line", all().map(|row| row.line));
        block.texts("binary", all().map(|row| &*row.binary));
        block.texts("build_id", all().map(|row| &*row.build_id));
        block.texts("language", all().map(|row| &*row.language));
        block.u32s("inlined", all().map(|row| row.inlined));
        (!rows.is_empty()).then(|| block.finish())
    }

    /// Those stacks, likewise. What is called by the same lies together.
    pub(crate) fn stacks_that(
        &self,
        mut are_meant: impl FnMut(&StackRow) -> bool,
    ) -> Option<io::Result<Vec<u8>>> {
        let stacks = self.stacks.iter().filter(|row| are_meant(row));
        let hash = |place: &u32| self.frames.get(*place as usize).map_or(0, |row| row.hash);
        let stacks = stacks.map(|row| row.frames.iter().map(hash).collect());
        let mut rows: Vec<Vec<u64>> = stacks.collect();
        rows.sort_unstable_by(|one, other| one.iter().rev().cmp(other.iter().rev()));
        let mut block = Block::of(rows.len());
        block.lists("frames", rows.iter().map(Vec::as_slice));
        (!rows.is_empty()).then(|| block.finish())
    }

    /// As bytes.
    ///
    /// # Errors
    /// Those of compression into memory: none.
    pub(crate) fn pack(&self) -> io::Result<Vec<u8>> {
        // Most of it is not sent, and the rest is compressed anew.
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(&self.encode_to_vec())?;
        out.finish()
    }
}

/// What [`Rows::pack`] gave.
///
/// # Errors
/// As [`rows`].
pub(crate) fn unpack(message: &[u8]) -> io::Result<Rows> {
    let mut bytes = Vec::new();
    let read = GzDecoder::new(message)
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)?;
    match read as u64 > LONGEST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => rows(&bytes),
    }
}

/// The rows in what is not compressed any more.
///
/// # Errors
/// If it is not as it was packed, a stack has a frame that is not there, or the window's row is not
/// there: nothing at all would be rows without any, too.
pub(crate) fn rows(bytes: &[u8]) -> io::Result<Rows> {
    if fields(bytes).is_none_or(|fields| fields > MOST_ROWS) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let rows = Rows::decode(bytes)?;
    let mut places = rows.stacks.iter().flat_map(|stack| &stack.frames);
    let are_there = places.all(|place| (*place as usize) < rows.frames.len());
    match are_there && !rows.window.is_empty() {
        true => Ok(rows),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// How many fields a message has, if all are of the kind that those of [`Rows`] are.
fn fields(mut bytes: &[u8]) -> Option<usize> {
    const KIND: u8 = 7;
    const WITH_LENGTH: u8 = 2;
    let mut fields = 0;
    while let Some((key, rest)) = bytes.split_first() {
        bytes = rest;
        let length = prost::decode_length_delimiter(&mut bytes).ok()?;
        bytes = bytes.get(length..).filter(|_| key & KIND == WITH_LENGTH)?;
        fields += 1;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_and_what_is_none_is_refused() {
        let packed = |frames: Vec<u32>| {
            let frame = FrameRow {
                hash: u64::MAX,
                function: "ä\n\"".into(),
                line: 7,
                ..FrameRow::default()
            };
            Rows {
                frames: vec![frame],
                stacks: vec![StackRow { hash: 1, frames }],
                window: b"i".to_vec(),
                samples: Vec::new(),
            }
        };
        let packing = packed(vec![0, 0]);
        let read = unpack(&packing.pack().unwrap()).unwrap();
        assert_eq!(read, packing);
        assert!(read.frames_that(|_| true).is_some() && read.frames_that(|_| false).is_none());
        assert!(read.stacks_that(|_| true).is_some() && read.stacks_that(|_| false).is_none());
        let beyond = packed(vec![0, 1]).pack().unwrap();
        assert!(unpack(&beyond).is_err() && rows(b"{}").is_err() && rows(b"").is_err());
        assert!(unpack(b"\x1f\x8b").is_err());
        let many = |rows| [&[10, 0].repeat(rows)[..], b"\x1a\x01w"].concat();
        assert!(rows(&many(100)).is_ok() && rows(&many(MOST_ROWS)).is_err());
    }
}
