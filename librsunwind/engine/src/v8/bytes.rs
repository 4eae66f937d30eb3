//! Bytes that lie one behind the other, read some at a time: tables, and code of the interpreter.

use crate::interpreter::memory::Memory;
use core::ops::Range;

/// Bytes, of which some are held.
pub struct Bytes<'m, M> {
    memory: &'m M,
    at: u64,
    end: u64,
    piece: [u8; 256],
    held: Range<usize>,
}

impl<'m, M: Memory> Bytes<'m, M> {
    /// From an address on.
    pub fn new(memory: &'m M, start: u64, length: u32) -> Option<Self> {
        /// More is none.
        const LONGEST: u32 = 1 << 24;
        if length >= LONGEST {
            return None;
        }
        Some(Self {
            memory,
            at: start,
            end: start.checked_add(u64::from(length))?,
            piece: [0; 256],
            held: 0..0,
        })
    }

    /// Whether there are no more.
    pub fn is_at_end(&self) -> bool {
        self.held.is_empty() && self.at >= self.end
    }

    /// A number: seven bits a byte, the lowest first.
    pub fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift = shift.checked_add(7)?;
        }
    }

    /// The next one.
    pub fn byte(&mut self) -> Option<u8> {
        let index = match self.held.next() {
            Some(index) => index,
            None => {
                let left = self.end.saturating_sub(self.at);
                let count = left.min(self.piece.len() as u64);
                let piece = self.piece.get_mut(..count as usize)?;
                if count == 0 {
                    return None;
                }
                self.memory.bytes(self.at, piece)?;
                self.at = self.at.checked_add(count)?;
                self.held = 0..count as usize;
                self.held.next()?
            }
        };
        self.piece.get(index).copied()
    }
}
