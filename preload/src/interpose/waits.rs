//! Waiting for signals: our own is taken out of the sets, or it would be taken from the handler. A
//! program that waits for that very signal still gets its own.

use super::calls;
use super::masks::without_ours;
use super::sets::mask_word;
use crate::stand_in;
use core::ffi::{c_int, c_void};
use core::ptr;
use rsunwind::life::follow;
use rsunwind::process::PROCESS;
use rsunwind::signal;
use rsunwind::signal_info::{self, SignalInfo};
use rsunwind::sys::HeldBack;
use rsunwind::thread::ThreadState;
use rsunwind::{clock, program_signal, sys};

type Set = *const libc::sigset_t;

mod real {
    use super::{Set, c_int, c_void};
    crate::next! {
        fn sigwaitinfo(set: Set, info: *mut c_void) -> c_int = -1;
        fn sigtimedwait(set: Set, info: *mut c_void, timeout: *const c_void) -> c_int = -1;
    }
}

/// Whether the calling thread is to wait for the program's own signals of our number: it waits for
/// them, and believes them blocked.
///
/// # Safety
/// Null, or a set of signals.
unsafe fn is_for_own(set: u64) -> bool {
    // SAFETY: the caller's promise.
    let mask = unsafe { (set as Set).as_ref() }.map_or(0, mask_word);
    mask & signal::BOTH != 0
        && PROCESS.is_active()
        && ThreadState::current().is_some_and(|this| {
            follow::follow(this);
            this.belief.is_blocked() && mask & sys::bit(this.signal()) != 0
        })
}

// SAFETY: (of all) the caller's set.
stand_in! {
    fn sigtimedwait = |a| {
        if unsafe { is_for_own(a.first) } {
            return wait_for_own as *const () as usize;
        }
        a.first = unsafe { without_ours(a.first) };
        calls::note_pointed(libc::SYS_rt_sigtimedwait, a, a.third);
    };
    fn sigwaitinfo = |a| {
        if unsafe { is_for_own(a.first) } {
            a.third = 0;
            return wait_for_own as *const () as usize;
        }
        a.first = unsafe { without_ours(a.first) };
        calls::note_if_needed(libc::SYS_rt_sigtimedwait, a);
    };
    fn sigwait = |a| {
        if unsafe { is_for_own(a.first) } {
            return wait_for_own_long as *const () as usize;
        }
        a.first = unsafe { without_ours(a.first) };
        calls::note_if_needed(libc::SYS_rt_sigtimedwait, a);
    };
}

/// Waits for signals of which ours is one: blocked for real meanwhile, so that either kind is seen
/// here.
///
/// # Safety
/// As `sigtimedwait`.
unsafe extern "C" fn wait_for_own(
    set: Set,
    info: *mut c_void,
    timeout: *const libc::timespec,
) -> c_int {
    let Some(this) = ThreadState::current_unchecked() else {
        return -1;
    };
    // SAFETY: all zeros is a siginfo.
    let mut own: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let info = if info.is_null() {
        (&raw mut own).cast()
    } else {
        info
    };
    // SAFETY: null or the caller's time.
    let limit = unsafe { timeout.as_ref() }.map(|time| {
        (time.tv_sec as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add(time.tv_nsec as u64)
    });
    let began = clock::monotonic_ns();
    let _held = HeldBack::ours();
    // Again and again: the kernel drops it while one of ours is pending.
    let owed = this.belief.take_owed();
    program_signal::set_waiting(true);
    let result = loop {
        if owed {
            sys::send_to_thread(sys::gettid(), this.signal());
        }
        let left = limit
            .map(|limit| limit.saturating_sub(clock::monotonic_ns().saturating_sub(began)))
            .map(|left| libc::timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as i64,
            });
        // SAFETY: the caller's arguments, or our own.
        let result: c_int = unsafe {
            match &left {
                Some(left) => {
                    let left = ptr::from_ref(left).cast::<c_void>();
                    real::sigtimedwait(set, info, left)
                }
                None => real::sigwaitinfo(set, info),
            }
        };
        // SAFETY: filled by the call; both describe the kernel's structure.
        if result != this.signal()
            || !signal_info::is_ours(unsafe { &*info.cast::<SignalInfo>() }, this)
        {
            break result;
        }
    };
    program_signal::set_waiting(false);
    result
}

/// The same as `sigwait(3)` does it, which says what is wrong by its result.
///
/// # Safety
/// As `sigwait`.
unsafe extern "C" fn wait_for_own_long(set: Set, signal: *mut c_int) -> c_int {
    loop {
        // SAFETY: the caller's set.
        let result = unsafe { wait_for_own(set, ptr::null_mut(), ptr::null()) };
        match (result, rsunwind::errno::get()) {
            (-1, libc::EINTR) => {}
            (-1, errno) => return errno,
            _ => {
                // SAFETY: the caller's place.
                unsafe { *signal = result };
                return 0;
            }
        }
    }
}
