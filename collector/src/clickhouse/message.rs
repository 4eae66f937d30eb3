//! A window's rows on their way to ClickHouse. What each window has of its own is ready to be
//! sent; frames and stacks are rows, of which those are sent that are not there yet.

use super::native::Block;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};

/// Nothing that was packed is longer, bytes: a damaged message must not fill memory.
const LONGEST: u64 = 256 << 20;

/// A busy process' window needs no more, bytes.
const ROOM: usize = 1 << 20;

/// The rows of a window.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rows {
    pub(crate) frames: Vec<FrameRow>,
    pub(crate) stacks: Vec<StackRow>,
    /// Its row of the table of windows: the body of a request, in base64.
    pub(crate) window: String,
    /// Its samples, likewise.
    pub(crate) samples: String,
}

/// A row of the table of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FrameRow {
    pub(crate) hash: u64,
    pub(crate) function: String,
    pub(crate) short: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) binary: String,
    pub(crate) build_id: String,
    pub(crate) language: String,
    pub(crate) inlined: u32,
}

/// A row of the table of stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StackRow {
    pub(crate) hash: u64,
    /// Places in [`Rows::frames`], from the innermost.
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

    /// The window's row, likewise.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn window(&self) -> io::Result<Vec<u8>> {
        BASE64.decode(&self.window).map_err(io::Error::other)
    }

    /// Its samples, likewise.
    ///
    /// # Errors
    /// If they are none.
    pub(crate) fn samples(&self) -> io::Result<Vec<u8>> {
        BASE64.decode(&self.samples).map_err(io::Error::other)
    }

    /// As bytes.
    ///
    /// # Errors
    /// Those of compression into memory: none.
    pub(crate) fn pack(&self) -> io::Result<Vec<u8>> {
        // Most of it is not sent, and the rest is compressed anew.
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        let mut text = Vec::with_capacity(ROOM);
        serde_json::to_writer(&mut text, self)?;
        out.write_all(&text)?;
        out.finish()
    }
}

/// What [`Rows::pack`] gave.
///
/// # Errors
/// As [`rows`].
pub(crate) fn unpack(message: &[u8]) -> io::Result<Rows> {
    let mut text = Vec::new();
    let read = GzDecoder::new(message)
        .take(LONGEST + 1)
        .read_to_end(&mut text)?;
    match read as u64 > LONGEST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => rows(&text),
    }
}

/// The rows in a text.
///
/// # Errors
/// If it is not as it was packed, or a stack has a frame that is not there.
pub(crate) fn rows(text: &[u8]) -> io::Result<Rows> {
    let rows: Rows = serde_json::from_slice(text)?;
    let mut places = rows.stacks.iter().flat_map(|stack| &stack.frames);
    match places.all(|place| (*place as usize) < rows.frames.len()) {
        true => Ok(rows),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
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
                window: "aQ==".to_owned(),
                samples: String::new(),
            }
        };
        let packing = packed(vec![0, 0]);
        let read = unpack(&packing.pack().unwrap()).unwrap();
        assert_eq!(read, packing);
        assert_eq!(read.window().unwrap(), b"i");
        assert!(read.frames_that(|_| true).is_some() && read.frames_that(|_| false).is_none());
        assert!(read.stacks_that(|_| true).is_some() && read.stacks_that(|_| false).is_none());
        let beyond = packed(vec![0, 1]).pack().unwrap();
        assert!(unpack(&beyond).is_err() && rows(b"{}").is_err() && rows(b"").is_err());
        assert!(unpack(b"\x1f\x8b").is_err());
    }
}
