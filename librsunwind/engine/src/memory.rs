//! The only raw loads of a walk: plain ones from the part of the thread's stack known to be mapped,
//! probed ones elsewhere.
//!
//! A probe asks the kernel to read the address: `rt_sigprocmask` with a `how` that does not exist
//! copies its 8-byte set in and then refuses, with EFAULT if the copy failed and EINVAL if it did
//! not. So a probe cannot fault, needs no SIGSEGV handler, and changes nothing. It costs a system
//! call, and is remembered per page for the rest of the walk. A seccomp filter may forbid that
//! call; then `futex` does the same, and where that is forbidden, too, nothing is read but what is
//! known ([`choose_probe`]).
//!
//! There is no SIGSEGV handler on purpose: one that runs on the alternate stack overwrites the live
//! frames of a program that switched away from that stack inside its own handler.
//!
//! # Safety
//! Loads from addresses found on the stack; every load is covered by the verified range or by a
//! probe of its page.
#![allow(unsafe_code)]

use crate::address::RuntimeAddress;
use crate::registers;
use crate::seccomp::SystemCall;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

const PAGE: u64 = 4096;
const EINVAL: i64 = -22;
const EFAULT: i64 = -14;
/// How many pages a walk adds to the verified range at most; the rest follows in later walks.
const GROWTH_LIMIT: u32 = 64;
/// How many pages a walk remembers as readable.
const REMEMBERED: usize = 8;

const BY_MASK: u8 = 0;
const BY_FUTEX: u8 = 1;
const FORBIDDEN: u8 = 2;
/// How the kernel is asked what can be read.
static PROBE: AtomicU8 = AtomicU8::new(BY_MASK);

/// From now on the kernel is asked by a call that may be made, if there is one.
pub fn choose_probe(may_make: impl Fn(&SystemCall) -> bool) {
    let by_mask = SystemCall {
        number: registers::PROBE,
        arguments: [Some(u64::MAX), None, Some(0), Some(8), None, None],
    };
    let requeue = Some(registers::REQUEUE_IF_SAME);
    let by_futex = SystemCall {
        number: registers::PROBE_BY_FUTEX,
        arguments: [None, requeue, Some(0), Some(0), None, Some(0)],
    };
    let way = [by_mask, by_futex].iter().position(may_make);
    let way = way.map_or(FORBIDDEN, |way| way as u8);
    PROBE.store(way, Relaxed);
}

/// Whether the kernel may be asked.
pub fn can_probe() -> bool {
    PROBE.load(Relaxed) != FORBIDDEN
}

/// Whether the 8 bytes at an address can be read; not, where nobody may be asked.
///
/// # Signal safety
/// One or two system calls, which change nothing.
#[must_use]
pub fn is_readable(address: u64) -> bool {
    is_readable_by(PROBE.load(Relaxed), address)
}

fn is_readable_by(way: u8, address: u64) -> bool {
    let by_futex = |address| {
        let answer = registers::probe_by_futex(address);
        answer != EFAULT && answer != EINVAL
    };
    address != 0
        && match way {
            BY_MASK => registers::probe(address) == EINVAL,
            BY_FUTEX => by_futex(address) && by_futex(address.wrapping_add(7)),
            _ => false,
        }
}

/// A thread's stack as its walks see it: kept in the thread's state from walk to walk, so that a
/// page is probed once.
#[derive(Clone, Copy, Debug)]
pub struct StackMemory {
    /// Everything from here to `high` has been readable and stays so while the thread lives.
    verified: u64,
    high: u64,
    /// The part of the verified range above the stack pointer of this walk.
    low: u64,
    pages: [u64; REMEMBERED],
    next_page: u8,
}

impl StackMemory {
    /// A stack whose bytes in `low..high` are mapped and readable for as long as this value is
    /// used. An empty range is fine: then everything is probed. The range grows downward by itself.
    #[must_use]
    pub const fn new(low: u64, high: u64) -> Self {
        let verified = if low <= high { low } else { high };
        Self {
            verified,
            high,
            low: high,
            pages: [0; REMEMBERED],
            next_page: 0,
        }
    }

