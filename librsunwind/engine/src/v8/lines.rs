//! Which line a character of a source is on. V8 counts lines when somebody asks it to; here the
//! ends of lines are counted in the source itself, and the counts kept for the next function of the
//! same script.

use super::function::{Function, SCRIPT_FIRST_LINE, SCRIPT_ID, SCRIPT_SOURCE};
use super::heap::{Heap, small};
use super::strings::Flat;
use crate::interpreter::memory::Memory;
use crate::mix::mix;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Lines of a function, at most; what is behind them has none.
const MOST_LINES: usize = 1024;
/// Characters of a source between two counts that are kept.
const BLOCK: u64 = 8192;
/// So many blocks are counted at a time.
const MOST_BLOCKS: u64 = 64;
/// Characters that are read at once.
const PIECE: usize = 2048;
/// Counts that are kept, for all scripts.
const COUNTS: usize = 4096;

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

    /// Where each but the first begins, in characters of the function, and its number; last, where
    /// none is known any more, and 0.
    pub fn beginnings(&self) -> impl Iterator<Item = (u32, u32)> {
        let behind = |place: u32| place.saturating_sub(self.start);
        let ends = self.ends.get(..self.count).unwrap_or(&[]);
        let lines = ends.iter().zip(self.first.saturating_add(1)..);
        lines
            .map(move |(end, line)| (behind(end.saturating_add(1)), line))
            .chain([(behind(self.end), 0)])
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
            source.read(self.memory, at, bytes)?;
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
            let bytes = bytes.get_mut(..size)?;
            source.read(self.memory, at.checked_mul(source.width)?, bytes)?;
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
}
