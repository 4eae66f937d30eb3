//! What a frame runs: its code object, told from others that had its address, and what it is shown
//! as.

use super::layout::{Layout, Position};
use super::strings::Text;
use super::threads::word;
use crate::interpreter::memory::Memory;
use crate::interpreter::recent::Codes;
use crate::mix::{join, mix};
use crate::wire::code::{
    Code, LONGEST_FILE, LONGEST_LINES, LONGEST_NAME, LONGEST_TABLE, LineFormat, MoreLines,
};

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

/// Of every object: its type. Of those of variable size: how many items.
const TYPE: u64 = 8;
const SIZE: u64 = 16;
/// Of a bytes object.
const BYTES: u64 = 32;

impl Layout {
    /// Where a frame stands.
    pub fn place(&self, memory: &impl Memory, frame: u64) -> Option<Place> {
        /// Tags of references, from 3.14 on.
        const TAGS: u64 = 7;
        let code = memory.at(frame, self.code)? & !TAGS;
        let instruction = memory.at(frame, self.instruction)?;
        let copy = match self.copies {
            Some(copies) => memory.at(frame, copies.number)? as u32,
            None => 0,
        };
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
            let digest = self.digest(memory, code, code_type, known);
            let check = digest.unwrap_or(0);
            known.keep(code, check);
            check
        })
    }

    fn digest(
        &self,
        memory: &impl Memory,
        code: u64,
        code_type: u64,
        known: &mut Codes<'_>,
    ) -> Option<u64> {
        if memory.at(code, self.of_object(TYPE))? != code_type {
            return None;
        }
        let lines = memory.at(code, self.lines)?;
        if let Some(version) = self.version(memory, code) {
            let parts = [version, memory.at(code, self.name)?, lines];
            let first = mix(self.first_line(memory, code)?);
            let digest = parts.iter().fold(first, |digest, part| join(digest, *part));
            return Some(digest.max(1));
        }
        let length = memory.at(lines, self.of_object(SIZE))?;
        let first_line = self.first_line(memory, code)?;
        let mut digest = join(mix(first_line), length);
        // To 3.9 what is all on its first line has an empty table.
        if length == 0 && self.format != LineFormat::Python39 {
            return None;
        }
        // What calls `__init__` for a class has that name for its file, too.
        if first_line == 0 && memory.at(code, self.file)? == memory.at(code, self.name)? {
            return None;
        }
        for word in ends(memory, lines.checked_add(self.of_object(BYTES))?, length) {
            digest = join(digest, word?);
        }
        let name = Text::at(memory, self, memory.at(code, self.name)?)?;
        // The interpreter has computed that of all names.
        let name = match name.hash {
            Some(hash) => hash,
            None => text_number(memory, &name)?,
        };
        let file = memory.at(code, self.file)?;
        let of_file = match known.find(file) {
            Some(of_file) => of_file,
            None => {
                // Its hash may be computed any time.
                let of_file = text_number(memory, &Text::at(memory, self, file)?)?;
                known.keep(file, of_file);
                of_file
            }
        };
        digest = join(join(digest, name), of_file);
        Some(digest.max(1))
    }

    /// The interpreter's own code objects have none.
    fn version(&self, memory: &impl Memory, code: u64) -> Option<u64> {
        let version = memory.at(code, self.version?)? & u64::from(u32::MAX);
        (version != 0).then_some(version)
    }

    fn first_line(&self, memory: &impl Memory, code: u64) -> Option<u64> {
        let line = memory.at(code, self.first_line)?;
        Some(line & u64::from(u32::MAX))
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
            memory.copy(table.checked_add(offset as u64)?, lines)?;
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
        memory.copy(table, lines)?;
        Some(Code {
            name: text(self.name)?.read(memory, &mut room.name)?,
            file: text(self.file)?.read(memory, &mut room.file)?,
            first_line: u32::try_from(self.first_line(memory, code)?).ok()?,
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
    let mut digest = mix(text.size);
    for word in ends(memory, text.start, text.size) {
        digest = join(digest, word?);
    }
    // Names that a program makes often differ in the middle alone.
    for at in (8..text.size.saturating_sub(8).min(MIDDLE)).step_by(8) {
        digest = join(digest, memory.at(text.start, at)?);
    }
    Some(digest)
}

/// The first and last eight bytes of some, or all of fewer.
fn ends(memory: &impl Memory, start: u64, length: u64) -> [Option<u64>; 2] {
    let first = memory.load(start);
    match length.checked_sub(8) {
        Some(rest) => [first, memory.at(start, rest)],
        None => {
            let beyond = 64u64.wrapping_sub(length.wrapping_mul(8)) as u32;
            [
                first.map(|word| word.checked_shl(beyond).unwrap_or(0)),
                Some(0),
            ]
        }
    }
}