    /// The range that is loaded from without a probe.
    #[must_use]
    pub const fn verified(&self) -> (u64, u64) {
        (self.verified, self.high)
    }

    /// Begins a walk at a stack pointer. What was probed page by page is forgotten: it may be gone
    /// since.
    ///
    /// # Signal safety
    /// At most 64 probes, the first time that a stack has grown.
    #[inline]
    pub fn begin(&mut self, sp: u64) {
        self.pages = [0; REMEMBERED];
        self.enter(sp);
    }

    /// Goes on at another stack pointer: below a signal handler that may have had a stack of its
    /// own.
    #[inline]
    pub fn enter(&mut self, sp: u64) {
        let page = sp & !PAGE.wrapping_sub(1);
        if page < self.verified {
            self.grow(page);
        }
        let inside = page >= self.verified && sp < self.high;
        self.low = if inside { page } else { self.high };
    }

    /// Verifies pages below those that are, down to one.
    #[cold]
    fn grow(&mut self, page: u64) {
        let mut budget = GROWTH_LIMIT;
        while page < self.verified && self.is_near(page) && budget > 0 {
            let next = self.verified.wrapping_sub(1) & !PAGE.wrapping_sub(1);
            if !is_readable(next) {
                break;
            }
            self.verified = next;
            budget = budget.wrapping_sub(1);
        }
    }

    /// Whether a walk could be on this stack below its verified part: within 64 MiB of it.
    const fn is_near(&self, page: u64) -> bool {
        self.verified < self.high && self.verified.wrapping_sub(page) < 64 << 20
    }

    /// Whether the stack pointer given to [`StackMemory::enter`] was on this stack.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        self.low < self.high
    }

    /// The range of addresses, as lowest and highest plus one, whose bytes can be loaded by
    /// [`load_verified`] in this walk.
    #[inline]
    #[must_use]
    pub const fn plain(&self) -> (u64, u64) {
        (self.low, self.high)
    }

    /// The word at an address, if it can be read.
    ///
    /// # Signal safety
    /// A load; outside the verified range one or two probes before it.
    #[inline]
    pub fn load(&mut self, address: u64) -> Option<u64> {
        let end = address.checked_add(8)?;
        if (address < self.low || end > self.high) && !self.check(address) {
            return None;
        }
        // SAFETY: the range is verified, or both pages were just found readable.
        Some(unsafe { load_verified(address) })
    }

    /// Whether `bytes` stand at an address, if that can be read.
    pub fn holds(&mut self, address: u64, bytes: &[u8]) -> bool {
        (0u64..).zip(bytes).all(|(offset, byte)| {
            let at = address.wrapping_add(offset);
            let word = self.load(at & !7);
            word.is_some_and(|word| (word >> ((at & 7) << 3)) as u8 == *byte)
        })
    }

    #[cold]
    fn check(&mut self, address: u64) -> bool {
        let first = address & !PAGE.wrapping_sub(1);
        let last = address.wrapping_add(7) & !PAGE.wrapping_sub(1);
        self.check_page(first) && (first == last || self.check_page(last))
    }

    fn check_page(&mut self, page: u64) -> bool {
        if page == 0 {
            return false;
        }
        if self.pages.contains(&page) {
            return true;
        }
        let readable = is_readable(page);
        if let Some(slot) = self.pages.get_mut(usize::from(self.next_page))
            && readable
        {
            *slot = page;
            self.next_page = self.next_page.wrapping_add(1) & 7;
        }
        readable
    }
}

/// Loads a word.
///
/// # Safety
/// The 8 bytes at `address` are readable.
#[inline]
#[must_use]
pub unsafe fn load_verified(address: u64) -> u64 {
    // SAFETY: as the caller vouches; the stack belongs to running code, so the load is
    // volatile-like and unaligned-safe.
    unsafe { core::ptr::with_exposed_provenance::<u64>(address as usize).read_unaligned() }
}

