//! A window's rows on their way to ClickHouse. What each window has of its own is ready to be
//! sent; frames and stacks are rows, of which those are sent that are not there yet.

use super::native::Block;
use flate2::read::GzDecoder;
use prost::Message;
use std::io::{self, Read as _};

/// No message is longer when it is unpacked, bytes: a damaged message must not fill memory.
const LONGEST: u64 = 64 << 20;
/// Nor are there more strings: one of two bytes takes some thirty in memory.
const MOST_STRINGS: usize = 1 << 20;

/// The rows of a window.
#[derive(PartialEq, Eq, Message)]
pub(crate) struct Rows {
    /// What frames are called; the first is empty.
    #[prost(string, repeated, tag = "1")]
    pub(crate) strings: Vec<String>,
    #[prost(message, required, tag = "2")]
    pub(crate) frames: Frames,
    #[prost(message, required, tag = "3")]
    pub(crate) stacks: Stacks,
    /// Its row of the table of windows: the body of a request.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) window: Vec<u8>,
    /// Its samples, likewise.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) samples: Vec<u8>,
}

/// Rows of the table of frames, column by column. Texts are places in [`Rows::strings`].
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Frames {
    #[prost(fixed64, repeated, tag = "1")]
    pub(crate) hash: Vec<u64>,
    #[prost(uint32, repeated, tag = "2")]
    pub(crate) function: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub(crate) short: Vec<u32>,
    #[prost(uint32, repeated, tag = "4")]
    pub(crate) file: Vec<u32>,
    #[prost(uint32, repeated, tag = "5")]
    pub(crate) line: Vec<u32>,
    #[prost(uint32, repeated, tag = "6")]
    pub(crate) binary: Vec<u32>,
    #[prost(uint32, repeated, tag = "7")]
    pub(crate) build_id: Vec<u32>,
    #[prost(uint32, repeated, tag = "8")]
    pub(crate) language: Vec<u32>,
    #[prost(uint32, repeated, tag = "9")]
    pub(crate) inlined: Vec<u32>,
}

/// Rows of the table of stacks.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Stacks {
    #[prost(fixed64, repeated, tag = "1")]
    pub(crate) hash: Vec<u64>,
    /// How many frames each has.
    #[prost(uint32, repeated, tag = "2")]
    pub(crate) depth: Vec<u32>,
    /// Places in [`Rows::frames`], of one stack behind the other, each from the innermost.
    #[prost(fixed32, repeated, tag = "3")]
    pub(crate) frames: Vec<u32>,
}

impl Frames {
    fn texts(&self) -> [&Vec<u32>; 6] {
        let [function, short, file] = [&self.function, &self.short, &self.file];
        let [binary, build_id, language] = [&self.binary, &self.build_id, &self.language];
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
    /// Each with its hash. Of what was read it is whole ([`rows`]).
    fn each(&self) -> impl Iterator<Item = (u64, &[u32])> {
        let mut rest = &self.frames[..];
        let depths = self.depth.iter().map(|depth| *depth as usize);
        self.hash
            .iter()
            .zip(depths)
            .map_while(move |(hash, depth)| {
                let (frames, behind) = rest.split_at_checked(depth)?;
                rest = behind;
                Some((*hash, frames))
            })
    }

    /// Whether each row is whole, with so many frames.
    fn is_whole(&self, frames: usize) -> bool {
        let all: u64 = self.depth.iter().map(|depth| u64::from(*depth)).sum();
        self.frames.iter().all(|place| (*place as usize) < frames)
            && self.depth.len() == self.hash.len()
            && self.frames.len() as u64 == all
    }
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
        let text = |place: u32| self.strings.get(place as usize).map_or("", String::as_str);
        let texts = |column| numbers(column).map(text);
        let hash = |row: &usize| frames.hash.get(*row).copied().unwrap_or(0);
        let mut block = Block::of(rows.len());
        block.texts("service", rows.iter().map(|_| service));
        block.u64s("hash", rows.iter().map(hash));
        block.texts("function", texts(&frames.function));
        block.texts("short", texts(&frames.short));
        block.texts("file", texts(&frames.file));
        block.u32s("line", numbers(&frames.line));
        block.texts("binary", texts(&frames.binary));
        block.texts("build_id", texts(&frames.build_id));
        block.texts("language", texts(&frames.language));
        block.u32s("inlined", numbers(&frames.inlined));
        (!rows.is_empty()).then(|| block.finish())
    }

