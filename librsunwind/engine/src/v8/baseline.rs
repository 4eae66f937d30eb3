//! What the baseline compiler made of a function, and its lines.
//!
//! It goes through the bytecodes once and makes instructions of each in turn; its table says only
//! how many bytes each came to. So the bytecodes are gone through again, by their lengths, and
//! their lines become those of the instructions.

use super::bytes::Bytes;
use super::frame::Instruction;
use super::heap::{Heap, small};
use super::layout::Baseline;
use super::lines::Lines;
use super::rows::{LENGTH, Rows};
use crate::interpreter::memory::Memory;

/// Of a `SharedFunctionInfo`: the code of the baseline compiler, or bytecodes while there is none.
const SHARED_DATA: u64 = 8;
/// Of a `Code`: the address of its first instruction.
pub const CODE_START: u64 = 40;

/// What the baseline compiler made, and what it made it of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The address of the `Code`.
    code: u64,
}

impl<M: Memory> Heap<'_, M> {
    /// What was made of the function of that `SharedFunctionInfo`, if an instruction is part of it,
    /// and where in it.
    pub fn baseline(&self, shared: u64, at: Instruction) -> Option<(Made, u32)> {
        let known = &self.layout.baseline;
        let code = self.of_kind(self.field(shared, SHARED_DATA)?, known.code)?;
        let compiler = self.field(code, known.flags)? as u32 & 15;
        let size = self.field(code, known.size)? & u64::from(u32::MAX);
        let start = self.field(code, CODE_START)?;
        let distance = at.pc.checked_sub(start)?;
        // What a call returns to belongs to what is behind it, the call does not.
        let offset = distance.checked_sub(u64::from(!at.is_exact))?;
        let is_in = compiler == known.compiler && offset < size;
        is_in.then_some((Made { code }, u32::try_from(offset).ok()?))
    }

    /// Writes the lines of its instructions, by where they are; gives how long that is.
    pub fn baseline_lines(&self, made: &Made, lines: &Lines, to: &mut [u8]) -> Option<usize> {
        /// Of longer functions, bytes, nothing is known.
        const LONGEST: u32 = 1 << 16;
        let known = &self.layout.baseline;
        let bytecodes = self.bytecodes(known, made.code)?;
        let start = bytecodes.checked_add(self.layout.bytecode_data)?;
        let length = small(self.field(bytecodes, LENGTH)?).filter(|length| *length < LONGEST)?;
        let mut code = Bytes::new(self.memory, start, length)?;
        let mut table = self.bytes(self.field(made.code, known.table)?)?;
        let mut positions = self.positions(bytecodes)?;
        let mut next = positions.next_position();
        let mut rows = Rows::new(lines.first, to);
        // The first number is of what is in front of all bytecodes.
        let (mut place, mut offset) = (table.number()?, 0u32);
        let (mut line, mut has_room) = (lines.first, true);
        while !code.is_at_end() {
            while let Some((_, position)) = next.filter(|(at, _)| *at <= offset) {
                line = lines.at(position);
                next = positions.next_position();
            }
            has_room = has_room && rows.add(u32::try_from(place).ok()?, line);
            place = place.checked_add(table.number()?)?;
            offset = offset.checked_add(known.lengths.of_next(&mut code)?)?;
        }
        // Else they are of different code.
        table.is_at_end().then_some(rows.length)
    }

    /// Where the bytecodes are of the function of that `SharedFunctionInfo`.
    pub fn bytecodes_of(&self, shared: u64) -> Option<u64> {
        let known = &self.layout.baseline;
        let data = self.field(shared, SHARED_DATA)?;
        let code = || self.bytecodes(known, self.of_kind(data, known.code)?);
        self.of_kind(data, self.layout.types.bytecodes)
            .or_else(code)
    }

    /// Where the bytecodes are that some code was made of.
    pub fn bytecodes(&self, known: &Baseline, code: u64) -> Option<u64> {
        /// Of an `InterpreterData`, which code may have in between.
        const BYTECODES: u64 = 8;
        let word = self.field(code, known.bytecodes)?;
        let of_kind = |word| self.of_kind(word, self.layout.types.bytecodes);
        of_kind(word).or_else(|| of_kind(self.field(self.object(word)?.address, BYTECODES)?))
    }
}
