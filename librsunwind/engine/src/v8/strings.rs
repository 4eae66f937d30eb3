//! V8's strings: of one or two bytes a character, and those that are parts of others.

use super::heap::{Heap, Object, small};
use crate::interpreter::memory::Memory;
use crate::interpreter::utf8::Utf8;

/// Characters that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flat {
    /// Where.
    start: u64,
    /// How many.
    pub length: u64,
    /// Bytes of one: 1 or 2.
    pub width: u64,
    /// Whether they are in memory of the program's, which may do with it what it likes.
    is_external: bool,
}

impl Flat {
    /// Bytes of it, from so many behind its beginning on.
    pub fn read(&self, memory: &impl Memory, offset: u64, to: &mut [u8]) -> Option<()> {
        let at = self.start.checked_add(offset)?;
        match self.is_external {
            true => memory.copy(at, to),
            false => memory.bytes(at, to),
        }
    }
}

/// Types below are strings.
const STRINGS: u32 = 0x80;
/// Bits of a string's type.
const FORM: u32 = 7;
const ONE_BYTE: u32 = 8;
const UNCACHED: u32 = 16;
/// What the form may be.
const SEQUENTIAL: u32 = 0;
const CONS: u32 = 1;
const EXTERNAL: u32 = 2;
const SLICED: u32 = 3;
const THIN: u32 = 5;
/// Of a string: the word with its length in the upper half, and a hash in the other; of a form:
/// what follows.
const LENGTH: u64 = 8;
const FIRST: u64 = 16;
const SECOND: u64 = 24;
/// Strings that lead to other strings, one after the other.
const DEEPEST: u32 = 8;

impl<M: Memory> Heap<'_, M> {
    /// A string, and how many characters it has.
    pub fn string(&self, word: u64) -> Option<(Object, u64)> {
        let object = self.object(word).filter(|object| object.kind < STRINGS)?;
        let length = self.field(object.address, LENGTH)? >> 32;
        Some((object, length))
    }

    /// The characters of a string, if they are in one place.
    pub fn flat(&self, word: u64) -> Option<Flat> {
        let (object, length) = self.string(word)?;
        self.flat_of(object, length)
    }

    fn flat_of(&self, mut object: Object, length: u64) -> Option<Flat> {
        let mut before = 0u64;
        for _ in 0..DEEPEST {
            let at = object.address;
            let width = if object.kind & ONE_BYTE != 0 { 1 } else { 2 };
            let start = match object.kind & FORM {
                SEQUENTIAL => at.checked_add(FIRST)?,
                EXTERNAL if object.kind & UNCACHED == 0 => self.field(at, SECOND)?,
                CONS if self.string(self.field(at, SECOND)?)?.1 == 0 => {
                    object = self.string(self.field(at, FIRST)?)?.0;
                    continue;
                }
                SLICED => {
                    let from = small(self.field(at, SECOND)?)?;
                    before = before.checked_add(u64::from(from))?;
                    object = self.string(self.field(at, FIRST)?)?.0;
                    continue;
                }
                THIN => {
                    object = self.string(self.field(at, FIRST)?)?.0;
                    continue;
                }
                _ => return None,
            };
            return Some(Flat {
                start: start.checked_add(before.checked_mul(width)?)?,
                length,
                width,
                is_external: object.kind & FORM == EXTERNAL,
            });
        }
        None
    }

    /// A string's length, and a hash of its characters if V8 has made one; 0 for what is none.
    pub fn summary(&self, word: u64) -> u64 {
        let found = self.string(word);
        found
            .and_then(|(object, _)| self.field(object.address, LENGTH))
            .unwrap_or(0)
    }

    /// Adds a string's characters to a text, as much as there is room for.
    pub fn write(&self, word: u64, out: &mut Utf8<'_>) -> Option<()> {
        /// Pieces of a text that was put together, and how many of those may be waiting.
        const MOST: u32 = 64;
        let mut waiting = [0u64; DEEPEST as usize];
        let mut count = 0usize;
        let mut next = word;
        for _ in 0..MOST {
            let (object, length) = self.string(next)?;
            match self.flat_of(object, length) {
                Some(flat) => self.write_flat(flat, out)?,
                None if object.kind & FORM == CONS => {
                    *waiting.get_mut(count)? = self.field(object.address, SECOND)?;
                    count = count.wrapping_add(1);
                    next = self.field(object.address, FIRST)?;
                    continue;
                }
                None => return None,
            }
            let Some(last) = count.checked_sub(1) else {
                return Some(());
            };
            count = last;
            next = *waiting.get(last)?;
        }
        None
    }

    fn write_flat(&self, flat: Flat, out: &mut Utf8<'_>) -> Option<()> {
        /// More characters than any text has room for.
        const MOST: u64 = 4096;
        let mut piece = [0u8; 256];
        let size = flat.length.min(MOST).checked_mul(flat.width)?;
        let (mut done, mut high) = (0u64, 0u32);
        while done < size {
            let step = size.saturating_sub(done).min(piece.len() as u64);
            let bytes = piece.get_mut(..step as usize)?;
            flat.read(self.memory, done, bytes)?;
            // A constant either way: `chunks` panics for 0.
            for unit in bytes.chunks(if flat.width == 2 { 2 } else { 1 }) {
                let unit = unit
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u32::from(*byte));
                let number = match (high, unit) {
                    (_, 0xd800..0xdc00) => {
                        high = unit;
                        continue;
                    }
                    (0xd800.., 0xdc00..0xe000) => {
                        ((high & 0x3ff) << 10 | unit & 0x3ff).wrapping_add(0x1_0000)
                    }
                    _ => unit,
                };
                high = 0;
                if out.put(number).is_none() {
                    return Some(());
                }
            }
            done = done.checked_add(step)?;
        }
        Some(())
    }
}
