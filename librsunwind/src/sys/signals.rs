//! Signal actions and masks at the kernel's own level, below the program's wrappers.
#![allow(unsafe_code)]

use super::{Errno, call, filters};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use engine::seccomp::SystemCall;

/// `SA_RESTORER`, which libc keeps to itself.
pub const SA_RESTORER: u64 = 0x0400_0000;

/// The kernel's `struct sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelAction {
    /// Address of the handler, or `SIG_DFL` 0, `SIG_IGN` 1.
    pub handler: usize,
    /// `SA_*`.
    pub flags: u64,
    /// Where a handler returns to.
    pub restorer: usize,
    /// Signals blocked while the handler runs: bit n-1 for signal n.
    pub mask: u64,
}

/// The mask bit of a signal.
pub const fn bit(signal: i32) -> u64 {
    1u64.wrapping_shl((signal as u32).wrapping_sub(1))
}

/// Every signal but those that a fault raises: what is held back while the handler runs, and while
/// a stack is shown to clients.
pub const ALL_BUT_FAULTS: u64 = !(bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS));

/// `rt_sigaction`: sets (if given) and gives the action before.
///
/// # Errors
/// `EINVAL` for a signal that cannot be set.
pub fn signal_action(signal: i32, new: Option<&KernelAction>) -> Result<KernelAction, Errno> {
    let mut old = KernelAction::default();
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both point at structures of the kernel's layout, or null.
    unsafe { call!(libc::SYS_rt_sigaction, signal, new, &raw mut old, 8) }?;
    Ok(old)
}

/// `rt_sigprocmask`: how is `SIG_BLOCK`, `SIG_UNBLOCK` or `SIG_SETMASK`; gives the mask before.
pub fn signal_mask(how: i32, set: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both point at 8 bytes.
    let _ = unsafe {
        call!(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const set,
            &raw mut old,
            8
        )
    };
    old
}

