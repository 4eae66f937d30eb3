//! Guarded reads for callbacks, with a budget for each walk.
//!
//! Two kinds. A *load* probes the page once a walk and loads then: for memory that stays mapped
//! while the thread is in the walk, such as its interpreter's frames. A *copy* has the kernel read,
//! which cannot fault whatever other threads unmap meanwhile, and costs a system call.
//!
//! # Safety
//! Loads follow a probe of their pages; what is copied to is the caller's.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::sys;
use core::cell::Cell;
use engine::interpreter::memory::Fields;
use engine::memory::{is_readable, load_verified};

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
/// No page has this number.
const NO_PAGE: u64 = u64::MAX;

/// What a walk has left, and knows of memory.
#[derive(Debug)]
pub(super) struct Reads {
    loads: Cell<u32>,
    copies: Cell<u32>,
    /// By their numbers.
    pages: [[Cell<u64>; WAYS]; SETS],
    /// Whether other system calls than the probe's are out of the question; unknown at first.
    is_filtered: Cell<Option<bool>>,
}

impl Reads {
    pub const fn new() -> Self {
        Self {
            loads: Cell::new(LOADS),
            copies: Cell::new(COPIES),
            pages: [const { [const { Cell::new(NO_PAGE) }; WAYS] }; SETS],
            is_filtered: Cell::new(None),
        }
    }

    /// Whether nothing is left of the walk's budget.
    pub fn is_spent(&self) -> bool {
        self.loads.get() == 0 || self.copies.get() == 0
    }

    /// A walk begins again: what was probed is still so, but the budget is whole.
    pub fn begin(&self) {
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
        self.fields(address, &const { Fields::at([0]) }).map(|[word]| word)
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
        // SAFETY: the pages were found readable, just now or in this walk; what lies between the
        // lowest and the highest, which are less than 4 GiB apart, lies in them.
        let offsets = fields.offsets();
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
        Self::take(&self.copies, 1)?;
        if !is_readable(page.wrapping_mul(PAGE)) {
            return Err(Error::Unreadable);
        }
        // The oldest of its set goes.
        let newest = self.pages.get(page as usize % SETS).into_iter().flatten();
        newest.fold(page, |page, known| known.replace(page));
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
        for offset in 0..length {
            let at = address
                .checked_add(offset as u64)
                .ok_or(Error::Unreadable)?;
            self.probe(at / PAGE)?;
            // SAFETY: probed; the caller's promise.
            unsafe {
                let byte = core::ptr::with_exposed_provenance::<u8>(at as usize).read_volatile();
                to.wrapping_add(offset).write(byte);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A readable page before an unreadable one.
    fn edge() -> u64 {
        let page = sys::map_anonymous(8192).unwrap();
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
    fn pages_that_are_read_in_turns_are_probed_once() {
        let (reads, apart) = (Reads::new(), SETS * PAGE as usize);
        let pages = sys::map_anonymous(WAYS * apart).unwrap() as u64;
        for _ in 0..COPIES {
            for page in 0..WAYS {
                assert_eq!(reads.load(pages + (page * apart) as u64), Ok(0));
            }
        }
        assert_eq!(reads.copies.get(), COPIES - WAYS as u32);
        assert!(!reads.is_spent());
    }

    #[test]
    fn a_walk_may_read_only_so_much() {
        let (reads, edge) = (Reads::new(), edge());
        let loads = (0..).take_while(|_| reads.load(edge - 8).is_ok()).count();
        assert_eq!(loads as u32, LOADS);
        assert_eq!(reads.load(edge - 8), Err(Error::Budget));
        reads.begin();
        let probes = (0..).take_while(|_| reads.load(edge) == Err(Error::Unreadable));
        assert_eq!(probes.count() as u32, COPIES);
        reads.begin();
        assert!(reads.load(edge - 8).is_ok());
    }
}
