//! System calls by number, so that nothing of the host's libc runs in the handler and errno stays untouched.
//!
//! Results are `Ok(value)` or `Err(Errno)`. Signal safety: every function here is a system call or two on the caller's memory.
//!
//! # Safety
//! Pointers handed to the kernel come from references or from addresses that the kernel itself gave.
#![allow(unsafe_code)]

mod files;
mod memory;
mod signals;
mod sockets;

pub use files::*;
pub use memory::*;
pub use signals::*;
pub use sockets::*;

use crate::arch::syscall6;

/// An error number, as in `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

pub(crate) fn result(raw: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&raw) {
        Err(Errno(raw.wrapping_neg() as i32))
    } else {
        Ok(raw as usize)
    }
}

macro_rules! call {
    ($number:expr $(, $argument:expr)*) => {
        $crate::sys::result($crate::sys::raw($number, &[$($argument as usize),*]))
    };
}
pub(crate) use call;

/// # Safety
/// As the system call.
pub(crate) unsafe fn raw(number: i64, arguments: &[usize]) -> isize {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { syscall6(number, at(0), at(1), at(2), at(3), at(4), at(5)) }
}

/// The thread's id in its own PID namespace.
pub fn gettid() -> u32 {
    // SAFETY: no memory involved.
    unsafe { raw(libc::SYS_gettid, &[]) as u32 }
}

/// The process's id in its own PID namespace.
pub fn getpid() -> u32 {
    // SAFETY: no memory involved.
    unsafe { raw(libc::SYS_getpid, &[]) as u32 }
}

/// Whether the process has root's rights, as far as its user id says.
pub fn is_root() -> bool {
    // SAFETY: no memory involved.
    unsafe { raw(libc::SYS_geteuid, &[]) == 0 }
}

/// The parent's process id.
pub fn getppid() -> u32 {
    // SAFETY: no memory involved.
    unsafe { raw(libc::SYS_getppid, &[]) as u32 }
}

/// Whether a process of that id can be seen.
pub fn process_exists(pid: u32) -> bool {
    // SAFETY: signal 0 only checks.
    let answer = unsafe { call!(libc::SYS_kill, pid, 0) };
    answer != Err(Errno(libc::ESRCH))
}

/// CPU time of a thread of this process, ns.
///
/// # Errors
/// `EINVAL` if it has ended.
pub fn thread_cpu_ns(tid: u32) -> Result<u64, Errno> {
    // The kernel's encoding of "CPU clock of that thread": inverted id, per-thread bit, scheduler clock.
    let clock = (!(tid as i32) << 3) | 6;
    clock_ns(clock)
}

/// Any clock, ns.
///
/// # Errors
/// `EINVAL` if there is no such clock.
pub fn clock_ns(clock: i32) -> Result<u64, Errno> {
    let mut time = [0i64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { call!(libc::SYS_clock_gettime, clock, time.as_mut_ptr()) }?;
    let [seconds, nanoseconds] = time;
    Ok((seconds as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(nanoseconds as u64))
}

/// Mode 2 means that a seccomp filter judges the process's system calls, perhaps by killing it.
pub fn seccomp_filtered() -> bool {
    // SAFETY: no memory involved.
    let mode = unsafe { call!(libc::SYS_prctl, libc::PR_GET_SECCOMP) };
    mode.is_ok_and(|mode| mode != 0)
}

/// The calling thread's name, padded with zero bytes.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    let _ = unsafe { call!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// A resource limit: soft value.
pub fn soft_limit(resource: u32) -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the kernel writes two words.
    let _ = unsafe { call!(libc::SYS_prlimit64, 0, resource, 0, limit.as_mut_ptr()) };
    let [soft, _] = limit;
    soft
}

/// Lets other threads run.
pub fn yield_now() {
    // SAFETY: no memory involved.
    let _ = unsafe { call!(libc::SYS_sched_yield) };
}

/// Sleeps, or until a signal comes.
pub fn pause(nanoseconds: u64) {
    let time = [0u64, nanoseconds];
    // SAFETY: the kernel reads a timespec.
    let _ = unsafe { call!(libc::SYS_nanosleep, time.as_ptr(), 0) };
}

/// Ends the process.
pub fn exit_process(status: i32) -> ! {
    loop {
        // SAFETY: does not come back.
        let _ = unsafe { call!(libc::SYS_exit_group, status) };
    }
}

/// `execve`, for a host whose own cannot be found; sets no errno.
///
/// # Safety
/// As `execve(2)`.
pub unsafe fn execve(
    path: *const u8,
    arguments: *const *const u8,
    environment: *const *const u8,
) -> i32 {
    // SAFETY: the caller's promise.
    let _ = unsafe { call!(libc::SYS_execve, path, arguments, environment) };
    -1
}