    /// Those stacks, likewise. What is called by the same lies together.
    pub(crate) fn stacks_that(
        &self,
        service: &str,
        mut are_meant: impl FnMut(u64) -> bool,
    ) -> Option<io::Result<Vec<u8>>> {
        let stacks = self.stacks.each().filter(|(hash, _)| are_meant(*hash));
        let hash = |place: &u32| self.frames.hash.get(*place as usize).copied().unwrap_or(0);
        let stacks = stacks.map(|(_, frames)| frames.iter().map(hash).collect());
        let mut rows: Vec<Vec<u64>> = stacks.collect();
        rows.sort_unstable_by(|one, other| one.iter().rev().cmp(other.iter().rev()));
        let mut block = Block::of(rows.len());
        block.texts("service", rows.iter().map(|_| service));
        block.lists("frames", rows.iter().map(Vec::as_slice));
        (!rows.is_empty()).then(|| block.finish())
    }
}

/// What a compressed message begins with. One that is not begins with the key of a field, which
/// ends in [`WITH_LENGTH`].
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
/// there: nothing at all would be rows without any, too. [`io::ErrorKind::FileTooLarge`] if there
/// are too many strings.
pub(crate) fn rows(bytes: &[u8]) -> io::Result<Rows> {
    let fields = fields(bytes).ok_or(io::ErrorKind::InvalidData)?;
    if fields > MOST_STRINGS {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let rows = Rows::decode(bytes)?;
    let are_whole = rows.frames.is_whole(rows.strings.len());
    let are_whole = are_whole && rows.stacks.is_whole(rows.frames.hash.len());
    match are_whole && !rows.window.is_empty() {
        true => Ok(rows),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// How the kind of a field is marked in its key that has a length.
const WITH_LENGTH: u8 = 2;

/// How many fields a message has, if all are of the kind that those of [`Rows`] are, and each key
/// has one byte as theirs do: of a longer one, the rest would be taken for a length.
fn fields(mut bytes: &[u8]) -> Option<usize> {
    const KIND: u8 = 7;
    const GOES_ON: u8 = 0x80;
    let mut fields = 0;
    while let Some((key, rest)) = bytes.split_first() {
        bytes = rest;
        let length = prost::decode_length_delimiter(&mut bytes).ok()?;
        bytes = bytes
            .get(length..)
            .filter(|_| key & (KIND | GOES_ON) == WITH_LENGTH)?;
        fields += 1;
    }
    Some(fields)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    /// A frame and its stack.
    pub(crate) fn example([frame, stack]: [u64; 2]) -> Rows {
        Rows {
            strings: ["", "ä\n\""].map(str::to_owned).into(),
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
            stacks: Stacks {
                hash: vec![stack],
                depth: vec![2],
                frames: vec![0, 0],
            },
            window: b"w".to_vec(),
            samples: Vec::new(),
        }
    }

    #[test]
    fn rows_are_read_back() {
        let rows = example([u64::MAX, 1]);
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
        let stacks: Vec<_> = read.stacks.each().collect();
        assert_eq!(stacks, [(1, &[0, 0][..])]);
    }

    #[test]
    fn what_is_none_is_refused() {
        let changes: [fn(&mut Rows); 8] = [
            |rows| rows.strings.truncate(1),
            |rows| rows.frames.function.clear(),
            |rows| rows.frames.hash.push(2),
            |rows| rows.frames.inlined.push(2),
            |rows| rows.stacks.frames[1] = 1,
            |rows| rows.stacks.depth[0] = 3,
            |rows| rows.stacks.hash.clear(),
            |rows| rows.window.clear(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut rows = example([2, 1]);
            change(&mut rows);
            assert!(unpack(&rows.encode_to_vec()).is_err(), "{number}");
        }
        assert!(rows(b"{}").is_err() && rows(b"").is_err() && unpack(b"\x1f\x8b").is_err());
        let whole = example([2, 1]).encode_to_vec();
        let with = |strings| [&whole, &[10, 0].repeat(strings)[..]].concat();
        assert!(rows(&with(100)).is_ok() && rows(&with(MOST_STRINGS)).is_err());
        // Keys that are longer than they need be, among which the count would lose its place.
        let hidden = |strings| [&whole, &[0x8a, 0, 2, b'~', b'a'].repeat(strings)[..]].concat();
        assert!(rows(&hidden(MOST_STRINGS + 26 - MOST_STRINGS % 26)).is_err());
    }
}
