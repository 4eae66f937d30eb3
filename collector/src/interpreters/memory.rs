//! The memory of another process, read by pages, each once.

use crate::remote_memory::RemoteMemory;
use crate::unwind::Stack;
use engine::interpreter::memory::Memory;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Pages that are kept.
const MOST: usize = 4096;
/// What may be read in all, in words that are known already. Lists in that memory may be as long as
/// they like, or go in circles.
const BUDGET: usize = 2_000_000;
/// What it costs to ask the kernel, for each page.
const ASKING: usize = 16;
/// So often the clock is looked at where the kernel is not asked.
const GLANCE: usize = 1024;

/// Some memory of a process at one moment.
#[derive(Debug)]
pub(super) struct Pages {
    memory: RemoteMemory,
    /// `None` for what cannot be read.
    pages: RefCell<HashMap<u64, Option<Box<[u8; PAGE]>>>>,
    /// Of the budget.
    left: Cell<usize>,
    until: Instant,
}

impl Pages {
    /// For so long.
    pub(super) fn of(pid: u32, patience: Duration) -> Self {
        Self {
            until: Instant::now() + patience,
            memory: RemoteMemory(pid),
            pages: RefCell::default(),
            left: Cell::new(BUDGET),
        }
    }

    /// Whether nothing more is read, though there may be more.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// Whether they take little memory.
    pub(super) fn are_few(&self) -> bool {
        const FEW: usize = 256;
        self.pages.borrow().len() <= FEW
    }

    fn charge(&self, cost: usize) -> Option<()> {
        let left = self.left.get();
        let is_late = || Instant::now() >= self.until;
        let looks = cost >= ASKING || left.is_multiple_of(GLANCE);
        let left = left.checked_sub(cost).filter(|_| !(looks && is_late()));
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

/// That memory, with a stack in it as it was when it was copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct WithStack<'a> {
    pub(super) pages: &'a Pages,
    pub(super) stack: Option<Stack<'a>>,
}

impl Memory for WithStack<'_> {
    fn load(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.copy(address, &mut word)?;
        Some(u64::from_le_bytes(word))
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        let stack = self.stack.as_ref();
        match stack.and_then(|stack| stack.at(address, to.len())) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => self.pages.copy(address, to)?,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn own_memory_is_read_like_any_other_and_no_more_than_there_is() {
        let bytes: Vec<u8> = (0..3 * PAGE).map(|index| (index % 251) as u8).collect();
        let memory = Pages::of(std::process::id(), LONG);
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
        let memory = Pages::of(std::process::id(), LONG);
        assert!(!memory.is_exhausted());
        let next = |at: &u64| memory.load(*at);
        let read = std::iter::successors(Some(start), next).take(BUDGET * 2);
        let read = read.count();
        assert!((BUDGET / 2..=BUDGET).contains(&read), "{read}");
        assert!(memory.is_exhausted());
        let mut much = vec![0; PAGE * 2];
        assert_eq!(memory.copy(start, &mut much), None);
    }

    #[test]
    fn nothing_is_read_when_the_time_is_over() {
        let word = [7_u64; 2];
        let start = word.as_ptr() as u64;
        let memory = Pages::of(std::process::id(), Duration::ZERO);
        assert_eq!(memory.load(start), None);
        assert!(memory.is_exhausted());
    }

    #[test]
    fn a_stack_is_read_as_it_was_copied() {
        let words = [1_u64, 2, 3];
        let start = words.as_ptr() as u64;
        let pages = Pages::of(std::process::id(), LONG);
        let stack = Stack {
            sp: start + 8,
            bytes: &9_u64.to_le_bytes(),
            cut: true,
        };
        let memory = WithStack {
            pages: &pages,
            stack: Some(stack),
        };
        let read = [0, 8, 16].map(|offset| memory.load(start + offset));
        assert_eq!(read, [Some(1), Some(9), Some(3)]);
    }
}
