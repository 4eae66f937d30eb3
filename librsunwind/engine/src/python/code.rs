//! What a frame runs: its code object, told from others that had its address, and what it is shown
//! as.

use super::layout::{BYTES, Layout, Position, SIZE};
use super::strings::{Head, Text};
use super::threads::word;
use crate::interpreter::memory::Memory;
use crate::mix::{mix, part};
use crate::python::recent::Codes;
use crate::wire::code::{
    Code, LONGEST_FILE, LONGEST_LINES, LONGEST_NAME, LONGEST_TABLE, LineFormat, MoreLines,
};

/// What a code object says of itself.
#[derive(Clone, Copy, Debug)]
struct Parts {
    first_line: u64,
    /// 0 if it has none.
    version: u64,
    name: u64,
    file: u64,
    lines: u64,
}

/// Where a frame stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its code object.
    pub code: u64,
    /// The number of the copy of its instructions that the thread runs; 0 is what it has itself.
    pub copy: u32,
    /// Where in it, bytes; of a copy the address.
    standing: u64,
}

impl Place {
    /// Where in it, bytes: behind all if that is nowhere in it. `start` is where the copy begins,
    /// if it is known; of none 0.
    pub fn position(&self, start: Option<u64>) -> u32 {
        let position = self.standing.wrapping_sub(start.unwrap_or(0)) as i64;
        // A frame that has not begun stands before its first instruction.
        u32::try_from(position.max(0)).unwrap_or(u32::MAX)
    }
}

/// Tags of references, from 3.14 on.
const TAGS: u64 = 7;
/// Of a word with a field of four bytes.
const HALF: u64 = u32::MAX as u64;

/// What a frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub(super) code: u64,
    pub(super) instruction: u64,
    pub(super) number: u64,
    /// The frame that called it.
    pub caller: u64,
}

impl Frame {
    /// As it is read, and kept.
    #[inline]
    pub(super) const fn of([code, instruction, number, caller]: [u64; 4]) -> Self {
        Self {
            code,
            instruction,
            number,
            caller,
        }
    }

    /// To be kept.
    #[inline]
    pub(super) const fn words(self) -> [u64; 4] {
        [self.code, self.instruction, self.number, self.caller]
    }
}

impl Layout {
    /// What a frame says of itself.
    #[inline]
    pub fn frame(&self, memory: &impl Memory, frame: u64) -> Option<Frame> {
        memory.fields(frame, &self.at_once.frame).map(Frame::of)
    }

    /// Where a frame stands.
    pub fn place(&self, memory: &impl Memory, frame: u64) -> Option<Place> {
        self.place_of(&self.frame(memory, frame)?)
    }

    /// Where a frame stands that says that of itself.
    #[inline]
    pub fn place_of(&self, frame: &Frame) -> Option<Place> {
        let Frame {
            code,
            instruction,
            number,
            ..
        } = *frame;
        let (code, copy) = (code & !TAGS, self.copies.map_or(0, |_| number as u32));
        let standing = match self.position {
            Position::Address(_) if copy != 0 => instruction,
            Position::Address(start) => instruction.wrapping_sub(code.wrapping_add(start)),
            Position::Counted(unit) => i64::from(instruction as i32).wrapping_mul(unit) as u64,
        };
        (code != 0).then_some(Place {
            code,
            copy,
            standing,
        })
    }

    /// Where the copy of the instructions begins that a frame runs. It stays there for the thread's
    /// life, but other threads may put away the list of all copies at this moment, so that is read
    /// by who can tell, and right if it is still the list then.
    pub fn start_of(&self, memory: &impl Memory, place: &Place) -> Option<u64> {
        let all = || memory.at(place.code, self.copies?.all);
        let list = all()?;
        let behind = u64::from(place.copy).wrapping_add(1).wrapping_mul(8);
        let start = word(memory, list, behind)?;
        (start != 0 && all()? == list).then_some(start)
    }

    /// A number that is another when another code object is at that address: of its version and
    /// where its parts are. Where it has no version: of its lines, as far as their length and ends
    /// tell, and its texts, since the next one may have its parts where this one had them. 0 if it
    /// is none, cannot be read, or is the interpreter's own. `known` is what this walk has met:
    /// many functions are of one file.
    pub fn check(
        &self,
        memory: &impl Memory,
        code: u64,
        code_type: u64,
        known: &mut Codes<'_>,
    ) -> u64 {
        known.find(code).unwrap_or_else(|| {
            let parts = self.parts(memory, code, code_type);
            let digest = parts.and_then(|parts| self.digest(memory, &parts, known));
            let check = digest.unwrap_or(0);
            known.keep(code, check);
            check
        })
    }

    /// What a code object says of itself; `None` if it is none.
    fn parts(&self, memory: &impl Memory, code: u64, code_type: u64) -> Option<Parts> {
        let fields = memory.fields(code, &self.at_once.code)?;
        let [kind, first_line, version, name, file, lines] = fields;
        let version = self.version.map_or(0, |_| version & HALF);
        (kind == code_type).then_some(Parts {
            first_line: first_line & HALF,
            version,
            name,
            file,
            lines,
        })
    }

