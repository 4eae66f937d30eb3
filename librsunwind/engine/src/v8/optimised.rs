//! From which character of the source a call in optimised code comes: V8 keeps that of calls alone.
//! Of TurboFan's a table says it, of Maglev's something else ([`super::maglev`]).
//!
//! Which code an address is part of is found by going back from it: in front of its first
//! instruction stands an object that leads to it. What was found is kept, and is good as long as
//! that code has that table.

use super::heap::{Heap, address, small};
use super::rows::{DATA, LENGTH, Source};
use super::{baseline::CODE_START, frame::Instruction};
use crate::interpreter::memory::Memory;
use crate::mix::mix;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Where code may begin, bytes.
const ALIGNMENT: u64 = 64;
/// How far back is looked, in these.
const FARTHEST: u64 = 1024;
/// Code is in chunks of this, which are there as a whole, bytes.
const CHUNK: u64 = 1 << 18;
/// Calls that are kept.
const CALLS: usize = 4096;
/// Functions that may be part of each other.
const DEEPEST: u32 = 64;

/// By return addresses: how far back its code begins and from which character it comes; and a
/// number that tells which call of which code it is.
static KEPT: [[AtomicU64; 2]; CALLS] = [const { [const { AtomicU64::new(0) }; 2] }; CALLS];

/// For tests, which have other code at the same addresses.
#[cfg(test)]
pub(super) fn forget() {
    KEPT.iter().for_each(|[known, _]| known.store(0, Relaxed));
}

/// The numbers of these, behind that of the baseline compiler.
const MAGLEV: u32 = 1;
const TURBOFAN: u32 = 2;

/// How far back code may begin.
fn in_chunk(last: u64) -> u64 {
    (last % CHUNK / ALIGNMENT).min(FARTHEST)
}

/// Code of a compiler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compiled {
    /// The address of the `Code`.
    pub(super) code: u64,
    /// Where its instructions begin.
    pub(super) start: u64,
    /// How many bytes these are.
    pub(super) size: u64,
    /// The tagged pointer to its source positions.
    table: u64,
    /// The number of the compiler.
    compiler: u32,
}

/// What some code was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeOf {
    /// Of the bytecodes at that address.
    Bytecodes(u64),
    /// By an optimising compiler.
    Function {
        /// Of the function of the `SharedFunctionInfo` at that address.
        shared: u64,
        /// What was optimised later has a higher one.
        number: u32,
    },
}