/// Has the processor fetch what lies at an address, if anything does: meanwhile something else is
/// done that takes as long.
///
/// # Signal safety
/// Nothing is read, and no address can fault.
#[inline]
#[cfg(target_arch = "x86_64")]
pub fn fetch(address: u64) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let place = core::ptr::without_provenance(address as usize);
    // SAFETY: as said.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
}

/// There is no such instruction to be had here.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub const fn fetch(_: u64) {}

/// The bytes of a mapped range.
///
/// # Safety
/// `start..end` is mapped, readable and does not change for as long as the slice is used.
#[inline]
#[must_use]
pub unsafe fn mapped<'a>(start: u64, end: u64) -> &'a [u8] {
    let length = end.saturating_sub(start) as usize;
    if start == 0 || length > isize::MAX as usize {
        return &[];
    }
    // SAFETY: as the caller vouches.
    unsafe {
        core::slice::from_raw_parts(
            core::ptr::with_exposed_provenance::<u8>(start as usize),
            length,
        )
    }
}

/// The bytes of a table of a module that [`crate::module_map::Modules`] vouches for.
#[inline]
pub(crate) fn table_bytes<'a>(start: RuntimeAddress, end: RuntimeAddress) -> &'a [u8] {
    // SAFETY: the implementation of `Modules` promises that a module it gives out stays mapped
    // while a walk uses it, and its tables are in read-only segments.
    unsafe { mapped(start.0, end.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two readable pages between unreadable ones; the address of the first readable byte.
    fn island() -> u64 {
        // SAFETY: a fresh mapping, of which two pages are then made accessible.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let all = libc::mmap(
                core::ptr::null_mut(),
                4 * 4096,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            );
            let island = all.byte_add(4096);
            assert_eq!(
                libc::mprotect(island, 8192, libc::PROT_READ | libc::PROT_WRITE),
                0
            );
            island
                .cast::<u64>()
                .byte_add(4096 - 4)
                .write_unaligned(0x1122_3344_5566_7788);
            island as u64
        }
    }

    #[test]
    fn what_cannot_be_read_is_noticed_without_a_fault() {
        let island = island();
        for way in [BY_MASK, BY_FUTEX] {
            let readable = |offset: i64| is_readable_by(way, island.wrapping_add_signed(offset));
            assert!(readable(0) && readable(8184) && readable(4092), "{way}");
            assert!(!readable(-1) && !readable(8185) && !readable(8192) && !readable(-4096));
            for bad in [0, 8, u64::MAX, 1 << 63] {
                assert!(!is_readable_by(way, bad), "{way} {bad:#x}");
            }
        }
        assert!(!is_readable_by(FORBIDDEN, island));
    }

    #[test]
    fn loads_outside_the_stack_are_probed_page_by_page() {
        let island = island();
        let mut memory = StackMemory::new(0, 0);
        memory.begin(island);
        assert!(!memory.is_own());
        assert_eq!(memory.load(island + 4092), Some(0x1122_3344_5566_7788));
        for bad in [island - 4, island + 8185, 0, u64::MAX, u64::MAX - 7] {
            assert_eq!(memory.load(bad), None, "{bad:#x}");
        }
        assert!(memory.holds(island + 4092, &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33]));
        assert!(!memory.holds(island + 4092, &[0x88, 0x77, 0x66, 0x55, 0x44, 0x34]));
    }

    #[test]
    fn the_verified_range_grows_down_to_the_stack_pointer_and_not_over_a_gap() {
        let island = island();
        let mut memory = StackMemory::new(island + 8000, island + 8192);
        memory.begin(island + 100);
        assert!(memory.is_own());
        assert_eq!(memory.verified(), (island, island + 8192));
        memory.begin(island - 5000);
        assert!(!memory.is_own());
        assert_eq!(memory.verified(), (island, island + 8192));
        assert_eq!(memory.load(island - 8), None);
    }
}
