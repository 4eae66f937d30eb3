//! Work that goes on when this process is killed: a process of its own does it, which has this
//! one's memory, while the calling thread waits for it (as after `vfork`). What it traces the
//! kernel lets go of when it ends.
//!
//! # Safety
//! The other process stands on a stack of its own, and has the calling thread's storage, which
//! nobody else uses meanwhile.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc::{self, c_int, c_void};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes; what is not used is not there.
const STACK: usize = 4 << 20;
const PAGE: usize = 4096;

struct Work<F, T> {
    work: Option<F>,
    result: Option<T>,
}

/// Gives what the work gives; none if it panics.
///
/// # Errors
/// As `clone`, or `mmap`.
pub(super) fn apart<T, F: FnOnce() -> T>(work: F) -> Result<Option<T>, Errno> {
    let mut work = Work {
        work: Some(work),
        result: None,
    };
    let stack = Stack::map()?;
    let held_back = HeldBack::all()?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let argument = (&raw mut work).cast::<c_void>();
    // SAFETY: see the module; this thread goes on when the other process has ended.
    let pid = unsafe { libc::clone(enter::<F, T>, stack.end(), flags, argument) };
    let pid = Errno::result(pid)?;
    // SAFETY: nothing is written.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    drop(held_back);
    Ok(work.result)
}

extern "C" fn enter<F: FnOnce() -> T, T>(work: *mut c_void) -> c_int {
    // SAFETY: `apart` has it, and waits.
    let work = unsafe { &mut *work.cast::<Work<F, T>>() };
    if let Some(todo) = work.work.take() {
        work.result = catch_unwind(AssertUnwindSafe(todo)).ok();
    }
    0
}

/// Memory for a stack, below a page that is none.
struct Stack(*mut c_void);

impl Stack {
    fn map() -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: fresh memory.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), STACK, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: the lowest page of it, which nobody uses.
        unsafe { libc::mprotect(memory, PAGE, libc::PROT_NONE) };
        Ok(Self(memory))
    }

    fn end(&self) -> *mut c_void {
        self.0.wrapping_byte_add(STACK)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: nobody stands on it any more.
        unsafe { libc::munmap(self.0, STACK) };
    }
}

/// Signals of this thread, which the other process has held back, too: Ctrl-C is for both.
struct HeldBack(SigSet);

impl HeldBack {
    fn all() -> Result<Self, Errno> {
        let all = SigSet::all();
        all.thread_swap_mask(SigmaskHow::SIG_SETMASK).map(Self)
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // The mask was this thread's.
        let _ = self.0.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_in_another_process_with_this_memory() {
        let mut seen = 0;
        let other = apart(|| {
            seen = std::process::id();
            vec![seen]
        });
        assert_eq!(other, Ok(Some(vec![seen])));
        assert!(seen != 0 && seen != std::process::id());
        assert!(!std::path::Path::new(&format!("/proc/{seen}")).exists());
        assert_eq!(apart(|| panic!("as a failure would")), Ok(None::<()>));
        let mask = SigSet::thread_get_mask().unwrap();
        assert!(!mask.contains(nix::sys::signal::Signal::SIGINT));
    }
}
