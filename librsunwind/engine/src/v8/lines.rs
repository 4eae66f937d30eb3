//! Lines: where in the source each bytecode of a function comes from, and which line that is. V8
//! counts lines when somebody asks it to; here the ends of lines are counted in the source itself,
//! and the counts kept for the next function of the same script.

use super::function::{Function, SCRIPT_FIRST_LINE, SCRIPT_ID, SCRIPT_SOURCE};
use super::heap::{Heap, small};
use super::strings::Flat;
use crate::interpreter::memory::Memory;
use crate::mix::mix;
use crate::wire::code::put_step;
use crate::wire::codec::Encoder;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Lines of a function, at most; what is behind them has none.
const MOST_LINES: usize = 1024;
/// Characters of a source between two counts that are kept.
const BLOCK: u64 = 32_768;
/// So many blocks are counted at a time.
const MOST_BLOCKS: u64 = 16;
/// Characters that are read at once.
const PIECE: usize = 2048;
/// Counts that are kept, for all scripts.
const COUNTS: usize = 2048;

type Count = [AtomicU64; 2];

/// The lines before a block, and a number that tells which.
static KEPT: [Count; COUNTS] = [const { [const { AtomicU64::new(0) }; 2] }; COUNTS];

fn kept(key: u64) -> Option<u32> {
    let [count, check] = KEPT.get(key as usize % COUNTS)?;
    let count = count.load(Relaxed);
    (check.load(Relaxed) == mix(count) ^ key).then_some(count as u32)
}

fn keep(key: u64, lines: u32) {
    if let Some([count, check]) = KEPT.get(key as usize % COUNTS) {
        count.store(u64::from(lines), Relaxed);
        check.store(mix(u64::from(lines)) ^ key, Relaxed);
    }
}

/// The lines of a function.
#[derive(Debug)]
pub struct Lines {
    /// The first one; 0 if it is not known.
    pub first: u32,
    start: u32,
    /// Behind the characters whose lines are known.
    end: u32,
    /// Where lines end.
    ends: [u32; MOST_LINES],
    count: usize,
}

/// Source that has not been counted to where it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYet;

impl Lines {
    /// Not known.
    pub const fn none() -> Self {
        Self {
            first: 0,
            start: 0,
            end: 0,
            ends: [0; MOST_LINES],
            count: 0,
        }
    }

    /// The line of a character; 0 if it is not known.
    pub fn at(&self, position: u32) -> u32 {
        if !(self.start..self.end).contains(&position) {
            return 0;
        }
        let ends = self.ends.get(..self.count).unwrap_or(&[]);
        let before = ends.partition_point(|end| *end < position);
        self.first.saturating_add(before as u32)
    }
}

