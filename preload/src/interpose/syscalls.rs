//! `syscall(2)`: what our handler must know of calls by number is noted as for their functions, a
//! program is replaced as by `execve`, and a mask that has our signal is set as by `sigprocmask`.
//! All others go straight to the program's function.
//!
//! Not here: system calls that a program makes without libc, which nobody can stand in front of.

use super::strict;
use super::{alternate_stack, exec, masks};
use crate::stand_in;
use crate::stand_in::kept;
use core::ffi::{c_int, c_long};
use rsunwind::restart;
use rsunwind::thread::ThreadState;

mod real {
    use super::c_long;
    crate::next! {
        fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long = -1;
    }
}

/// Finds the program's function: `librsunwind` knows the place where a signal that was blocked by
/// number comes in by it.
pub fn find() {
    rsunwind::set_syscall(real::next::syscall.address().unwrap_or(0));
}

unsafe extern "C" fn by_number(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        real::syscall(
            libc::SYS_sigaltstack,
            new as usize,
            old as usize,
            0,
            0,
            0,
            0,
        ) as c_int
    }
}

/// What stands for a call that is not made as it is.
///
/// # Safety
/// As the system call.
unsafe extern "C" fn attended(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's arguments, as those system calls take them.
    unsafe {
        match number {
            libc::SYS_execve => exec::by_path(a as _, b as _, c as _).into(),
            libc::SYS_execveat => {
                exec::by_place(a as c_int, b as _, c as _, d as _, e as c_int).into()
            }
            libc::SYS_signalfd | libc::SYS_signalfd4 => {
                let result = real::syscall(number, a, b, c, d, e, f);
                if result >= 0 {
                    // The kernel has just read it.
                    masks::leave_to_file(b as *const u64);
                }
                result
            }
            libc::SYS_sigaltstack => alternate_stack::asked(a as _, b as _, by_number).into(),
            _ => {
                let ask = |how: c_int, set: *const u64, old: *mut u64| {
                    real::syscall(number, how as usize, set as usize, old as usize, d, e, f)
                        as c_int
                };
                masks::by_number(ask, a as c_int, b as *const u64, c as *mut u64, d).into()
            }
        }
    }
}

stand_in! {
    fn syscall = |a| {
        let number = a.first as c_long;
        let is_timed = match number {
            libc::SYS_execve
            | libc::SYS_execveat
            | libc::SYS_rt_sigprocmask
            | libc::SYS_sigaltstack
            | libc::SYS_signalfd
            | libc::SYS_signalfd4 => {
                return attended as *const () as usize;
            }
            libc::SYS_prctl => {
                strict::look_at(a.second as c_int, a.third, a.fourth);
                false
            }
            libc::SYS_seccomp => {
                strict::look_at_operation(a.second, a.third, a.fourth);
                false
            }
            // Zero where a call with a finer time has another argument.
            libc::SYS_poll => {
                a.fifth = 0;
                a.fourth as c_int > 0
            }
            libc::SYS_epoll_wait => {
                a.sixth = 0;
                a.fifth as c_int > 0
            }
            libc::SYS_epoll_pwait => a.fifth as c_int > 0,
            libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => a.fifth != 0,
            libc::SYS_rt_sigtimedwait => a.fourth != 0,
            libc::SYS_io_getevents => a.sixth != 0,
            libc::SYS_nanosleep => a.third == 0,
            libc::SYS_clock_nanosleep => {
                a.third as c_int & libc::TIMER_ABSTIME == 0 && a.fifth == 0
            }
            libc::SYS_futex => a.fifth != 0 && a.third as c_int & COMMAND == libc::FUTEX_WAIT,
            _ => restart::is_limited(a.second),
        };
        if let Some(calls) = ThreadState::calls_of_current() {
            // libc's function hands all of its arguments but the first on.
            calls.note(a.sp(), number, [&a.second, &a.third, &a.fourth].map(kept));
            if is_timed {
                calls.note_time();
            }
        }
    };
}

/// The part of a futex's operation that says what it is.
const COMMAND: c_int = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
