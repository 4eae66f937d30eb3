//! A window's rows on their way to ClickHouse. What each window has of its own is ready to be
//! sent; frames and stacks are rows, of which those are sent that are not there yet.

use super::native::Block;
use flate2::read::GzDecoder;
use prost::Message;
use std::io::{self, Read as _};
use std::ops::Range;

/// No message is longer when it is unpacked, bytes: a damaged message must not fill memory.
const LONGEST: u64 = 64 << 20;
/// Nor has it more frames on its stacks together, each of which takes some bytes.
const MOST_FRAMES: u64 = LONGEST / 4;

/// The rows of a window.
#[derive(PartialEq, Eq, Message)]
pub(crate) struct Rows {
    #[prost(message, required, tag = "2")]
    pub(crate) frames: Frames,
    /// Its row of the table of windows: the body of a request.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) window: Vec<u8>,
    /// Its samples, likewise.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) samples: Vec<u8>,
    /// What frames are called; the first is empty.
    #[prost(message, required, tag = "6")]
    pub(crate) strings: Texts,
    #[prost(message, required, tag = "7")]
    pub(crate) stacks: Stacks,
}

/// Texts, one behind the other.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Texts {
    #[prost(string, tag = "1")]
    all: String,
    /// Where each ends, bytes.
    #[prost(fixed32, repeated, tag = "2")]
    ends: Vec<u32>,
}

/// Rows of the table of frames, column by column. Texts are places in [`Rows::strings`].
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Frames {
    #[prost(fixed64, repeated, tag = "1")]
    pub(crate) hash: Vec<u64>,
    #[prost(fixed32, repeated, tag = "10")]
    pub(crate) function: Vec<u32>,
    #[prost(fixed32, repeated, tag = "11")]
    pub(crate) short: Vec<u32>,
    #[prost(fixed32, repeated, tag = "12")]
    pub(crate) file: Vec<u32>,
    #[prost(fixed32, repeated, tag = "13")]
    pub(crate) line: Vec<u32>,
    #[prost(fixed32, repeated, tag = "14")]
    pub(crate) binary: Vec<u32>,
    #[prost(fixed32, repeated, tag = "15")]
    pub(crate) build_id: Vec<u32>,
    #[prost(fixed32, repeated, tag = "16")]
    pub(crate) language: Vec<u32>,
    #[prost(fixed32, repeated, tag = "17")]
    pub(crate) inlined: Vec<u32>,
}

/// Rows of the table of stacks. A stack is a call and its callers, which are calls of others, too.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Stacks {
    #[prost(fixed64, repeated, tag = "1")]
    pub(crate) hash: Vec<u64>,
    /// Of each its innermost call.
    #[prost(fixed32, repeated, tag = "2")]
    innermost: Vec<u32>,
    /// Of each call how far before it its caller is; 0 if it is an outermost one.
    #[prost(fixed32, repeated, tag = "3")]
    back: Vec<u32>,
    /// Places in [`Rows::frames`].
    #[prost(fixed32, repeated, tag = "4")]
    frame: Vec<u32>,
}

impl Texts {
    /// Adds one.
    pub(crate) fn push(&mut self, text: &str) {
        self.all.push_str(text);
        self.ends.push(small(self.all.len()));
    }

    /// Where one is in the text of all.
    fn range(&self, place: usize) -> Option<Range<usize>> {
        let end = *self.ends.get(place)? as usize;
        let before = place.checked_sub(1).and_then(|place| self.ends.get(place));
        Some(before.map_or(0, |end| *end as usize)..end)
    }

    /// The one there; an empty one where none is.
    fn at(&self, place: u32) -> &str {
        let range = self.range(place as usize);
        range.and_then(|it| self.all.get(it)).unwrap_or("")
    }

    fn is_whole(&self) -> bool {
        let mut ranges = (0..self.ends.len()).filter_map(|place| self.range(place));
        ranges.all(|range| self.all.get(range).is_some())
    }
}

impl Frames {
    fn texts(&self) -> [&Vec<u32>; 6] {
        let [function, short, file] = [&self.function, &self.short, &self.file];
        let [binary, build_id, language] = [&self.binary, &self.build_id, &self.language];
        [function, short, file, binary, build_id, language]
    }

    /// Function, short, file, binary, build-id, language.
    pub(crate) const fn texts_mut(&mut self) -> [&mut Vec<u32>; 6] {
        let [function, short, file] = [&mut self.function, &mut self.short, &mut self.file];
        let [binary, build_id, language] =
            [&mut self.binary, &mut self.build_id, &mut self.language];
        [function, short, file, binary, build_id, language]
    }