impl<M: Memory> Heap<'_, M> {
    /// From which character of its function, of that `SharedFunctionInfo`, a call comes, if it is
    /// one in optimised code.
    pub fn character(&self, shared: u64, at: Instruction) -> Option<u32> {
        let pc = at.pc.checked_sub(1).filter(|_| !at.is_exact)?;
        let last = pc & !ALIGNMENT.wrapping_sub(1);
        // Where maps are that never move.
        let maps = self.field(shared, 0)? / CHUNK;
        let starts_at = |back: u64| {
            let start = last.checked_sub(back.checked_mul(ALIGNMENT)?)?;
            self.beginning(start, maps)
        };
        let [kept, check] = KEPT.get(mix(at.pc) as usize % CALLS)?;
        let known = kept.load(Relaxed);
        let hint = known >> 32;
        let is_of = |found: &Compiled, number: u32| {
            found.compiler == self.layout.baseline.compiler.wrapping_add(number)
        };
        let is_optimised = |found: &Compiled| is_of(found, MAGLEV) || is_of(found, TURBOFAN);
        let number = |found: &Compiled, known: u64| {
            let table = self.summary_of_table(found.table)?;
            let parts = [found.code, found.size, table, shared, known];
            let all = parts.iter();
            Some(all.fold(mix(at.pc), |number, part| mix(number ^ part)))
        };
        if known != 0
            && hint < in_chunk(last)
            && let Some(found) = starts_at(hint).filter(is_optimised)
            && Some(check.load(Relaxed)) == number(&found, known)
        {
            return Some(known as u32);
        }
        let (back, found) = self.around(pc, maps).filter(|(_, it)| is_optimised(it))?;
        let character = match is_of(&found, MAGLEV) {
            true => self.character_of_call(shared, &found, at.pc.wrapping_sub(found.start))?,
            false => self.character_at(&found, pc.wrapping_sub(found.start))?,
        };
        let known = back << 32 | u64::from(character);
        kept.store(known, Relaxed);
        check.store(number(&found, known)?, Relaxed);
        Some(character)
    }

    /// What the code was made of that an instruction is part of. `shared`: a `SharedFunctionInfo`,
    /// of any function.
    pub fn made_of(&self, shared: u64, at: Instruction) -> Option<MadeOf> {
        /// Of a wrapper, which code may have in between.
        const WRAPPED: u64 = 8;
        let known = &self.layout.baseline;
        let pc = at.pc.checked_sub(u64::from(!at.is_exact))?;
        let (_, found) = self.around(pc, self.field(shared, 0)? / CHUNK)?;
        if found.compiler == known.compiler {
            return self.bytecodes(known, found.code).map(MadeOf::Bytecodes);
        }
        let data = self.object(self.field(found.code, known.bytecodes)?)?;
        let word = self.field(data.address, self.layout.compiled_of)?;
        let of_kind = |word| self.of_kind(word, self.layout.types.shared);
        let wrapped = || of_kind(self.field(self.object(word)?.address, WRAPPED)?);
        Some(MadeOf::Function {
            shared: of_kind(word).or_else(wrapped)?,
            number: small(self.field(data.address, self.layout.compiled_number)?)?,
        })
    }

    /// The code that an address is part of, and how far back that begins. `maps`: in which chunk
    /// maps are that never move.
    fn around(&self, pc: u64, maps: u64) -> Option<(u64, Compiled)> {
        let last = pc & !ALIGNMENT.wrapping_sub(1);
        let nearest = (0..in_chunk(last)).find_map(|back| {
            let start = last.checked_sub(back.checked_mul(ALIGNMENT)?)?;
            Some((back, self.beginning(start, maps)?))
        });
        // Or it is in what is behind that code.
        nearest.filter(|(_, found)| pc.wrapping_sub(found.start) < found.size)
    }

    /// The code that begins at an address; nothing is read that does not look as if it did.
    fn beginning(&self, start: u64, maps: u64) -> Option<Compiled> {
        let (known, before) = (&self.layout.baseline, &self.layout.before_code);
        let map = self.memory.load(start.checked_sub(before.map)?)?;
        if address(map)? / CHUNK != maps {
            return None;
        }
        let code = self.memory.load(start.checked_sub(before.code)?)?;
        let code = self.of_kind(code, known.code)?;
        if self.field(code, CODE_START)? != start {
            return None;
        }
        let compiler = self.field(code, known.flags)? as u32 & 15;
        Some(Compiled {
            code,
            start,
            size: self.field(code, known.size)? & u64::from(u32::MAX),
            table: self.field(code, known.table)?,
            compiler,
        })
    }

    /// A number that is another for another table, but by chance.
    fn summary_of_table(&self, word: u64) -> Option<u64> {
        let table = self.object(word)?.address;
        let length = small(self.field(table, LENGTH)?)?;
        let last = u64::from(length).saturating_sub(8).checked_add(DATA)?;
        let words = [
            table,
            length.into(),
            self.field(table, DATA)?,
            self.field(table, last)?,
        ];
        Some(words.iter().fold(0, |number, word| mix(number ^ word)))
    }

    /// The character of the last position up to an offset.
    fn character_at(&self, found: &Compiled, offset: u64) -> Option<u32> {
        let mut table = self.positions_in(found.table)?;
        let mut last = None;
        while let Some((at, source)) = table.next_source() {
            if u64::from(at) > offset {
                break;
            }
            last = Some(source);
        }
        self.outermost(found.code, last?)
    }

    /// The character in the function itself, of a position in one that was made part of it.
    fn outermost(&self, code: u64, mut source: Source) -> Option<u32> {
        /// A position, and the number of the function that is called there.
        const ROW: u64 = 16;
        for _ in 0..DEEPEST {
            let Some(number) = source.inlined() else {
                return source.character();
            };
            let data = self.object(self.field(code, self.layout.baseline.bytecodes)?)?;
            let rows = self.field(data.address, self.layout.inlined)?;
            let rows = self.object(rows)?.address;
            let row = u64::from(number).checked_mul(ROW)?;
            let length = u64::from(small(self.field(rows, LENGTH)?)?);
            if row.checked_add(ROW)? > length {
                return None;
            }
            source = Source(self.field(rows, row.checked_add(DATA)?)?);
        }
        None
    }
}
