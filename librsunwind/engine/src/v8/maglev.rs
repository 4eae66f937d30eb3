//! From which character of the source a call in code of Maglev's comes. Its table of positions is
//! wrong where it made two of a loop. What it keeps for a return to code that is not to be run any
//! more is not: behind its instructions is which of them are calls, and for each of these with
//! which bytecode its function goes on then.
//!
//! ```text
//! return address ─► its row behind the instructions ─► a number ─► a bytecode ─► a character
//!                                                           └► how many frames it becomes
//! ```
//!
//! Where it becomes several, the bytecode is that of another function, which was made part of it.

use super::heap::{Heap, small};
use super::optimised::Compiled;
use super::rows::{DATA, LENGTH};
use crate::interpreter::memory::Memory;
use core::cmp::Ordering;

/// Behind the instructions: how many rows, what is in them, and where they begin.
const COUNT: u64 = 4;
const CONFIGURATION: u64 = 8;
const ROWS: u64 = 16;
/// Rows that are looked through, at most: in halves.
const MOST_ROWS: u64 = 1 << 16;
/// Of what leads back to bytecodes: entries are so far behind the positions of functions that were
/// made part of it, and so long: a bytecode, where the frames are described, and something else.
const FIRST_BEHIND: u64 = 4 * 8;
const ENTRY: u64 = 3 * 8;
const FRAMES: u64 = 8;

/// What is in a row.
struct Row {
    /// Bytes of where a call returns to.
    place: u64,
    /// Of the number, behind that.
    number: u64,
    /// Of all.
    size: u64,
}

impl Row {
    fn of(configuration: u64) -> Option<Self> {
        let has_numbers = configuration & 1 != 0;
        let part = |bit: u32| configuration >> bit & 7;
        let (registers, place, number) = (part(1), part(4), part(7));
        let is_one = has_numbers && (1..=4).contains(&place) && (1..=4).contains(&number);
        // Two places, one of which is where the code goes on then; and a byte of its own.
        let size = registers.wrapping_add(place.wrapping_mul(2));
        is_one.then_some(Self {
            place,
            number,
            size: size.wrapping_add(number).wrapping_add(1),
        })
    }
}

impl<M: Memory> Heap<'_, M> {
    /// The character of a call in it that returns to that offset.
    pub(super) fn character_of_call(
        &self,
        shared: u64,
        found: &Compiled,
        offset: u64,
    ) -> Option<u32> {
        if !self.layout.knows_maglev {
            return None;
        }
        let number = self.number_of_call(found, offset)?;
        let data = self.object(self.field(found.code, self.layout.baseline.bytecodes)?)?;
        let data = data.address;
        let entry = number.wrapping_mul(ENTRY).wrapping_add(FIRST_BEHIND);
        let entry = self.layout.inlined.checked_add(entry)?;
        let end = u64::from(small(self.field(data, LENGTH)?)?).wrapping_mul(8);
        if entry.checked_add(ENTRY)? > end.wrapping_add(DATA) {
            return None;
        }
        if !self.becomes_one(data, small(self.field(data, entry.checked_add(FRAMES)?)?)?)? {
            return None;
        }
        let bytecode = small(self.field(data, entry)?)?;
        let mut positions = self.positions(self.bytecodes_of(shared)?)?;
        let mut last = None;
        while let Some((at, character)) = positions.next_position() {
            if at > bytecode {
                break;
            }
            last = Some(character);
        }
        last
    }

    /// Whether the frame becomes only one: that of the function itself.
    fn becomes_one(&self, data: u64, at: u32) -> Option<bool> {
        /// In numbers of seven bits a byte, of which the last has the high one not set; the lowest
        /// is the sign.
        const ONE: u8 = 1 << 1;
        let all = self.object(self.field(data, DATA)?)?.address;
        let is_in = at < small(self.field(all, LENGTH)?)?;
        let place = all.checked_add(DATA)?.checked_add(u64::from(at))?;
        let [_, rest @ ..] = self.memory.load(place)?.to_le_bytes();
        // How far before this a similar one is described; then how many frames there are.
        let before = rest.iter().position(|byte| byte & 0x80 == 0)?;
        Some(is_in && rest.get(before.checked_add(1)?) == Some(&ONE))
    }

    /// The number that the row has of a call that returns to that offset.
    fn number_of_call(&self, found: &Compiled, offset: u64) -> Option<u64> {
        let table = found.start.checked_add(found.size)?;
        let half = |at: u64| Some(self.memory.load(table.checked_add(at)?)? & u64::from(u32::MAX));
        let row = Row::of(half(CONFIGURATION)?)?;
        let count = half(COUNT).filter(|count| *count < MOST_ROWS)?;
        let part = |index: u64, from: u64, size: u64| {
            let at = index
                .checked_mul(row.size)?
                .checked_add(ROWS)?
                .checked_add(from)?;
            let mask = u64::MAX >> 64u64.wrapping_sub(size.wrapping_mul(8));
            Some(half(at)? & mask)
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.wrapping_add(high) / 2;
            match part(middle, 0, row.place)?.cmp(&offset) {
                Ordering::Less => low = middle.wrapping_add(1),
                Ordering::Greater => high = middle,
                // 0 is none.
                Ordering::Equal => return part(middle, row.place, row.number)?.checked_sub(1),
            }
        }
        None
    }
}
