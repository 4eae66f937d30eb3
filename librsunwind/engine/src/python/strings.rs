//! CPython's string objects (PEP 393): one, two or four bytes a character, as UTF-8.

use super::layout::Layout;
use crate::interpreter::memory::{Fields, Memory};
use crate::interpreter::utf8::Utf8;

/// The characters of a string object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Where they are.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// The interpreter's hash of them, if it has computed one.
    pub hash: Option<u64>,
    /// Bytes of a character: 1, 2 or 4.
    width: u64,
    is_ascii: bool,
}

/// Of a string object: how many characters it has; their hash and what they are stand behind it.
const LENGTH: u64 = 16;
const COMPACT: u64 = 1 << 5;
const ASCII: u64 = 1 << 6;
/// What stands for a hash that has not been computed; of no characters it is 0.
const NO_HASH: u64 = u64::MAX;
/// Characters of a longer one are no name.
const LONGEST: u64 = 1 << 30;

/// What a string object begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    length: u64,
    /// As in [`Text`].
    pub(super) hash: Option<u64>,
    width: u64,
    is_ascii: bool,
}

impl Head {
    /// As [`Text::at`].
    #[inline]
    pub(super) fn at(memory: &impl Memory, layout: &Layout, object: u64) -> Option<Self> {
        let head = object.checked_add(layout.of_object(LENGTH))?;
        let [length, hash, state] = memory.fields(head, &const { Fields::at([0, 8, 16]) })?;
        let state = state.wrapping_shr(layout.state_head);
        let width = state >> 2 & 7;
        let is_one = matches!(width, 1 | 2 | 4) && state & COMPACT != 0 && length < LONGEST;
        is_one.then_some(Self {
            length,
            hash: Some(hash).filter(|hash| !matches!(*hash, 0 | NO_HASH)),
            width,
            is_ascii: state & ASCII != 0,
        })
    }

    /// The characters.
    pub(super) fn text(self, layout: &Layout, object: u64) -> Option<Text> {
        let offset = if self.is_ascii {
            layout.ascii
        } else {
            layout.characters
        };
        Some(Text {
            start: object.checked_add(offset)?,
            size: self.length.wrapping_mul(self.width),
            hash: self.hash,
            width: self.width,
            is_ascii: self.is_ascii,
        })
    }
}

impl Text {
    /// Of the object at an address; `None` if it is none with its characters in it, as those of
    /// code objects are.
    #[inline]
    pub fn at(memory: &impl Memory, layout: &Layout, object: u64) -> Option<Self> {
        Head::at(memory, layout, object)?.text(layout, object)
    }

    /// The text, as much as there is room for, of an object that stays meanwhile.
    pub fn read<'t>(&self, memory: &impl Memory, to: &'t mut [u8]) -> Option<&'t [u8]> {
        if self.is_ascii {
            let size = usize::try_from(self.size).ok()?.min(to.len());
            let text = to.get_mut(..size)?;
            memory.bytes(self.start, text)?;
            return Some(text);
        }
        let mut out = Utf8::new(to);
        let mut piece = [0u8; 256];
        let mut done = 0;
        while done < self.size {
            let size = self.size.saturating_sub(done).min(piece.len() as u64);
            let bytes = piece.get_mut(..size as usize)?;
            memory.bytes(self.start.checked_add(done)?, bytes)?;
            for character in bytes.chunks((self.width as usize).max(1)) {
                let number = character
                    .iter()
                    .rev()
                    .fold(0, |number, byte| number << 8 | u32::from(*byte));
                if out.put(number).is_none() {
                    return out.text();
                }
            }
            done = done.checked_add(size)?;
        }
        out.text()
    }
}
