//! The augmentation `B` of aarch64, which says that return addresses are signed with key B and
//! which gimli does not know: this module takes it out of a copy of `.eh_frame`, and remembers
//! where it was.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{Abi, ByteOrder};

/// A copy of `.eh_frame` in which, on aarch64, every `B` is an `S`, a letter as short that gimli
/// knows.
pub(super) struct Augmentations {
    pub(super) bytes: Vec<u8>,
    /// The common information entries that had a `B`, by their offset in bytes; and whether they
    /// had an `S` too.
    key_b: BTreeMap<usize, bool>,
}

impl Augmentations {
    pub(super) fn new(bytes: &[u8], abi: Abi) -> Self {
        let mut augmentations = Self {
            bytes: bytes.to_vec(),
            key_b: BTreeMap::new(),
        };
        // For other processors the letter means nothing.
        if !matches!(abi, Abi::Aarch64Big | Abi::Aarch64Little) {
            return augmentations;
        }
        let mut offset = 0;
        while let Some(next) = augmentations.entry(offset, abi.byte_order()) {
            offset = next;
        }
        augmentations
    }

    /// Whether the functions of the common information entry at this offset are signed with key B.
    pub(super) fn is_key_b(&self, cie: usize) -> bool {
        self.key_b.contains_key(&cie)
    }

    /// Whether its `S` was put there here.
    pub(super) fn is_key_b_alone(&self, cie: usize) -> bool {
        self.key_b.get(&cie) == Some(&false)
    }

    /// Looks at the entry at `offset`, and returns where the next begins. Entries with a 64-bit
    /// length, which nothing writes on aarch64, end it.
    fn entry(&mut self, offset: usize, order: ByteOrder) -> Option<usize> {
        let entry = self.bytes.get_mut(offset..)?;
        let (len, rest) = entry.split_first_chunk_mut::<4>()?;
        let len = usize::try_from(order.u32(*len))
            .ok()
            .filter(|len| *len != 0xffff_ffff)?;
        let next = offset.checked_add(4)?.checked_add(len)?;
        let contents = rest.get_mut(..len)?;
        if let Some((&mut [0, 0, 0, 0, _version], augmentation)) =
            contents.split_first_chunk_mut::<5>()
        {
            let len = augmentation.iter().position(|letter| *letter == 0)?;
            let letters = augmentation.get_mut(..len)?;
            let had_signal = letters.contains(&b'S');
            for letter in letters.iter_mut().filter(|letter| **letter == b'B') {
                *letter = b'S';
                self.key_b.insert(offset, had_signal);
            }
        }
        Some(next)
    }
}
