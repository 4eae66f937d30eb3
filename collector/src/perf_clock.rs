//! Reads perf's own clock beside the others: two events, one dated by that clock and one by
//! `CLOCK_MONOTONIC`, both watch this thread map a page, and each gets a record of it. No right is
//! needed beyond what sampling oneself needs.
//!
//! # Safety
//! The events' rings are mapped, and read within their size.
#![allow(unsafe_code)]

use crate::perf_event::{self, ANY_PROCESSOR, THIS_THREAD};
use crate::seccomp;
use engine::perf_event::{Attributes, flag, kind, sample, software};
use engine::wire::clocks::Clocks;
use nix::libc;
use nix::time::{ClockId, clock_gettime};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

const PAGE: usize = 4096;
const RECORD_MMAP: u32 = 1;
/// Offsets in the control page.
const CAPABILITIES: usize = 40;
const CAP_USER_TIME_ZERO: u64 = 1 << 5;
const TIME_SHIFT: usize = 50;
const TIME_MULT: usize = 52;
const TIME_ZERO: usize = 64;
const DATA_HEAD: usize = 1024;

/// All clocks, now. What cannot be had is 0.
#[must_use]
pub fn read() -> Clocks {
    let mut clocks = both().unwrap_or_default();
    if clocks.monotonic_ns == 0 {
        clocks.monotonic_ns = super::clock::monotonic_ns();
    }
    // These run along within the moment.
    let since = super::clock::monotonic_ns().saturating_sub(clocks.monotonic_ns);
    let at = |clock| {
        let now = clock_gettime(clock).map_or(0, |time| {
            time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned()
        });
        now.saturating_sub(since)
    };
    clocks.raw_ns = at(ClockId::CLOCK_MONOTONIC_RAW);
    clocks.boot_ns = at(ClockId::CLOCK_BOOTTIME);
    clocks.real_ns = at(ClockId::CLOCK_REALTIME);
    clocks
}

/// perf's clock and `CLOCK_MONOTONIC` at the same mapping of a page.
fn both() -> Option<Clocks> {
    if seccomp::is_in_force() {
        return None;
    }
    let (own, monotonic) = (
        Event::open(None)?,
        Event::open(Some(libc::CLOCK_MONOTONIC))?,
    );
    drop(Page::anonymous()?);
    let mut clocks = Clocks {
        perf_ns: own.time()?,
        monotonic_ns: monotonic.time()?,
        ..Clocks::default()
    };
    if own.ring.long(CAPABILITIES) & CAP_USER_TIME_ZERO != 0 {
        clocks.time_zero = own.ring.long(TIME_ZERO);
        clocks.time_mult = own.ring.word(TIME_MULT);
        clocks.time_shift = own.ring.word(TIME_SHIFT) & 0xffff;
    }
    Some(clocks)
}

struct Event {
    ring: Page,
    _descriptor: OwnedFd,
}

impl Event {
    /// On this thread, watching what it maps.
    fn open(clock: Option<libc::clockid_t>) -> Option<Self> {
        let flags = flag::EXCLUDE_KERNEL
            | flag::EXCLUDE_HV
            | flag::MMAP
            | flag::MMAP_DATA
            | flag::SAMPLE_ID_ALL;
        let attributes = Attributes {
            kind: kind::SOFTWARE,
            config: software::DUMMY,
            sample_type: sample::TIME,
            flags: flags | clock.map_or(0, |_| flag::USE_CLOCKID),
            clockid: clock.unwrap_or(0),
            ..Attributes::default()
        };
        let descriptor = perf_event::open(&attributes, THIS_THREAD, ANY_PROCESSOR).ok()?;
        let ring = Page::of(Some(&descriptor), 2 * PAGE)?;
        Some(Self {
            ring,
            _descriptor: descriptor,
        })
    }

    /// The time of the newest mapping: the last word of its record.
    fn time(&self) -> Option<u64> {
        let head = usize::try_from(self.ring.long(DATA_HEAD)).ok()?;
        let (mut at, mut time) = (0, None);
        // The ring holds a page, and what we mapped since fits.
        while at + 16 <= head.min(PAGE) {
            let header = self.ring.long(PAGE + at);
            let (kind, size) = (header as u32, (header >> 48) as usize);
            if size < 16 || at + size > PAGE {
                break;
            }
            if kind == RECORD_MMAP {
                time = Some(self.ring.long(PAGE + at + size - 8));
            }
            at += size;
        }
        time
    }
}

/// Mapped memory.
struct Page {
    start: *mut libc::c_void,
    length: usize,
}

impl Page {
    fn anonymous() -> Option<Self> {
        Self::of(None, PAGE)
    }

    fn of(file: Option<&OwnedFd>, length: usize) -> Option<Self> {
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choosing.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, fd, 0) };
        (start != libc::MAP_FAILED).then_some(Self { start, length })
    }

    fn long(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= self.length);
        // SAFETY: inside the mapping, as just checked; every bit pattern is a number.
        unsafe { self.start.byte_add(offset).cast::<u64>().read_volatile() }
    }

    fn word(&self, offset: usize) -> u32 {
        assert!(offset + 4 <= self.length);
        // SAFETY: as above.
        unsafe { self.start.byte_add(offset).cast::<u32>().read_unaligned() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this value's mapping.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_side_by_side() {
        let (first, second) = (read(), read());
        assert!(first.perf_ns > 0, "perf may not be used here at all");
        let offset = |clocks: &Clocks| clocks.perf_ns.wrapping_sub(clocks.monotonic_ns);
        let apart = offset(&first).wrapping_sub(offset(&second)).cast_signed();
        // Clocks that differ by a hundredth would be broken.
        let between = second.monotonic_ns - first.monotonic_ns;
        assert!(apart.unsigned_abs() < 50_000 + between / 100, "{apart} ns");
        assert!(second.monotonic_ns > first.monotonic_ns && second.real_ns > first.real_ns);
    }
}
