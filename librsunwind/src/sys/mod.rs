//! System calls by number, so that nothing of the program's libc runs in the handler and errno
//! stays untouched.
//!
//! Results are `Ok(value)` or `Err(Errno)`. Signal safety: every function here is a system call or
//! two on the caller's memory.
//!
//! # Safety
//! Pointers handed to the kernel come from references or from addresses that the kernel itself
//! gave.
#![allow(unsafe_code)]

mod files;
pub mod filters;
#[cfg(feature = "inside")]
mod mapped;
mod memory;
mod pointers;
mod signals;
mod sockets;

pub use files::*;
#[cfg(feature = "inside")]
pub use mapped::unmap_all;
pub use memory::*;
pub use pointers::Pointers;
pub use signals::*;
pub use sockets::*;

use crate::arch::syscall6;
use crate::text::Text;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use engine::seccomp::SystemCall;

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

/// Makes a system call, unless a filter that the program has put on would have a word to say: then
/// it is refused here.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn raw(number: i64, arguments: &[usize]) -> isize {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    let call = [at(0), at(1), at(2), at(3), at(4), at(5)];
    if filters::are_known() {
        let asked = SystemCall::with(number, &call.map(|argument| argument as u64));
        if let Some(error) = filters::refusal(&asked) {
            return (error as isize).wrapping_neg();
        }
    }
    let [a, b, c, d, e, f] = call;
    // SAFETY: the caller's promise.
    unsafe { syscall6(number, a, b, c, d, e, f) }
}

/// Whether the thread's id may be asked for.
pub fn knows_tid() -> bool {
    filters::may_make(&SystemCall::with(libc::SYS_gettid, &[0; 6]))
}

/// The thread's id in its own PID namespace; no thread's where it may not be asked for.
pub fn gettid() -> u32 {
    // SAFETY: no memory involved.
    unsafe { raw(libc::SYS_gettid, &[]) as u32 }
}

/// The process's id in its own PID namespace.
pub fn getpid() -> u32 {
    // SAFETY: no memory involved.
    match unsafe { raw(libc::SYS_getpid, &[]) } {
        refused if refused < 0 => filters::remembered_process(),
        pid => pid as u32,
    }
}

/// The real user.
pub fn real_user() -> u32 {
    // SAFETY: no memory involved.
    unsafe { raw(libc::SYS_getuid, &[]) as u32 }
}

/// The effective user.
pub fn effective_user() -> u32 {
    // SAFETY: no memory involved.
    unsafe { raw(libc::SYS_geteuid, &[]) as u32 }
}

/// Whether the process has root's rights, as far as its user id says.
pub fn is_root() -> bool {
    effective_user() == 0
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

/// Whether this process has that thread.
pub fn thread_exists(tid: u32) -> bool {
    // SAFETY: signal 0 only checks.
    let answer = unsafe { call!(libc::SYS_tgkill, getpid(), tid, 0) };
    answer != Err(Errno(libc::ESRCH))
}

/// CPU time of a thread of this process, ns.
///
/// # Errors
/// `EINVAL` if it has ended.
pub fn thread_cpu_ns(tid: u32) -> Result<u64, Errno> {
    // The kernel's encoding of "CPU clock of that thread": inverted id, per-thread bit, scheduler
    // clock.
    let clock = (!(tid as i32) << 3) | 6;
    clock_ns(clock)
}

/// CPU time of this process, of all its threads that there ever were, ns.
pub fn process_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).ok()
}

/// How often the calling thread has left the processor, or was made to; `None` where a filter
/// forbids to ask.
///
/// # Signal safety
/// A system call.
pub fn context_switches() -> Option<u64> {
    let mut usage = [0u64; 18];
    // SAFETY: the kernel writes a structure of 18 words.
    unsafe { call!(libc::SYS_getrusage, libc::RUSAGE_THREAD, usage.as_mut_ptr()) }.ok()?;
    let [.., voluntary, forced] = usage;
    Some(voluntary.saturating_add(forced))
}

/// What the kernel charged the children of this process that were waited for, and theirs, ns.
pub fn children_cpu_ns() -> Option<u64> {
    // Two times of two words each are what is of interest of the eighteen.
    let mut usage = [0i64; 18];
    let children = libc::RUSAGE_CHILDREN;
    // SAFETY: the kernel writes a structure of 18 words.
    unsafe { call!(libc::SYS_getrusage, children, usage.as_mut_ptr()) }.ok()?;
    let [user_s, user_us, system_s, system_us, ..] = usage;
    Some(times_ns([user_s, user_us], [system_s, system_us]))
}

/// User and system time, ns.
#[must_use]
pub fn charged_ns(usage: &libc::rusage) -> u64 {
    let [user, system] = [usage.ru_utime, usage.ru_stime].map(|time| [time.tv_sec, time.tv_usec]);
    times_ns(user, system)
}

/// The sum of two times in seconds and microseconds, as resource usage has them, in ns.
pub fn times_ns(user: [i64; 2], system: [i64; 2]) -> u64 {
    let [seconds, microseconds] = [0, 1].map(|index: usize| {
        let part = |time: [i64; 2]| time.get(index).copied().unwrap_or(0) as u64;
        part(user).saturating_add(part(system))
    });
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(microseconds.saturating_mul(1000))
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

/// How far the kernel's ticks are apart, ns: as far as its coarse clocks go by. 0 if it is unknown.
///
/// # Signal safety
/// A system call, the first time.
pub fn tick_ns() -> u64 {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let known = KNOWN.load(Relaxed);
    if known != 0 {
        return known;
    }
    let (clock, mut time) = (libc::CLOCK_MONOTONIC_COARSE, [0u64; 2]);
    // SAFETY: the kernel writes two words.
    let said = unsafe { call!(libc::SYS_clock_getres, clock, time.as_mut_ptr()) };
    let [_, nanoseconds] = time;
    let tick_ns = said.map_or(0, |_| nanoseconds);
    KNOWN.store(tick_ns, Relaxed);
    tick_ns
}

/// Mode 2 means that a seccomp filter judges the process's system calls, perhaps by killing it.
pub fn seccomp_filtered() -> bool {
    if filters::are_known() {
        return true;
    }
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

/// The name of another thread of this process; empty where `/proc` is hidden.
pub fn name_of_thread(tid: u32, buffer: &mut [u8; 16]) -> &[u8] {
    let path = Text::<48>::new().then(b"/proc/self/task/");
    let mut path = path.decimal(u64::from(tid)).then(b"/comm");
    let name = read_file(path.path(), buffer);
    name.strip_suffix(b"\n").unwrap_or(name)
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
        // What a filter has to say is said to the program.
        // SAFETY: does not come back.
        let _ = unsafe { syscall6(libc::SYS_exit_group, status as usize, 0, 0, 0, 0, 0) };
    }
}

/// `execve`, for a program whose own cannot be found; sets no errno.
///
/// # Safety
/// As `execve(2)`.
pub unsafe fn execve(
    path: *const u8,
    arguments: *const *const u8,
    environment: *const *const u8,
) -> i32 {
    // SAFETY: the caller's promise.
    let _ = unsafe {
        syscall6(
            libc::SYS_execve,
            path as usize,
            arguments as usize,
            environment as usize,
            0,
            0,
            0,
        )
    };
    -1
}
