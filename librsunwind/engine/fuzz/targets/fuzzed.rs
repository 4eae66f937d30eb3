//! An interpreter's memory of any content.

use engine::interpreter::memory::Memory;
use std::cell::Cell;

/// Where it begins.
pub const BASE: u64 = 0x10_0000;

/// It ends with the input.
pub struct Fuzzed<'a> {
    bytes: &'a [u8],
    /// How often it may be read, as in a walk of the runtime.
    left: Cell<u32>,
}

impl<'a> Fuzzed<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        let left = Cell::new(262_144);
        Self { bytes, left }
    }
}

impl Memory for Fuzzed<'_> {
    fn load(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.copy(address, &mut word)?;
        Some(u64::from_le_bytes(word))
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        self.left.set(self.left.get().checked_sub(1)?);
        let at = usize::try_from(address.checked_sub(BASE)?).ok()?;
        to.copy_from_slice(self.bytes.get(at..at.checked_add(to.len())?)?);
        Some(())
    }
}