    /// Whether each row is whole, with so many strings.
    fn is_whole(&self, strings: usize) -> bool {
        let columns = self.texts().into_iter().chain([&self.line, &self.inlined]);
        let mut texts = self.texts().into_iter().flatten();
        texts.all(|place| (*place as usize) < strings)
            && columns.into_iter().all(|one| one.len() == self.hash.len())
    }
}

impl Stacks {
    /// Adds a call of a frame; `caller` is a call that is there.
    pub(crate) fn call(&mut self, caller: Option<u32>, frame: u32) -> u32 {
        let place = small(self.frame.len());
        self.back.push(caller.map_or(0, |caller| place - caller));
        self.frame.push(frame);
        place
    }

    /// Adds a stack by its hash and its innermost call, which is there.
    pub(crate) fn push(&mut self, hash: u64, innermost: u32) {
        self.hash.push(hash);
        self.innermost.push(innermost);
    }

    /// The frames of a call and its callers. Of what was read it is whole ([`rows`]).
    fn frames(&self, innermost: u32) -> impl Iterator<Item = u32> {
        let mut next = Some(innermost);
        std::iter::from_fn(move || {
            let call = next?;
            let back = self.back.get(call as usize).filter(|back| **back > 0);
            next = back.and_then(|back| call.checked_sub(*back));
            self.frame.get(call as usize).copied()
        })
    }

