//! V8's heap: tagged words, and objects known by the types that their maps have. An object that the
//! collector has moved is followed to its new place.

use super::layout::Layout;
use crate::interpreter::memory::Memory;

/// A heap, as it is read in one walk.
pub struct Heap<'h, M> {
    pub memory: &'h M,
    pub layout: &'h Layout,
}

/// An object that has a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it begins.
    pub address: u64,
    /// The number of its type.
    pub kind: u32,
}

/// Of every object: its map, or where it went.
const MAP: u64 = 0;
/// Of a map: the word that has the type in its upper half.
const KIND: u64 = 8;
/// Objects lie below.
const HIGHEST: u64 = 1 << 47;

/// The address of a tagged pointer.
pub const fn address(word: u64) -> Option<u64> {
    if word & 3 != 1 || word >= HIGHEST || word < 4096 {
        return None;
    }
    Some(word & !3)
}

/// A small integer's value.
pub const fn small(word: u64) -> Option<u32> {
    if word & 0xffff_ffff != 0 || word >> 63 != 0 {
        return None;
    }
    Some((word >> 32) as u32)
}

impl<M: Memory> Heap<'_, M> {
    /// The object of a tagged pointer.
    pub fn object(&self, word: u64) -> Option<Object> {
        let mut at = address(word)?;
        let mut map = self.memory.at(at, MAP)?;
        if map & 3 == 0 {
            // It was moved, and this is where to; the references to it are yet to be changed.
            at = Some(map).filter(|moved| *moved < HIGHEST && *moved >= 4096)?;
            map = self.memory.at(at, MAP)?;
        }
        let kind = self.memory.at(address(map)?, KIND)? >> 32;
        Some(Object {
            address: at,
            kind: kind as u32 & 0xffff,
        })
    }

    /// The object of a tagged pointer, if it has that type.
    pub fn of_kind(&self, word: u64, kind: u32) -> Option<u64> {
        let found = self.object(word)?;
        (found.kind == kind).then_some(found.address)
    }

    /// What a field of an object at an address holds.
    pub fn field(&self, object: u64, offset: u64) -> Option<u64> {
        self.memory.at(object, offset)
    }
}
