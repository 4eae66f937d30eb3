//! Guarded reads for callbacks, with a budget for each walk.
//!
//! Two kinds. A *load*, of a word or of bytes, probes the page once a walk, unless it is of the
//! thread's stack, and loads then: for memory that stays mapped while the thread is in the walk,
//! such as its interpreter's frames. A *copy* has the kernel read, which cannot fault whatever
//! other threads unmap meanwhile, and costs a system call.
//!
//! # Safety
//! Loads follow a probe of their pages; what is copied to is the caller's.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::sys;
use core::cell::Cell;
use engine::interpreter::memory::Fields;
use engine::memory::{fetch, is_readable, load_verified};

/// Loads that the languages of a walk may make.
const LOADS: u32 = 524_288;
/// Copies and probes of pages likewise.
const COPIES: u32 = 8192;
/// Bytes of a copy, at most.
pub const LONGEST: usize = 65_536;
const PAGE: u64 = 4096;
/// Pages that a walk remembers as readable, in sets by their low bits: a recursion reads the same
/// few pages at each level, and two that shared one place would be probed again each time.
const SETS: usize = 32;
const WAYS: usize = 4;
/// A page is probed together with one beside it in a block of so many, which is mostly of the same
/// mapping: it goes no sooner.
const BLOCK: u64 = 16;
/// No page has this number.
const NO_PAGE: u64 = u64::MAX;

/// What a walk has left, and knows of memory.
#[derive(Debug)]
pub(super) struct Reads {
    loads: Cell<u32>,
    copies: Cell<u32>,
    /// By their numbers.
    pages: [[Cell<u64>; WAYS]; SETS],
    /// Addresses that are known to be readable: of the thread's stack.
    stack: Cell<(u64, u64)>,
    /// Whether other system calls than the probe's are out of the question; unknown at first.
    is_filtered: Cell<Option<bool>>,
}

impl Reads {
    pub const fn new() -> Self {
        Self {
            loads: Cell::new(LOADS),
            copies: Cell::new(COPIES),
            pages: [const { [const { Cell::new(NO_PAGE) }; WAYS] }; SETS],
            stack: Cell::new((0, 0)),
            is_filtered: Cell::new(None),
        }
    }

    /// Whether nothing is left of the walk's budget.
    pub fn is_spent(&self) -> bool {
        self.loads.get() == 0 || self.copies.get() == 0
    }

    /// A walk begins, or begins again: what was probed is still so, but the budget is whole. These
    /// addresses of the thread's stack can be read.
    pub fn begin(&self, stack: (u64, u64)) {
        self.stack.set(stack);
        self.loads.set(LOADS);
        self.copies.set(COPIES);
    }

    fn take(left: &Cell<u32>, count: u32) -> Result<(), Error> {
        let rest = left.get().checked_sub(count);
        left.set(rest.unwrap_or(0));
        rest.map(drop).ok_or(Error::Budget)
    }

    /// The word at an address.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Budget`].
    #[inline]
    pub fn load(&self, address: u64) -> Result<u64, Error> {
        self.fields(address, &const { Fields::at([0]) })
            .map(|[word]| word)
    }

    /// Some words of an object.
    ///
    /// # Errors
    /// As above.
    #[inline]
    pub fn fields<const COUNT: usize>(
        &self,
        object: u64,
        fields: &Fields<COUNT>,
    ) -> Result<[u64; COUNT], Error> {
        let (lowest, highest) = fields.reach();
        let (first, last) = (object.wrapping_add(lowest), object.wrapping_add(highest));
        let page = first / PAGE;
        let rest = self.loads.get().checked_sub(COUNT as u32);
        match rest {
            Some(rest) if page == last.wrapping_add(7) / PAGE && self.is_known(page) => {
                self.loads.set(rest);
            }
            _ => self.ask(object, (lowest, highest), COUNT as u32)?,
        }
        let offsets = fields.offsets();
        // SAFETY: the pages were found readable, just now or in this walk; what lies between the
        // lowest and the highest, which are less than 4 GiB apart, lies in them.
        Ok(offsets.map(|offset| unsafe { load_verified(object.wrapping_add(offset)) }))
    }

