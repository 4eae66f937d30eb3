//! `syscall(2)`: calls by number that would show the program our signal are shielded as their functions are, a program is replaced as by
//! `execve`, and a mask that has our signal is set as by `sigprocmask`. All others go straight to the host's function.
//!
//! Not here: system calls that a program makes without libc, which nobody can stand in front of.

use super::frame::call;
use super::shield::Shield;
use super::strict;
use super::{exec, masks};
use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rsunwind::arch;

mod host {
    use super::c_long;
    crate::next! {
        fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long = -1;
    }
}

/// The host's function, once it has been looked up.
static HOST: AtomicUsize = AtomicUsize::new(0);

/// Numbers of calls that are looked at, a bit each.
static LOOKED_AT: [u64; 8] = {
    let mut map = [0; 8];
    let mut index = 0;
    while index < CALLS.len() {
        let number = CALLS[index] as usize;
        map[number / 64] |= 1 << (number % 64);
        index += 1;
    }
    map
};

const CALLS: [c_long; 26] = [
    libc::SYS_rt_sigprocmask,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_pause,
    libc::SYS_futex,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_getrandom,
    libc::SYS_futex_waitv,
    libc::SYS_prctl,
    libc::SYS_seccomp,
];

/// `syscall(2)`. A variadic function cannot be written in Rust; its arguments lie where those of a function of seven do.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "cmp rdi, 512",
        "jae 2f",
        "lea rax, [rip + {looked_at}]",
        "bt qword ptr [rax], rdi",
        "jc {attended}",
        "2:",
        "mov rax, qword ptr [rip + {host}]",
        "test rax, rax",
        "jz {first}",
        "jmp rax",
        ".cfi_endproc",
        looked_at = sym LOOKED_AT,
        attended = sym attended,
        host = sym HOST,
        first = sym first,
    )
}

/// Finds the host's function: `librsunwind` knows the place where a signal that was blocked by number comes in by it.
pub fn find() {
    let address = host::next::syscall.address().unwrap_or(0);
    HOST.store(address, Relaxed);
    rsunwind::set_syscall(address);
}

/// Before that.
unsafe extern "C" fn first(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    find();
    // SAFETY: the caller's arguments.
    unsafe { host::syscall(number, a, b, c, d, e, f) }
}

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
            libc::SYS_execve => return exec::by_path(a as _, b as _, c as _).into(),
            libc::SYS_execveat => {
                return exec::by_place(a as c_int, b as _, c as _, d as _, e as c_int).into();
            }
            libc::SYS_rt_sigprocmask => {
                let ask = |how: c_int, set: *const u64, old: *mut u64| {
                    host::syscall(number, how as usize, set as usize, old as usize, d, e, f)
                        as c_int
                };
                return masks::by_number(ask, a as c_int, b as *const u64, c as *mut u64, d).into();
            }
            libc::SYS_prctl if strict::is_asked_for(a as c_int, b) => strict::enter(),
            libc::SYS_seccomp if a == libc::SECCOMP_SET_MODE_STRICT as usize => strict::enter(),
            _ => {}
        }
        let sp = arch::stack_pointer();
        let _shield = Shield::raise_if(may_be_ended(number, b, d, e), &host::next::syscall, sp);
        call!(host::syscall(number, a, b, c, d, e, f))
    }
}

/// Whether a handler would end a call that the kernel does not restart, and the shield helps: a call that brings a mask of its own replaces
/// the one that holds our signal back.
fn may_be_ended(number: c_long, b: usize, d: usize, e: usize) -> bool {
    const ONLY_WAITS: [c_int; 3] = [
        libc::FUTEX_WAIT,
        libc::FUTEX_WAIT_BITSET,
        libc::FUTEX_WAIT_REQUEUE_PI,
    ];
    const COMMAND: c_int = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    match number {
        libc::SYS_epoll_wait => d as c_int != 0,
        libc::SYS_ppoll => d == 0,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => e == 0,
        libc::SYS_pselect6 | libc::SYS_prctl | libc::SYS_seccomp => false,
        libc::SYS_futex => d != 0 && ONLY_WAITS.contains(&(b as c_int & COMMAND)),
        libc::SYS_getrandom => b > super::shield::SHORT_RANDOM,
        _ => true,
    }
}