    fn digest(&self, memory: &impl Memory, parts: &Parts, known: &mut Codes<'_>) -> Option<u64> {
        let first_line = parts.first_line;
        // The interpreter's own code objects have none.
        if parts.version != 0 {
            let words = [first_line, parts.version, parts.name, parts.lines];
            return Some(sum(words).max(1));
        }
        let [length, first] = memory.fields(parts.lines, &self.at_once.bytes)?;
        // To 3.9 what is all on its first line has an empty table.
        if length == 0 && self.format != LineFormat::Python39 {
            return None;
        }
        // What calls `__init__` for a class has that name for its file, too.
        if parts.first_line == 0 && parts.file == parts.name {
            return None;
        }
        let start = parts.lines.checked_add(self.of_object(BYTES))?;
        let [first, last] = ends(memory, (start, first), length)?;
        let name = Head::at(memory, self, parts.name)?;
        // The interpreter has computed that of all names.
        let name = match name.hash {
            Some(hash) => hash,
            None => text_number(memory, &name.text(self, parts.name)?)?,
        };
        let of_file = match known.find(parts.file) {
            Some(of_file) => of_file,
            None => {
                // Its hash may be computed any time.
                let of_file = text_number(memory, &Text::at(memory, self, parts.file)?)?;
                known.keep(parts.file, of_file);
                of_file
            }
        };
        Some(sum([first_line, length, first, last, name, of_file]).max(1))
    }

    /// Describes a code object, part by part, until somebody has no use for more; not if it cannot
    /// be read.
    #[cold]
    #[inline(never)]
    pub fn describe(
        &self,
        memory: &impl Memory,
        code: u64,
        mut tell: impl FnMut(Part<'_>) -> Option<()>,
    ) -> Option<()> {
        let mut room = Room {
            name: [0; LONGEST_NAME],
            file: [0; LONGEST_FILE],
            lines: [0; LONGEST_LINES],
        };
        let table = memory.at(code, self.lines)?;
        let length = usize::try_from(memory.at(table, self.of_object(SIZE))?).ok()?;
        let length = length.min(LONGEST_TABLE);
        let table = table.checked_add(self.of_object(BYTES))?;
        let head = self.read(memory, code, (table, length), &mut room)?;
        tell(Part::Code(head, length <= LONGEST_LINES))?;
        let mut offset = LONGEST_LINES;
        while offset < length {
            let end = offset.saturating_add(LONGEST_LINES).min(length);
            let lines = room.lines.get_mut(..end.checked_sub(offset)?)?;
            memory.bytes(table.checked_add(offset as u64)?, lines)?;
            let more = MoreLines {
                offset: u32::try_from(offset).ok()?,
                lines,
                ..MoreLines::default()
            };
            tell(Part::Lines(more, end == length))?;
            offset = end;
        }
        Some(())
    }

    fn read<'r>(
        &self,
        memory: &impl Memory,
        code: u64,
        (table, length): (u64, usize),
        room: &'r mut Room,
    ) -> Option<Code<'r>> {
        let text = |offset| Text::at(memory, self, memory.at(code, offset)?);
        let lines = room.lines.get_mut(..length.min(LONGEST_LINES))?;
        memory.bytes(table, lines)?;
        Some(Code {
            name: text(self.name)?.read(memory, &mut room.name)?,
            file: text(self.file)?.read(memory, &mut room.file)?,
            first_line: u32::try_from(memory.at(code, self.first_line)? & HALF).ok()?,
            format: self.format,
            lines,
            ..Code::default()
        })
    }
}

/// A part of a description, but for its number; and whether that is all.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// The first, with the beginning of the line table.
    Code(Code<'a>, bool),
    /// More of the line table.
    Lines(MoreLines<'a>, bool),
}

/// For a description.
struct Room {
    name: [u8; LONGEST_NAME],
    file: [u8; LONGEST_FILE],
    lines: [u8; LONGEST_LINES],
}

/// A number that is another for another text.
fn text_number(memory: &impl Memory, text: &Text) -> Option<u64> {
    /// Of a longer text, what lies between here and its end is not looked at.
    const MIDDLE: u64 = 128;
    let first = memory.load(text.start)?;
    let [first, last] = ends(memory, (text.start, first), text.size)?;
    let mut digest = sum([text.size, first, last]);
    // Names that a program makes often differ in the middle alone.
    for at in (8..text.size.saturating_sub(8).min(MIDDLE)).step_by(8) {
        digest = digest.wrapping_add(part(at, memory.at(text.start, at)?));
    }
    Some(mix(digest))
}

/// What words at their places make together.
#[inline(always)]
fn sum<const COUNT: usize>(words: [u64; COUNT]) -> u64 {
    let (mut sum, mut place) = (0u64, 0u64);
    for word in words {
        sum = sum.wrapping_add(part(place, word));
        place = place.wrapping_add(1);
    }
    sum
}

/// The first and last eight bytes of some, or all of fewer. The first are known.
#[inline]
fn ends(memory: &impl Memory, (start, first): (u64, u64), length: u64) -> Option<[u64; 2]> {
    Some(match length.checked_sub(8) {
        Some(rest) => [first, memory.at(start, rest)?],
        None => {
            let beyond = 64u64.wrapping_sub(length.wrapping_mul(8)) as u32;
            [first.checked_shl(beyond).unwrap_or(0), 0]
        }
    })
}
