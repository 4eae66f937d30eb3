//! Waiting for children: whoever waits is told by the kernel what the child was charged until its
//! very end, its address space torn down.
//!
//! The program's one call stays one call. Were the child looked at first and taken by a second
//! call, the program's handler of `SIGCHLD`, which comes between, could take it.
//!
//! glibc's functions that do not ask for the charge make the same system call as the one that does,
//! so it is asked for in their place. `waitid` of every libc, musl's `wait` and `waitpid`, which
//! are points of cancellation where its `wait4` is none, and what libc waits for itself (`system`,
//! `pclose`), do not tell: there it is what the sum of all children is more afterwards.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use rsunwind::life::charge::{self, Wait};
use rsunwind::process::PROCESS;
use rsunwind::{sys, weak_address};

type Usage = *mut libc::rusage;
type Status = *mut c_int;
type Info = *mut libc::siginfo_t;

mod real {
    use super::{Info, Status, Usage, c_char, c_int, c_void};
    crate::next! {
        fn wait(status: Status) -> c_int = -1;
        fn waitpid(pid: c_int, status: Status, options: c_int) -> c_int = -1;
        fn wait3(status: Status, options: c_int, usage: Usage) -> c_int = -1;
        fn wait4(pid: c_int, status: Status, options: c_int, usage: Usage) -> c_int = -1;
        fn waitid(kind: c_int, id: u32, info: Info, options: c_int) -> c_int = -1;
        fn system(command: *const c_char) -> c_int = -1;
        fn pclose(stream: *mut c_void) -> c_int = -1;
    }
}

/// Any child, for `wait4`.
const ANY: c_int = -1;

/// Whether `wait4` of this libc is what the others are but for what it tells: musl's is no point of
/// cancellation.
fn is_glibc() -> bool {
    weak_address!("gnu_get_libc_version") != 0
}

const fn is_end(status: c_int) -> bool {
    libc::WIFEXITED(status) || libc::WIFSIGNALED(status)
}

/// Waits by `wait4` and records the end of a child.
///
/// # Safety
/// As `wait4(2)`.
unsafe fn told(pid: c_int, status: Status, options: c_int, usage: Usage) -> c_int {
    // SAFETY: all zeros is a usage.
    let mut own_usage: libc::rusage = unsafe { core::mem::zeroed() };
    let mut own_status = 0;
    let status = if status.is_null() {
        &raw mut own_status
    } else {
        status
    };
    let usage = if usage.is_null() {
        &raw mut own_usage
    } else {
        usage
    };
    // SAFETY: the caller's arguments or our own.
    let taken = unsafe { real::wait4(pid, status, options, usage) };
    if taken > 0 {
        // SAFETY: written by the call.
        let (status, usage) = unsafe { (*status, &*usage) };
        if is_end(status) {
            charge::child_ended(taken as u32, status as u32, sys::charged_ns(usage));
        }
    }
    taken
}

/// `wait(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wait(status: Status) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { waitpid_or(ANY, status, 0, |status| real::wait(status)) }
}

/// `waitpid(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn waitpid(pid: c_int, status: Status, options: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        waitpid_or(pid, status, options, |status| {
            real::waitpid(pid, status, options)
        })
    }
}

/// `waitpid`; `real` is the program's function.
///
/// # Safety
/// As `waitpid(2)`.
unsafe fn waitpid_or(
    pid: c_int,
    status: Status,
    options: c_int,
    real: impl FnOnce(Status) -> c_int,
) -> c_int {
    if PROCESS.was_started() && is_glibc() {
        // SAFETY: the caller's arguments.
        return unsafe { told(pid, status, options, ptr::null_mut()) };
    }
    let Some(wait) = Wait::begin() else {
        return real(status);
    };
    let mut own = 0;
    let status = if status.is_null() {
        &raw mut own
    } else {
        status
    };
    let taken = real(status);
    if taken > 0 {
        // SAFETY: written by the call.
        let status = unsafe { *status };
        if is_end(status) {
            wait.end_of(taken as u32, status as u32);
        }
    }
    taken
}

/// `wait3(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wait3(status: Status, options: c_int, usage: Usage) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match PROCESS.was_started() {
            true => told(ANY, status, options, usage),
            false => real::wait3(status, options, usage),
        }
    }
}

/// `wait4(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wait4(pid: c_int, status: Status, options: c_int, usage: Usage) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match PROCESS.was_started() {
            true => told(pid, status, options, usage),
            false => real::wait4(pid, status, options, usage),
        }
    }
}

/// `waitid(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn waitid(kind: c_int, id: u32, info: Info, options: c_int) -> c_int {
    // What is left there can be taken again, and who wants no end is told none.
    let takes = options & libc::WNOWAIT == 0 && options & libc::WEXITED != 0;
    let Some(wait) = Wait::begin().filter(|_| takes) else {
        // SAFETY: the caller's arguments.
        return unsafe { real::waitid(kind, id, info, options) };
    };
    // SAFETY: all zeros is an information.
    let mut own: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let info = if info.is_null() { &raw mut own } else { info };
    // SAFETY: the caller's arguments, or our place.
    let result = unsafe { real::waitid(kind, id, info, options) };
    if result == 0 {
        // SAFETY: written by the call.
        let (pid, code, status) =
            unsafe { ((*info).si_pid(), (*info).si_code, (*info).si_status()) };
        let status = match code {
            libc::CLD_EXITED => (status & 0xff) << 8,
            libc::CLD_KILLED => status & 0x7f,
            libc::CLD_DUMPED => status & 0x7f | 0x80,
            _ => return result, // there is none, or it goes on
        };
        wait.end_of(pid as u32, status as u32);
    }
    result
}

/// `system(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let wait = Wait::begin();
    // SAFETY: the caller's argument.
    let result = unsafe { real::system(command) };
    if let Some(wait) = wait {
        wait.end(true);
    }
    result
}

/// `pclose(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pclose(stream: *mut c_void) -> c_int {
    let wait = Wait::begin();
    // SAFETY: the caller's argument.
    let result = unsafe { real::pclose(stream) };
    if let Some(wait) = wait {
        wait.end(false);
    }
    result
}
