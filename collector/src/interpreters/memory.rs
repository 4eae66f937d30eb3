//! The memory of another process, read by pages, each once.

use crate::remote_memory::RemoteMemory;
use engine::interpreter::memory::Memory;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

const PAGE: usize = 4096;
/// Pages that are kept.
const MOST: usize = 4096;
/// What may be read in all, in words that are known already. Lists in that memory may be as long as
/// they like, or go in circles.
const BUDGET: usize = 2_000_000;
/// What it costs to ask the kernel, for each page.
const ASKING: usize = 16;

/// Some memory of a process at one moment.
#[derive(Debug)]
pub(super) struct Pages {
    memory: RemoteMemory,
    /// `None` for what cannot be read.
    pages: RefCell<HashMap<u64, Option<Box<[u8; PAGE]>>>>,
    /// Of the budget.
    left: Cell<usize>,
}

impl Pages {
    pub(super) fn of(pid: u32) -> Self {
        Self {
            memory: RemoteMemory(pid),
            pages: RefCell::default(),
            left: Cell::new(BUDGET),
        }
    }

    /// Whether nothing more is read, though there may be more.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    fn charge(&self, cost: usize) -> Option<()> {
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.unwrap_or(0));
        left.map(drop)
    }
}

impl Memory for Pages {
    fn load(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.copy(address, &mut word)?;
        Some(u64::from_le_bytes(word))
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        let at = (address % PAGE as u64) as usize;
        let Some(range) = at
            .checked_add(to.len())
            .filter(|end| *end <= PAGE)
            .map(|end| at..end)
        else {
            self.charge(ASKING * (1 + to.len() / PAGE))?;
            return self.memory.copy(address, to);
        };
        self.charge(1)?;
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= MOST {
            pages.clear();
        }
        let start = address - at as u64;
        if !pages.contains_key(&start) {
            self.charge(ASKING)?;
        }
        let page = pages.entry(start).or_insert_with(|| {
            let mut page = Box::new([0; PAGE]);
            self.memory.copy(start, &mut page[..]).map(|()| page)
        });
        to.copy_from_slice(page.as_ref()?.get(range)?);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_like_any_other_and_no_more_than_there_is() {
        let bytes: Vec<u8> = (0..3 * PAGE).map(|index| (index % 251) as u8).collect();
        let memory = Pages::of(std::process::id());
        let start = bytes.as_ptr() as u64;
        for (offset, length) in [(0, 8), (1, 8), (PAGE - 3, 8), (5, PAGE * 2), (7, 0)] {
            let mut found = vec![0; length];
            memory.copy(start + offset as u64, &mut found).unwrap();
            assert_eq!(found, bytes[offset..offset + length]);
        }
        let word = u64::from_le_bytes(bytes[3..11].try_into().unwrap());
        assert_eq!(memory.load(start + 3), Some(word));
        for bad in [0, 8, u64::MAX, u64::MAX - 7, 1 << 63] {
            assert_eq!(memory.load(bad), None, "{bad:#x}");
        }
    }

    #[test]
    fn a_list_without_an_end_is_read_for_so_long_only() {
        let itself = Cell::new(0_u64);
        let start = itself.as_ptr() as u64;
        itself.set(start);
        let memory = Pages::of(std::process::id());
        assert!(!memory.is_exhausted());
        let next = |at: &u64| memory.load(*at);
        let read = std::iter::successors(Some(start), next).take(BUDGET * 2);
        let read = read.count();
        assert!((BUDGET / 2..=BUDGET).contains(&read), "{read}");
        assert!(memory.is_exhausted());
        let mut much = vec![0; PAGE * 2];
        assert_eq!(memory.copy(start, &mut much), None);
    }
}
