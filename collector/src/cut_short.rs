//! Files that are cut short while they are mapped: symbols are read from mapped files of programs,
//! whose owners may write to them meanwhile, or build them anew. What is gone reads as zeros then,
//! where it would end rsunwind by SIGBUS.
//!
//! # Safety
//! The handler maps a page of zeros over one that the file does not reach any more, and touches
//! nothing else but a number of its own thread's. A fault of another kind has the default action.
#![allow(unsafe_code)]

use nix::libc::{self, c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::cell::Cell;

/// Pages are no smaller anywhere, and larger ones are met at each of their parts.
const PAGE: usize = 4096;
/// `si_code` of what is beyond a file's end.
const BUS_ADRERR: c_int = 2;

thread_local! {
    static MISSING: Cell<u64> = const { Cell::new(0) };
}

/// From now on, in this process. Where the signal is ignored it stays so, which is inherited by
/// programs that are started.
pub(crate) fn read_as_zeros() {
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
    let action = SigAction::new(SigHandler::SigAction(fill), flags, SigSet::empty());
    // SAFETY: see above. Where it is refused all is as it was.
    let before = unsafe { sigaction(Signal::SIGBUS, &action) };
    if let Ok(before) = before
        && matches!(before.handler(), SigHandler::SigIgn)
    {
        // SAFETY: what was there before.
        let _ = unsafe { sigaction(Signal::SIGBUS, &before) };
    }
}

/// How many pages were missing that this thread has read.
pub(crate) fn missing() -> u64 {
    MISSING.get()
}

extern "C" fn fill(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives it, for a fault with an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    let page = (address as usize & !(PAGE - 1)) as *mut c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let filled = code == BUS_ADRERR && {
        // SAFETY: the page is mapped, of a file that does not reach it: nothing is in it.
        let at = unsafe { libc::mmap(page, PAGE, libc::PROT_READ, flags, -1, 0) };
        at == page
    };
    if filled {
        MISSING.set(MISSING.get() + 1);
    } else {
        // SAFETY: with that it comes again, and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
    use std::io::Write;
    use std::num::NonZero;

    #[test]
    fn what_is_cut_off_reads_as_zeros() {
        read_as_zeros();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 3 * PAGE]).unwrap();
        let length = NonZero::new(3 * PAGE).unwrap();
        let flags = MapFlags::MAP_PRIVATE;
        // SAFETY: a new mapping.
        let at = unsafe { mmap(None, length, ProtFlags::PROT_READ, flags, &file, 0) }.unwrap();
        file.set_len(PAGE as u64).unwrap();
        let word = |page: usize| {
            // SAFETY: within the mapping.
            unsafe { at.byte_add(page * PAGE).cast::<u8>().read_volatile() }
        };
        assert_eq!([0, 1, 2, 1].map(word), [1, 0, 0, 0]);
        assert_eq!(missing(), 2);
        // SAFETY: the mapping of before.
        unsafe { munmap(at, length.get()) }.unwrap();
    }
}
