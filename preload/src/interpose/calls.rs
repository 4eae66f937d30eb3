//! Calls that the kernel never makes again after a handler, whatever its flags: ours sends the
//! thread back to them ([`rsunwind::restart`]). Here is noted what it needs to know of a call and
//! cannot see: by which number this libc makes it, and since when its time counts. Nothing is on
//! the stack while the call runs.
//!
//! Only threads whose perf event samples kernel mode need it; CPU timers and user-mode events never
//! interrupt a sleeping call.
//!
//! Not here: calls by number ([`super::syscalls`]), those that wait under a mask of their own or
//! for signals ([`super::masks`], [`super::waits`]).

use crate::stand_in;
use crate::stand_in::{Arguments, kept};
use core::ffi::{c_int, c_long};
use rsunwind::restart::{Calls, UNKNOWN};
use rsunwind::thread::ThreadState;
use rsunwind::{arch, weak_address};

/// Notes a call whose arguments libc hands on as they are.
#[inline]
pub fn note(calls: &Calls, number: c_long, a: &Arguments) {
    calls.note(a.sp(), number, [&a.first, &a.second, &a.third].map(kept));
}

/// The same of a call whose arguments are libc's own.
#[inline]
pub fn note_some(calls: &Calls, number: c_long, a: &Arguments) {
    calls.note(a.sp(), number, [UNKNOWN; 3]);
}

/// The same, if the thread's calls can be ended.
#[inline]
pub fn note_if_needed(number: c_long, a: &Arguments) {
    if let Some(calls) = ThreadState::calls_of_current() {
        note_some(calls, number, a);
    }
}

/// The same with a relative time in ms, if it has one.
#[inline]
pub fn note_timed(number: c_long, a: &Arguments, milliseconds: u64) {
    let Some(calls) = ThreadState::calls_of_current() else {
        return;
    };
    note(calls, number, a);
    if milliseconds as i32 > 0 {
        calls.note_time();
    }
}

/// The same with a pointer to a relative time, or null.
#[inline]
pub fn note_pointed(number: c_long, a: &Arguments, time: u64) {
    let Some(calls) = ThreadState::calls_of_current() else {
        return;
    };
    note(calls, number, a);
    if time != 0 {
        calls.note_time();
    }
}

/// By which number a libc makes a call: glibc's, or musl's.
#[inline]
fn by_libc(glibc: c_long, musl: c_long) -> c_long {
    match weak_address!("gnu_get_libc_version") {
        0 => musl,
        _ => glibc,
    }
}

fn sleeping() -> c_long {
    by_libc(libc::SYS_clock_nanosleep, libc::SYS_nanosleep)
}

stand_in! {
    fn poll = |a| { note_timed(libc::SYS_poll, a, a.third); };
    fn __poll_chk = |a| { note_timed(libc::SYS_poll, a, a.third); };
    fn epoll_wait = |a| {
        // The kernel's call with a finer time has a fifth argument.
        a.fifth = 0;
        note_timed(by_libc(libc::SYS_epoll_wait, libc::SYS_epoll_pwait), a, a.fourth);
    };
    fn select = |a| { note_if_needed(by_libc(libc::SYS_pselect6, libc::SYS_select), a); };
    fn nanosleep = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            note_some(calls, sleeping(), a);
            if a.second == 0 {
                a.second = calls.rest();
            }
        }
    };
    fn thrd_sleep = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            note_some(calls, sleeping(), a);
            if a.second == 0 {
                a.second = calls.rest();
            }
        }
    };
    fn clock_nanosleep = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            let is_plain = a.first as c_int == libc::CLOCK_REALTIME && a.second as c_int == 0;
            let number = if is_plain { sleeping() } else { libc::SYS_clock_nanosleep };
            note_some(calls, number, a);
            if a.fourth == 0 {
                a.fourth = calls.rest();
            }
        }
    };
    fn usleep = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            note_some(calls, sleeping(), a);
            calls.note_time();
        }
    };
    fn sleep = |a| { note_if_needed(sleeping(), a); };
    fn sem_timedwait = |a| { note_if_needed(libc::SYS_futex, a); };
    fn sem_clockwait = |a| { note_if_needed(libc::SYS_futex, a); };
    fn aio_suspend = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            note_some(calls, libc::SYS_futex, a);
            calls.note_time();
        }
    };
    fn semop = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            note(calls, by_libc(libc::SYS_semtimedop, libc::SYS_semop), a);
        }
    };
    fn semtimedop = |a| { note_pointed(libc::SYS_semtimedop, a, a.fourth); };
    fn msgsnd = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            note(calls, libc::SYS_msgsnd, a);
        }
    };
    fn msgrcv = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            note(calls, libc::SYS_msgrcv, a);
        }
    };
    fn io_getevents = |a| { note_pointed(libc::SYS_io_getevents, a, a.fifth); } else get_events;
    fn pause = |a| { note_if_needed(libc::SYS_pause, a); };
}

/// `io_getevents` of libaio, where only a library that we do not see has it: the call itself, with
/// its result.
unsafe extern "C" fn get_events(
    context: usize,
    least: c_long,
    most: c_long,
    events: usize,
    timeout: usize,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        arch::syscall6(
            libc::SYS_io_getevents,
            context,
            least as usize,
            most as usize,
            events,
            timeout,
            0,
        ) as c_int
    }
}