    #[inline]
    fn is_known(&self, page: u64) -> bool {
        let set = self.pages.get(page as usize % SETS).into_iter().flatten();
        // All are looked at: which of them it is cannot be foreseen.
        set.fold(false, |is_known, known| is_known | (known.get() == page))
    }

    /// The same where pages are not known to be readable, or words lie in several.
    #[cold]
    #[inline(never)]
    fn ask(&self, object: u64, (lowest, highest): (u64, u64), count: u32) -> Result<(), Error> {
        // What is asked for is on its way while the kernel is asked whether it may be read.
        fetch(object.wrapping_add(lowest));
        Self::take(&self.loads, count)?;
        let first = object.checked_add(lowest).ok_or(Error::Unreadable)?;
        let last = object.checked_add(highest).ok_or(Error::Unreadable)?;
        let last = last.checked_add(7).ok_or(Error::Unreadable)?;
        (first / PAGE..=last / PAGE).try_for_each(|page| self.probe(page))
    }

    fn probe(&self, page: u64) -> Result<(), Error> {
        if self.is_known(page) {
            return Ok(());
        }
        let start = page.wrapping_mul(PAGE);
        let (low, high) = self.stack.get();
        let is_stack = low <= start && start.saturating_add(PAGE) <= high;
        if !is_stack && !self.probe_two(page)? {
            Self::take(&self.copies, 1)?;
            if !is_readable(start) {
                return Err(Error::Unreadable);
            }
        }
        self.remember(page);
        Ok(())
    }

    /// The oldest of its set goes.
    fn remember(&self, page: u64) {
        let newest = self.pages.get(page as usize % SETS).into_iter().flatten();
        newest.fold(page, |page, known| known.replace(page));
    }

    /// Whether a page and one beside it can both be read, by one word that reaches into both. The
    /// other one is mostly read, too: what an interpreter has made one after the other lies
    /// together.
    fn probe_two(&self, page: u64) -> Result<bool, Error> {
        let (before, behind) = (page.wrapping_sub(1), page.wrapping_add(1));
        let (other, higher) = match self.is_known(behind) {
            false => (behind, behind),
            true => (before, page),
        };
        if page ^ other >= BLOCK || self.is_known(other) {
            return Ok(false);
        }
        Self::take(&self.copies, 1)?;
        let edge = higher.wrapping_mul(PAGE);
        // Both are on their way while the kernel begins.
        fetch(edge.wrapping_sub(8));
        fetch(edge);
        let can_be_read = is_readable(edge.wrapping_sub(4));
        if can_be_read {
            self.remember(other);
        }
        Ok(can_be_read)
    }

    /// Copies bytes by loads.
    ///
    /// # Errors
    /// As above.
    ///
    /// # Safety
    /// `to` has room for so many.
    pub unsafe fn bytes(&self, address: u64, to: *mut u8, length: usize) -> Result<(), Error> {
        if length > LONGEST {
            return Err(Error::Budget);
        }
        Self::take(&self.loads, length.div_ceil(size_of::<u64>()) as u32)?;
        // SAFETY: the caller's promise.
        unsafe { self.read(address, to, length) }
    }

    /// Probes the pages of some bytes and copies them.
    ///
    /// # Safety
    /// As above.
    unsafe fn read(&self, address: u64, to: *mut u8, length: usize) -> Result<(), Error> {
        let Some(behind) = length.checked_sub(1) else {
            return Ok(());
        };
        let last = address.checked_add(behind as u64);
        let last = last.ok_or(Error::Unreadable)?;
        (address / PAGE..=last / PAGE).try_for_each(|page| self.probe(page))?;
        // SAFETY: probed; the caller's promise.
        unsafe {
            let from = core::ptr::with_exposed_provenance::<u8>(address as usize);
            core::ptr::copy_nonoverlapping(from, to, length);
        }
        Ok(())
    }

