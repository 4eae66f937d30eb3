//! Tables of pointers that may become large and mostly stay small: what lies beyond the first ones
//! comes in leaves of a page each, mapped when somebody needs a slot there. So the library takes
//! little of a program's memory, which may have a limit.
//!
//! # Safety
//! A leaf is mapped zeroed, and stays.
#![allow(unsafe_code)]

use super::{Errno, PAGE, map_anonymous, unmap};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// Slots that are always there.
const NEAR: usize = 16;
/// Slots of a leaf.
const LEAF: usize = PAGE / size_of::<usize>();

type Leaf<T> = [AtomicPtr<T>; LEAF];

/// A table of `NEAR` slots and those of so many leaves, all of them null at first.
#[derive(Debug)]
pub struct Pointers<T, const LEAVES: usize> {
    near: [AtomicPtr<T>; NEAR],
    leaves: [AtomicPtr<Leaf<T>>; LEAVES],
}

impl<T, const LEAVES: usize> Pointers<T, LEAVES> {
    /// How many it can have.
    pub const LENGTH: usize = NEAR + LEAVES * LEAF;

    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            near: [const { AtomicPtr::new(ptr::null_mut()) }; NEAR],
            leaves: [const { AtomicPtr::new(ptr::null_mut()) }; LEAVES],
        }
    }

    /// A slot; `None` where nobody has needed one.
    ///
    /// # Signal safety
    /// Loads.
    pub fn get(&self, index: usize) -> Option<&AtomicPtr<T>> {
        self.near.get(index).or_else(|| {
            let (leaf, slot) = self.far(index)?;
            // SAFETY: null or a leaf, which stays.
            unsafe { leaf.load(Acquire).as_ref() }?.get(slot)
        })
    }

    /// A slot to write to.
    ///
    /// # Signal safety
    /// A system call or two, for the first slot of a leaf.
    ///
    /// # Errors
    /// `ENOMEM` where there is no memory for its leaf, or no such slot.
    pub fn needed(&self, index: usize) -> Result<&AtomicPtr<T>, Errno> {
        if let (None, Some((leaf, _))) = (self.get(index), self.far(index)) {
            let (none, fresh) = (ptr::null_mut(), map_anonymous(PAGE)?);
            let taken = leaf.compare_exchange(none, fresh.cast(), AcqRel, Acquire);
            if taken.is_err() {
                // SAFETY: another thread's is the one; nobody else knows of this.
                unsafe { unmap(fresh, PAGE) };
            }
        }
        self.get(index).ok_or(Errno(libc::ENOMEM))
    }

    fn far(&self, index: usize) -> Option<(&AtomicPtr<Leaf<T>>, usize)> {
        let index = index.checked_sub(NEAR)?;
        Some((self.leaves.get(index / LEAF)?, index % LEAF))
    }
}

impl<T, const LEAVES: usize> Default for Pointers<T, LEAVES> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn each_slot_is_one_of_its_own() {
        type Three = Pointers<u8, 3>;
        let table = Three::new();
        assert!(table.get(NEAR).is_none() && table.get(0).is_some());
        let named = |index: usize| ptr::without_provenance_mut(index + 1);
        for index in 0..Three::LENGTH {
            let slot = table.needed(index).expect("memory");
            assert!(slot.swap(named(index), Relaxed).is_null());
        }
        for index in 0..Three::LENGTH {
            let slot = table.get(index).expect("what was needed before");
            assert_eq!(slot.load(Relaxed), named(index));
        }
        assert!(table.needed(Three::LENGTH).is_err() && table.get(Three::LENGTH).is_none());
    }

    #[test]
    fn who_needs_a_slot_at_the_same_time_gets_the_same() {
        let table = Pointers::<u8, 1>::new();
        let address = || ptr::from_ref(table.needed(NEAR).expect("memory")) as usize;
        let all = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(address));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert!(all.iter().all(|one| *one == address()));
    }
}
