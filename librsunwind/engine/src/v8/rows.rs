//! Where in the source each bytecode of a function comes from: V8's tables, made into rows of
//! positions and lines.

use super::bytes::Bytes;
use super::heap::{Heap, small};
use super::lines::Lines;
use crate::interpreter::memory::Memory;
use crate::wire::code::put_step;
use crate::wire::codec::Encoder;

impl<M: Memory> Heap<'_, M> {
    /// Writes the lines of a function's bytecodes, by where they are; gives how long that is.
    pub fn bytecode_lines(&self, bytecodes: u64, lines: &Lines, to: &mut [u8]) -> Option<usize> {
        let mut table = self.positions(bytecodes)?;
        let mut rows = Rows::new(lines.first, to);
        while let Some((offset, position)) = table.next_position() {
            if !rows.add(offset, lines.at(position)) {
                break;
            }
        }
        Some(rows.length)
    }

    /// The source positions of a function's bytecodes.
    pub fn positions(&self, bytecodes: u64) -> Option<Positions<'_, M>> {
        self.positions_in(self.field(bytecodes, self.layout.bytecode_positions)?)
    }

    /// Those in a table.
    pub fn positions_in(&self, table: u64) -> Option<Positions<'_, M>> {
        Some(Positions {
            bytes: self.bytes(table)?,
            offset: ENTRY,
            position: 0,
        })
    }

    /// What is in an array of bytes.
    pub fn bytes(&self, word: u64) -> Option<Bytes<'_, M>> {
        let array = self.object(word)?.address;
        let length = small(self.field(array, LENGTH)?)?;
        Bytes::new(self.memory, array.checked_add(DATA)?, length)
    }
}

/// Of an array of bytes, also of bytecodes.
pub const LENGTH: u64 = 8;
/// Of an array of bytes: these.
pub const DATA: u64 = 16;

/// The offset of a function's beginning, before its first bytecode: tables begin there.
const ENTRY: i64 = -1;

/// A table of source positions as it is read: pairs of numbers, what is added to the offset in the
/// code (the sign tells statements from expressions), and to the position.
pub struct Positions<'m, M> {
    bytes: Bytes<'m, M>,
    offset: i64,
    position: i64,
}

impl<M: Memory> Positions<'_, M> {
    /// Where a bytecode is, and from which character it comes.
    pub fn next_position(&mut self) -> Option<(u32, u32)> {
        let (offset, source) = self.next_source()?;
        Some((offset, source.character().unwrap_or(u32::MAX)))
    }

    /// Where an instruction is, and what it comes from.
    pub fn next_source(&mut self) -> Option<(u32, Source)> {
        let step = self.number()?;
        // One's complement marks an expression.
        let step = if step < 0 { !step } else { step };
        self.offset = self.offset.wrapping_add(step);
        self.position = self.position.wrapping_add(self.number()?);
        let source = Source(self.position.cast_unsigned());
        Some((u32::try_from(self.offset.max(0)).ok()?, source))
    }

    /// Zigzag.
    fn number(&mut self) -> Option<i64> {
        let number = self.bytes.number()?;
        Some((number >> 1).cast_signed() ^ (number & 1).cast_signed().wrapping_neg())
    }
}

/// What an instruction comes from, as V8 has it in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub u64);

impl Source {
    /// The character. Bit 0 is for other sources; the position is in 30 bits, plus one.
    pub fn character(self) -> Option<u32> {
        let position = (self.0 >> 1 & 0x3fff_ffff) as u32;
        position.checked_sub(1).filter(|_| self.0 & 1 == 0)
    }

    /// Which of the functions that were made part of another one it is in, if it is in one: in 16
    /// bits, plus one.
    pub fn inlined(self) -> Option<u32> {
        (self.0 >> 31 & 0xffff)
            .checked_sub(1)
            .map(|number| number as u32)
    }
}

/// Writes the lines of a function by where they begin in it; gives how long that is.
pub fn write_lines(lines: &Lines, to: &mut [u8]) -> usize {
    let mut rows = Rows::new(lines.first, to);
    let _ = lines.beginnings().all(|(at, line)| rows.add(at, line));
    rows.length
}

/// Rows as they are written.
pub struct Rows<'b> {
    to: &'b mut [u8],
    /// Bytes written.
    pub length: usize,
    before: (u32, u32),
}

impl<'b> Rows<'b> {
    /// Behind the first line.
    pub const fn new(first: u32, to: &'b mut [u8]) -> Self {
        Self {
            to,
            length: 0,
            before: (0, first),
        }
    }

    /// Adds a row, if it has another line than the one before; `false` if there is no room: then
    /// the last one says that what is behind has no line.
    pub fn add(&mut self, offset: u32, line: u32) -> bool {
        /// Bytes of a row, at most.
        const ROW: usize = 10;
        if line == self.before.1 {
            return true;
        }
        let rest = self.to.get_mut(self.length..).unwrap_or_default();
        let has_room = rest.len() >= 2 * ROW;
        let row = (offset, if has_room { line } else { 0 });
        let mut out = Encoder::new(rest);
        put_step(&mut out, self.before, row);
        self.length = self.length.saturating_add(out.finish().unwrap_or(0));
        self.before = row;
        has_room
    }
}