impl<M: Memory> Heap<'_, M> {
    /// Finds the lines of a function, of the thread of that number; none of one without a source.
    ///
    /// # Errors
    /// [`NotYet`]: to be asked for again.
    pub fn lines(&self, function: &Function, to: &mut Lines, thread: u64) -> Result<(), NotYet> {
        let known = self.source(function);
        let Some((script, source, (start, end))) = known else {
            return Ok(());
        };
        let id = self.field(script, SCRIPT_ID).unwrap_or(0);
        let key = mix(mix(id ^ thread << 40) ^ source.length);
        let Some(before) = self.lines_before(key, &source, u64::from(start))? else {
            return Ok(());
        };
        let first = self.field(script, SCRIPT_FIRST_LINE).and_then(small);
        to.first = before.saturating_add(first.unwrap_or(0)).saturating_add(1);
        to.start = start;
        to.end = start;
        let range = u64::from(start)..u64::from(end).saturating_add(1).min(source.length);
        let is_whole = self.each_end(&source, range, |at| match to.ends.get_mut(to.count) {
            Some(place) => {
                *place = at;
                to.count = to.count.wrapping_add(1);
                to.end = at.saturating_add(1);
                true
            }
            None => false,
        });
        if is_whole == Some(true) {
            to.end = end.saturating_add(1);
        }
        Ok(())
    }

    fn source(&self, function: &Function) -> Option<(u64, Flat, (u32, u32))> {
        let script = function.script?;
        let source = self.flat(self.field(script, SCRIPT_SOURCE)?)?;
        let range = function.range?;
        (u64::from(range.1) <= source.length).then_some((script, source, range))
    }

    /// How many lines end before a character; `None` if the source cannot be read.
    fn lines_before(&self, key: u64, source: &Flat, position: u64) -> Result<Option<u32>, NotYet> {
        let block = position / BLOCK;
        let of = |block: u64| mix(key ^ block);
        let mut from = block;
        let mut lines = 0;
        while from > 0 {
            if let Some(count) = kept(of(from)) {
                lines = count;
                break;
            }
            from = from.saturating_sub(1);
        }
        let mut left = MOST_BLOCKS;
        loop {
            let start = from.saturating_mul(BLOCK);
            let end = start.saturating_add(BLOCK).min(position);
            let Some(count) = self.count_ends(source, start..end) else {
                return Ok(None);
            };
            lines = count.saturating_add(lines);
            if end >= position {
                return Ok(Some(lines));
            }
            from = from.saturating_add(1);
            keep(of(from), lines);
            left = left.checked_sub(1).ok_or(NotYet)?;
        }
    }

    fn count_ends(&self, source: &Flat, range: core::ops::Range<u64>) -> Option<u32> {
        let mut bytes = [0u8; PIECE];
        let mut count = 0u32;
        let mut at = range.start;
        while at < range.end && source.width == 1 {
            let size = range.end.saturating_sub(at).min(PIECE as u64);
            let bytes = bytes.get_mut(..size as usize)?;
            self.memory.copy(source.start.checked_add(at)?, bytes)?;
            // All at once, which takes no branches.
            let of = |end: u8| bytes.iter().filter(|byte| **byte == end).count();
            let (feeds, returns) = (of(b'\n'), of(b'\r'));
            if returns != 0 {
                break;
            }
            count = count.saturating_add(feeds as u32);
            at = at.saturating_add(size);
        }
        self.each_end(source, at..range.end, |_| {
            count = count.saturating_add(1);
            true
        })?;
        Some(count)
    }

    /// Calls `end` with each character of a range that ends a line, until it gives `false`, which
    /// is given back; `None` if it cannot be read.
    fn each_end(
        &self,
        source: &Flat,
        range: core::ops::Range<u64>,
        mut end: impl FnMut(u32) -> bool,
    ) -> Option<bool> {
        // And the first unit behind.
        let mut bytes = [0u8; (PIECE + 1) * 2];
        let mut at = range.start;
        while at < range.end {
            let count = range.end.saturating_sub(at).min(PIECE as u64);
            let with_next = count
                .saturating_add(1)
                .min(source.length.saturating_sub(at));
            let size = with_next.checked_mul(source.width)? as usize;
            let from = source.start.checked_add(at.checked_mul(source.width)?)?;
            let bytes = bytes.get_mut(..size)?;
            self.memory.copy(from, bytes)?;
            let unit = |index: usize| match source.width {
                1 => bytes.get(index).map(|byte| u16::from(*byte)),
                _ => {
                    let (units, _) = bytes.as_chunks::<2>();
                    units.get(index).map(|unit| u16::from_le_bytes(*unit))
                }
            };
            for index in 0..count as usize {
                let is_end = match unit(index)? {
                    0x0a | 0x2028 | 0x2029 => true,
                    0x0d => unit(index.wrapping_add(1)) != Some(0x0a),
                    _ => false,
                };
                if is_end && !end(at.wrapping_add(index as u64) as u32) {
                    return Some(false);
                }
            }
            at = at.saturating_add(count);
        }
        Some(true)
    }

    /// Writes the lines of a function's bytecodes, by where they are; gives how long that is.
    pub fn bytecode_lines(&self, bytecodes: u64, lines: &Lines, to: &mut [u8]) -> Option<usize> {
        let table = self.field(bytecodes, self.layout.bytecode_positions)?;
        let mut table = self.bytes(table)?;
        let mut rows = Rows::new(lines.first, to);
        while let Some((offset, position)) = table.next_position() {
            if !rows.add(offset, lines.at(position)) {
                break;
            }
        }
        Some(rows.length)
    }

    fn bytes(&self, word: u64) -> Option<Positions<'_, M>> {
        /// Of an array of bytes.
        const LENGTH: u64 = 8;
        const DATA: u64 = 16;
        /// More is no table.
        const LONGEST: u32 = 1 << 24;
        let array = self.object(word)?.address;
        let length = small(self.field(array, LENGTH)?).filter(|length| *length < LONGEST)?;
        let start = array.checked_add(DATA)?;
        Some(Positions {
            memory: self.memory,
            at: start,
            end: start.checked_add(u64::from(length))?,
            piece: [0; 256],
            held: 0..0,
            offset: ENTRY,
            position: 0,
        })
    }
}

/// The offset of a function's beginning, before its first bytecode: tables begin there.
const ENTRY: i64 = -1;

/// A table of source positions as it is read: pairs of numbers, what is added to the offset in the
/// code (the sign tells statements from expressions), and to the position.
struct Positions<'m, M> {
    memory: &'m M,
    at: u64,
    end: u64,
    piece: [u8; 256],
    held: core::ops::Range<usize>,
    offset: i64,
    position: i64,
}

impl<M: Memory> Positions<'_, M> {
    fn next_position(&mut self) -> Option<(u32, u32)> {
        let step = self.number()?;
        // One's complement marks an expression.
        let step = if step < 0 { !step } else { step };
        self.offset = self.offset.wrapping_add(step);
        self.position = self.position.wrapping_add(self.number()?);
        // Bit 0 is for other sources; the position is in 30 bits, plus one.
        let position = (self.position >> 1 & 0x3fff_ffff).wrapping_sub(1);
        let position = match self.position & 1 {
            0 => u32::try_from(position).unwrap_or(u32::MAX),
            _ => u32::MAX,
        };
        Some((u32::try_from(self.offset.max(0)).ok()?, position))
    }

    /// Seven bits a byte, the lowest first, zigzag.
    fn number(&mut self) -> Option<i64> {
        let (mut number, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(
                    (number >> 1).cast_signed() ^ (number & 1).cast_signed().wrapping_neg(),
                );
            }
            shift = shift.checked_add(7)?;
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let index = match self.held.next() {
            Some(index) => index,
            None => {
                let count = self
                    .end
                    .saturating_sub(self.at)
                    .min(self.piece.len() as u64);
                let piece = self.piece.get_mut(..count as usize)?;
                if count == 0 {
                    return None;
                }
                self.memory.copy(self.at, piece)?;
                self.at = self.at.checked_add(count)?;
                self.held = 0..count as usize;
                self.held.next()?
            }
        };
        self.piece.get(index).copied()
    }
}

/// Rows as they are written.
pub struct Rows<'b> {
    to: &'b mut [u8],
    length: usize,
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
    fn add(&mut self, offset: u32, line: u32) -> bool {
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