    /// Whether each row is whole, with so many frames, and not too long.
    fn is_whole(&self, frames: usize) -> bool {
        let mut depths: Vec<u32> = Vec::with_capacity(self.back.len());
        for back in &self.back {
            let caller = (*back > 0).then(|| depths.len().checked_sub(*back as usize));
            let callers = match caller {
                None => 0,
                Some(Some(caller)) => depths[caller],
                Some(None) => return false,
            };
            depths.push(callers + 1);
        }
        let depth = |call: &u32| depths.get(*call as usize);
        let all: Option<u64> = (self.innermost.iter())
            .map(|call| depth(call).copied().map(u64::from))
            .sum();
        self.frame.iter().all(|place| (*place as usize) < frames)
            && self.frame.len() == self.back.len()
            && self.innermost.len() == self.hash.len()
            && all.is_some_and(|all| all <= MOST_FRAMES)
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Rows {
    /// Those frames, by their hashes, as the body of an insert; `None` if there are none.
    pub(crate) fn frames_that(
        &self,
        service: &str,
        mut are_meant: impl FnMut(u64) -> bool,
    ) -> Option<io::Result<Vec<u8>>> {
        let frames = &self.frames;
        let rows = frames.hash.iter().zip(0..);
        let rows = rows.filter(|(hash, _)| are_meant(**hash));
        let rows: Vec<usize> = rows.map(|(_, row)| row).collect();
        let of = |column: &Vec<u32>, row: &usize| column.get(*row).copied().unwrap_or(0);
        let numbers = |column| rows.iter().map(move |row| of(column, row));
        let texts = |column| numbers(column).map(|place| self.strings.at(place));
        let hash = |row: &usize| frames.hash.get(*row).copied().unwrap_or(0);
        let mut block = Block::of(rows.len());
        block.labels("service", rows.iter().map(|_| service));
        block.texts("function", texts(&frames.function));
        block.texts("short", texts(&frames.short));
        block.texts("file", texts(&frames.file));
        block.u32s("line", numbers(&frames.line));
        block.labels("binary", texts(&frames.binary));
        block.texts("build_id", texts(&frames.build_id));
        block.labels("language", texts(&frames.language));
        block.u32s("inlined", numbers(&frames.inlined));
        block.apart();
        block.u64s("hash", rows.iter().map(hash));
        (!rows.is_empty()).then(|| block.finish())
    }

    /// Those stacks, likewise. What is called by the same lies together.
    pub(crate) fn stacks_that(
        &self,
        service: &str,
        mut are_meant: impl FnMut(u64) -> bool,
    ) -> Option<io::Result<Vec<u8>>> {
        let (mut frames, mut ends) = (Vec::new(), Vec::new());
        for (hash, innermost) in self.stacks.hash.iter().zip(&self.stacks.innermost) {
            if are_meant(*hash) {
                frames.extend(self.stacks.frames(*innermost));
                ends.push(frames.len());
            }
        }
        let mut begin = 0;
        let stack = |end: &usize| &frames[std::mem::replace(&mut begin, *end)..*end];
        let mut rows: Vec<&[u32]> = ends.iter().map(stack).collect();
        rows.sort_unstable_by(|one, other| one.iter().rev().cmp(other.iter().rev()));
        let mut block = Block::of(rows.len());
        block.labels("service", rows.iter().map(|_| service));
        block.lists("frames", &rows, &self.frames.hash);
        (!rows.is_empty()).then(|| block.finish())
    }
}

/// What a compressed message begins with. One that is not begins with the key of a field that has a
/// length, which ends in 2.
pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The rows in a message, compressed or not.
///
/// # Errors
/// As [`rows`].
pub(crate) fn unpack(message: &[u8]) -> io::Result<Rows> {
    let mut unpacked = Vec::new();
    let bytes = match message.starts_with(&GZIP) {
        true => {
            let mut unpacking = GzDecoder::new(message).take(LONGEST + 1);
            unpacking.read_to_end(&mut unpacked)?;
            &unpacked
        }
        false => message,
    };
    match bytes.len() as u64 > LONGEST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => rows(bytes),
    }
}

/// The rows in what is not compressed any more.
///
/// # Errors
/// If it is not as it was encoded, a row refers to what is not there, or the window's row is not
/// there: nothing at all would be rows without any, too.
pub(crate) fn rows(bytes: &[u8]) -> io::Result<Rows> {
    let rows = Rows::decode(bytes)?;
    let are_whole = rows.strings.is_whole() && rows.frames.is_whole(rows.strings.ends.len());
    let are_whole = are_whole && rows.stacks.is_whole(rows.frames.hash.len());
    match are_whole && !rows.window.is_empty() {
        true => Ok(rows),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    /// A frame and its stack.
    pub(crate) fn example([frame, stack]: [u64; 2]) -> Rows {
        let mut strings = Texts::default();
        ["", "ä\n\""].iter().for_each(|text| strings.push(text));
        let mut stacks = Stacks::default();
        let outer = stacks.call(None, 0);
        let inner = stacks.call(Some(outer), 0);
        stacks.push(stack, inner);
        Rows {
            strings,
            frames: Frames {
                hash: vec![frame],
                function: vec![1],
                short: vec![0],
                file: vec![0],
                line: vec![7],
                binary: vec![0],
                build_id: vec![0],
                language: vec![0],
                inlined: vec![0],
            },
            stacks,
            window: b"w".to_vec(),
            samples: Vec::new(),
        }
    }

    #[test]
    fn rows_are_read_back() {
        let mut rows = example([u64::MAX, 1]);
        let other = rows.stacks.call(Some(0), 0);
        rows.stacks.push(2, other);
        rows.stacks.push(3, 0);
        let bytes = rows.encode_to_vec();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&bytes).unwrap();
        let read = unpack(&gzip.finish().unwrap()).unwrap();
        assert_eq!((&unpack(&bytes).unwrap(), &read), (&rows, &rows));
        assert!(read.frames_that("shop", |hash| hash == u64::MAX).is_some());
        assert!(read.stacks_that("shop", |hash| hash == 1).is_some());
        assert!(
            read.frames_that("", |_| false).is_none() && read.stacks_that("", |_| false).is_none()
        );
        let depths = [1, other, 0].map(|call| read.stacks.frames(call).count());
        assert_eq!(depths, [2, 2, 1]);
        assert_eq!(
            [0, 1, 2].map(|place| read.strings.at(place)),
            ["", "ä\n\"", ""]
        );
    }

    #[test]
    fn what_is_none_is_refused() {
        let changes: [fn(&mut Rows); 12] = [
            |rows| rows.strings.ends.truncate(1),
            |rows| rows.strings.ends[1] = 1,
            |rows| rows.strings.ends[1] = 9,
            |rows| rows.strings.ends[0] = 5,
            |rows| rows.frames.function.clear(),
            |rows| rows.frames.hash.push(2),
            |rows| rows.frames.inlined.push(2),
            |rows| rows.stacks.frame[1] = 1,
            |rows| rows.stacks.back[1] = 2,
            |rows| rows.stacks.innermost[0] = 2,
            |rows| rows.stacks.hash.clear(),
            |rows| rows.window.clear(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut rows = example([2, 1]);
            change(&mut rows);
            assert!(unpack(&rows.encode_to_vec()).is_err(), "{number}");
        }
        assert!(rows(b"{}").is_err() && rows(b"").is_err() && unpack(b"\x1f\x8b").is_err());
    }

    #[test]
    fn a_few_bytes_are_not_taken_for_very_many_frames() {
        let stacks = |depth: u32| {
            let mut stacks = Stacks::default();
            for caller in 0..depth {
                stacks.call(caller.checked_sub(1), 0);
                stacks.push(1, caller);
            }
            stacks
        };
        assert!(stacks(5_000).is_whole(1) && !stacks(6_000).is_whole(1));
    }
}