/// `sigaltstack`: sets the calling thread's alternate stack (if given) and gives the one before;
/// size 0 is none.
///
/// # Errors
/// `EPERM` on that stack, `ENOMEM` if it is too small.
pub fn alternate_stack(new: Option<&libc::stack_t>) -> Result<libc::stack_t, Errno> {
    let mut old = libc::stack_t {
        ss_sp: core::ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both point at structures of the kernel's layout, or null.
    unsafe { call!(libc::SYS_sigaltstack, new, &raw mut old) }?;
    Ok(old)
}

/// Sends a signal to a thread of this process.
pub fn send_to_thread(tid: u32, signal: i32) {
    // SAFETY: no memory involved.
    let _ = unsafe { call!(libc::SYS_tgkill, super::getpid(), tid, signal) };
}

/// Sends a signal to this process, to whichever thread takes it.
pub fn send_to_process(signal: i32) {
    // SAFETY: no memory involved.
    let _ = unsafe { call!(libc::SYS_kill, super::getpid(), signal) };
}

/// Sends a signal that has come to this process once more, to whichever thread takes it; with the
/// same `siginfo_t`, except that threads other than the first may not say that somebody else's
/// `kill(2)` sent it.
pub fn send_again(signal: i32, information: *const core::ffi::c_void) {
    // SAFETY: the kernel reads a siginfo of 128 bytes, which the caller got from it.
    let sent = unsafe {
        call!(
            libc::SYS_rt_sigqueueinfo,
            super::getpid(),
            signal,
            information
        )
    };
    if sent.is_err() {
        send_to_process(signal);
    }
}

/// Takes a blocked signal that is pending for the calling thread, if there is one: fills
/// `information` as for a handler.
pub fn take_pending(signal: i32, information: &mut [u64; 16]) -> bool {
    let (set, at_once) = (bit(signal), [0u64; 2]);
    // SAFETY: the kernel reads a mask and a time, and writes a siginfo of 128 bytes.
    unsafe {
        call!(
            libc::SYS_rt_sigtimedwait,
            &raw const set,
            information.as_mut_ptr(),
            at_once.as_ptr(),
            8
        )
    }
    .is_ok()
}

/// Raises a signal on the calling thread, with a code and a value of our own: never lost for want
/// of memory, as long as the code is positive.
///
/// # Errors
/// As `rt_tgsigqueueinfo(2)`; a seccomp filter may refuse it.
pub fn raise_with(signal: i32, code: i32, value: u64) -> Result<(), Errno> {
    let head = (signal as u32 as u64, code as u32 as u64);
    // `siginfo_t`: signal and errno, code and padding, process and user, value.
    let mut information = [0u64; 16];
    let (pid, tid) = (super::getpid(), super::gettid());
    for (slot, word) in information
        .iter_mut()
        .zip([head.0, head.1, u64::from(pid), value])
    {
        *slot = word;
    }
    // SAFETY: the kernel reads a siginfo of 128 bytes.
    unsafe {
        call!(
            libc::SYS_rt_tgsigqueueinfo,
            pid,
            tid,
            signal,
            information.as_ptr()
        )
    }?;
    Ok(())
}

/// Whether signals can be held back at all.
pub fn may_hold_back() -> bool {
    let block = libc::SIG_BLOCK as u64;
    filters::may_make(&SystemCall {
        number: libc::SYS_rt_sigprocmask,
        arguments: [Some(block), None, None, Some(8), None, None],
    })
}

/// How many threads hold back what cannot be held back.
static BY_WORD: AtomicU32 = AtomicU32::new(0);

/// Whether a thread relies on it that our handler does nothing.
///
/// # Signal safety
/// A load.
#[inline]
pub fn are_held_back_by_word() -> bool {
    BY_WORD.load(Relaxed) != 0
}

/// Holds signals back from the calling thread while it lives. Where it is blocked already, it stays
/// so. Where a filter forbids that, our handler leaves its own alone meanwhile.
#[derive(Debug)]
pub struct HeldBack {
    signals: u64,
    by_word: bool,
}

impl HeldBack {
    /// What triggers raise, from now on.
    pub fn ours() -> Self {
        Self::these(bit(libc::SIGPROF) | bit(libc::SIGURG))
    }

    /// All signals but faults, from now on.
    pub fn all() -> Self {
        Self::these(ALL_BUT_FAULTS)
    }

    /// Whether that one, which is among them, was blocked before.
    pub fn found_blocked(&self, signal: i32) -> bool {
        !self.by_word && self.signals & bit(signal) == 0
    }

    fn these(signals: u64) -> Self {
        let by_word = filters::are_known() && !may_hold_back();
        if by_word {
            BY_WORD.fetch_add(1, SeqCst);
            return Self {
                signals: 0,
                by_word,
            };
        }
        Self {
            signals: signals & !signal_mask(libc::SIG_BLOCK, signals),
            by_word,
        }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        if self.by_word {
            BY_WORD.fetch_sub(1, SeqCst);
        } else if self.signals != 0 {
            signal_mask(libc::SIG_UNBLOCK, self.signals);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn seen(_: i32) {
        SEEN.fetch_add(1, SeqCst);
    }

    #[test]
    fn any_thread_sends_again_what_came_from_another_process() {
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGWINCH, seen as *const () as usize) };
        let from_kill = [libc::SIGWINCH as u64, libc::SI_USER as u64];
        let mut information = [0u64; 16];
        information[..2].copy_from_slice(&from_kill);
        let thread = std::thread::spawn(move || {
            send_again(libc::SIGWINCH, information.as_ptr().cast());
        });
        thread.join().unwrap();
        let limit = Instant::now() + Duration::from_secs(10);
        while SEEN.load(SeqCst) == 0 && Instant::now() < limit {
            std::thread::yield_now();
        }
        assert_eq!(SEEN.load(SeqCst), 1);
    }
}
