//! Memory of an interpreter, made up for tests.

use super::Memory;
use std::cell::RefCell;

/// Some bytes from an address on; what lies outside cannot be read.
pub struct Made {
    pub bytes: RefCell<Vec<u8>>,
}

/// Where it begins.
pub const BASE: u64 = 0x10_0000;
/// How many bytes.
pub const SIZE: usize = 0x4000;

impl Made {
    pub fn new() -> Self {
        let bytes = RefCell::new(vec![0; SIZE]);
        Self { bytes }
    }

    pub fn put(&self, address: u64, bytes: &[u8]) {
        let at = (address - BASE) as usize;
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn put_word(&self, address: u64, word: u64) {
        self.put(address, &word.to_le_bytes());
    }
}

impl Memory for Made {
    fn load(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.copy(address, &mut word)?;
        Some(u64::from_le_bytes(word))
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        let at = usize::try_from(address.checked_sub(BASE)?).ok()?;
        let bytes = self.bytes.borrow();
        to.copy_from_slice(bytes.get(at..at.checked_add(to.len())?)?);
        Some(())
    }
}
