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

    /// Damages each byte of these places in turn, in several ways, and has it looked at each time.
    pub fn damaged(&self, places: impl IntoIterator<Item = u64>, mut look: impl FnMut(&Self)) {
        for place in places {
            let before = self.bytes.borrow()[(place - BASE) as usize];
            for damage in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                self.put(place, &[damage]);
                look(self);
            }
            self.put(place, &[before]);
        }
    }

    /// Full of such words.
    pub fn of_words(mut word: impl FnMut() -> u64) -> Self {
        let made = Self::new();
        for place in (BASE..BASE + SIZE as u64).step_by(8) {
            made.put_word(place, word());
        }
        made
    }

    pub fn put_word(&self, address: u64, word: u64) {
        self.put(address, &word.to_le_bytes());
    }
}

/// Numbers that look random, and are the same in each run.
pub fn random() -> impl FnMut() -> u64 {
    let mut random = 88172645463325252u64;
    move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    }
}

/// The address of some word in it.
pub fn some_word(next: &mut impl FnMut() -> u64) -> u64 {
    BASE + next() % SIZE as u64 / 8 * 8
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