    /// Copies bytes.
    ///
    /// # Errors
    /// As above.
    ///
    /// # Safety
    /// `to` has room for so many.
    pub unsafe fn copy(&self, address: u64, to: *mut u8, length: usize) -> Result<(), Error> {
        if length > LONGEST {
            return Err(Error::Budget);
        }
        Self::take(&self.copies, 1)?;
        let filtered = self.is_filtered.get().unwrap_or_else(sys::seccomp_filtered);
        self.is_filtered.set(Some(filtered));
        if !filtered {
            // SAFETY: the caller's promise.
            match unsafe { sys::copy_from_self(address, to, length) } {
                Some(copied) if copied == length => return Ok(()),
                Some(_) => return Err(Error::Unreadable),
                None => {} // not to be had here
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.read(address, to, length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A readable page before an unreadable one.
    fn edge() -> u64 {
        let page = block() as *mut u8;
        sys::protect_none(page.wrapping_add(4096), 4096);
        // SAFETY: a fresh mapping.
        unsafe {
            page.wrapping_add(4088)
                .cast::<u64>()
                .write(0x1122_3344_5566_7788)
        };
        page as u64 + 4096
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_no_fault() {
        let (reads, edge) = (Reads::new(), edge());
        assert_eq!(reads.load(edge - 8), Ok(0x1122_3344_5566_7788));
        for bad in [edge - 7, edge, 0, 8, u64::MAX, u64::MAX - 7, 1 << 63] {
            assert_eq!(reads.load(bad), Err(Error::Unreadable), "{bad:#x}");
        }
        for filtered in [false, true] {
            reads.is_filtered.set(Some(filtered));
            let mut to = [0u8; 16];
            // SAFETY: there is room.
            let mut copy = |from, length| unsafe { reads.copy(from, to.as_mut_ptr(), length) };
            assert_eq!(copy(edge - 8, 8), Ok(()));
            assert_eq!(copy(edge - 8, 9), Err(Error::Unreadable));
            assert_eq!(copy(u64::MAX - 3, 8), Err(Error::Unreadable));
            assert_eq!(copy(edge - 8, LONGEST + 1), Err(Error::Budget));
            assert_eq!(to[..8], 0x1122_3344_5566_7788u64.to_le_bytes());
        }
    }

    #[test]
    fn bytes_are_read_to_where_they_can_be() {
        let (reads, edge) = (Reads::new(), edge());
        let mut to = [0u8; 16];
        // SAFETY: there is room.
        let mut read = |from, length| unsafe { reads.bytes(from, to.as_mut_ptr(), length) };
        assert_eq!(read(edge, 0), Ok(()));
        assert_eq!(read(edge - 8, 9), Err(Error::Unreadable));
        assert_eq!(read(u64::MAX - 3, 8), Err(Error::Unreadable));
        assert_eq!(read(edge - 8, LONGEST + 1), Err(Error::Budget));
        assert_eq!(read(edge - 8, 8), Ok(()));
        assert_eq!(reads.loads.get(), LOADS - 2 - 1 - 1);
        assert_eq!(to[..8], 0x1122_3344_5566_7788u64.to_le_bytes());
    }

    #[test]
    fn pages_that_are_read_in_turns_are_probed_once() {
        let (reads, apart) = (Reads::new(), SETS as u64 * PAGE);
        let pages = sys::map_anonymous((WAYS + 1) * apart as usize).unwrap() as u64;
        let pages = pages.next_multiple_of(apart);
        // Each with the one behind it, which is as good.
        for _ in 0..COPIES {
            for page in 0..2 * WAYS as u64 {
                let at = pages + page / 2 * apart + page % 2 * PAGE;
                assert_eq!(reads.load(at), Ok(0));
            }
        }
        assert_eq!(reads.copies.get(), COPIES - WAYS as u32);
        assert!(!reads.is_spent());
    }

    /// Pages that begin a block.
    fn block() -> u64 {
        let size = BLOCK * PAGE;
        let pages = sys::map_anonymous(2 * size as usize).unwrap() as u64;
        pages.next_multiple_of(size)
    }

    #[test]
    fn pages_that_lie_together_are_probed_by_two() {
        let pages = block();
        let each = || (0..BLOCK).map(|page| pages + page * PAGE);
        let taken = |reads: &Reads| u64::from(COPIES - reads.copies.get());
        let reads = Reads::new();
        assert!(each().all(|page| reads.load(page) == Ok(0)));
        assert_eq!(taken(&reads), BLOCK / 2);
        let backwards = Reads::new();
        assert!(each().rev().all(|page| backwards.load(page) == Ok(0)));
        // The last one of the block alone, and then the first one, too.
        assert_eq!(taken(&backwards), BLOCK / 2 + 1);
    }

    #[test]
    fn whole_pages_of_the_stack_are_not_probed() {
        let pages = block();
        let reads = Reads::new();
        reads.begin((pages + 8, pages + 2 * PAGE + 8));
        assert_eq!(reads.load(pages + PAGE), Ok(0));
        assert_eq!(reads.copies.get(), COPIES);
        assert_eq!(reads.load(pages + 2 * PAGE), Ok(0));
        assert_eq!(reads.copies.get(), COPIES - 1);
        assert_eq!(reads.load(pages), Ok(0));
        assert!(reads.copies.get() < COPIES - 1);
    }

    #[test]
    fn a_page_is_not_taken_for_readable_since_the_one_beside_it_is() {
        let pages = block();
        sys::protect_none(pages as *mut u8, PAGE as usize);
        let (first, second, third) = (pages, pages + PAGE, pages + 2 * PAGE);
        for order in [[second, third], [third, second]] {
            let reads = Reads::new();
            assert_eq!(reads.load(first), Err(Error::Unreadable));
            assert!(order.iter().all(|page| reads.load(*page) == Ok(0)));
            assert_eq!(reads.load(first), Err(Error::Unreadable));
        }
    }

    #[test]
    fn fields_are_read_where_all_of_them_can_be() {
        let (reads, edge) = (Reads::new(), edge());
        let last = 0x1122_3344_5566_7788;
        let behind = Fields::at([16, 0, 8]);
        assert_eq!(reads.fields(edge - 24, &behind), Ok([last, 0, 0]));
        assert_eq!(reads.fields(edge - 16, &behind), Err(Error::Unreadable));
        for far in [1 << 32, u64::MAX, u64::MAX - 8, PAGE.wrapping_neg()] {
            let fields = Fields::at([0, far, 8]);
            assert_eq!(reads.fields(edge - 16, &fields), Err(Error::Unreadable));
        }
    }

    #[test]
    fn a_page_between_unreadable_ones_can_be_read() {
        let reads = Reads::new();
        let pages = sys::map_anonymous(3 * PAGE as usize).unwrap();
        sys::protect_none(pages, PAGE as usize);
        sys::protect_none(pages.wrapping_add(2 * PAGE as usize), PAGE as usize);
        let first = pages as u64;
        assert_eq!(reads.load(first + PAGE), Ok(0));
        for bad in [
            first,
            first + PAGE - 1,
            first + 2 * PAGE - 7,
            first + 2 * PAGE,
        ] {
            assert_eq!(reads.load(bad), Err(Error::Unreadable));
        }
        assert_eq!(reads.load(first + 2 * PAGE - 8), Ok(0));
    }

    #[test]
    fn a_walk_may_read_only_so_much() {
        let (reads, edge) = (Reads::new(), edge());
        let loads = (0..).take_while(|_| reads.load(edge - 8).is_ok()).count();
        assert_eq!(loads as u32, LOADS);
        assert_eq!(reads.load(edge - 8), Err(Error::Budget));
        reads.begin((0, 0));
        let probes = (0..).take_while(|_| reads.load(edge) == Err(Error::Unreadable));
        // With the one behind it, and alone.
        assert_eq!(probes.count() as u32, COPIES / 2);
        reads.begin((0, 0));
        assert!(reads.load(edge - 8).is_ok());
    }
}
