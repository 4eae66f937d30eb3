//! What the kernel does with each system call that a signal ends, and what it takes to make the
//! call again.
//!
//! Sources: `signal(7)`, "Interruption of system calls and library functions by signal handlers";
//! the kernel's `ERESTARTSYS` (again if the handler says `SA_RESTART`), `ERESTARTNOHAND` and
//! `ERESTART_RESTARTBLOCK` (never with a handler), `ERESTARTNOINTR` (always).
//!
//! Not here: transfers that a signal cuts short.

/// How a call that a signal has ended is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// As it is: it has no time, or an absolute one, or the kernel has put what is left in the
    /// place that it reads.
    AsItIs,
    /// The kernel has written the time that is left where the first of these arguments points; the
    /// second one is to point there.
    Written { there: usize, read: usize },
    /// That argument is a time in ms from the start of the call on, and still what it was.
    Milliseconds(usize),
    /// That argument points to such a time, a `struct timespec`.
    Pointed(usize),
}

/// Missing from the crate.
const SYS_IO_PGETEVENTS: i64 = 333;

/// How that call is made again; `None` where it must not be.
pub(crate) fn again(number: i64, arguments: &[u64; 6]) -> Option<Again> {
    let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
    let pointed = |index: usize| match argument(index) {
        0 => Again::AsItIs,
        _ => Again::Pointed(index),
    };
    let milliseconds = |index: usize| match argument(index) as i32 {
        ..=0 => Again::AsItIs,
        _ => Again::Milliseconds(index),
    };
    let sleep = |time: usize, left: usize| match argument(left) {
        0 => Again::Pointed(time),
        _ => Again::Written {
            there: left,
            read: time,
        },
    };
    Some(match number {
        libc::SYS_select | libc::SYS_pselect6 | libc::SYS_ppoll => Again::AsItIs,
        libc::SYS_pause | libc::SYS_rt_sigsuspend => Again::AsItIs,
        libc::SYS_semop | libc::SYS_msgsnd | libc::SYS_msgrcv => Again::AsItIs,
        libc::SYS_poll => milliseconds(2),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => milliseconds(3),
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => pointed(3),
        libc::SYS_rt_sigtimedwait => pointed(2),
        libc::SYS_io_getevents | SYS_IO_PGETEVENTS => pointed(4),
        libc::SYS_nanosleep => sleep(0, 1),
        libc::SYS_clock_nanosleep if argument(1) & libc::TIMER_ABSTIME as u64 != 0 => Again::AsItIs,
        // The time of other clocks than these (of CPU time) is known where the kernel has written
        // it only.
        libc::SYS_clock_nanosleep => match (sleep(2, 3), argument(0) as i32) {
            (
                Again::Pointed(_),
                libc::CLOCK_REALTIME
                | libc::CLOCK_MONOTONIC
                | libc::CLOCK_BOOTTIME
                | libc::CLOCK_TAI,
            ) => Again::Pointed(2),
            (Again::Pointed(_), _) => return None,
            (written, _) => written,
        },
        libc::SYS_futex => match command(argument(1)) {
            libc::FUTEX_WAIT => pointed(3),
            libc::FUTEX_WAIT_BITSET => Again::AsItIs,
            _ => return None,
        },
        libc::SYS_io_uring_enter if !has_time(arguments) => Again::AsItIs,
        _ => return None,
    })
}

/// Whether a signal of the program's ends that call, if it comes while the kernel is about to make
/// it again. `restarts` is what the program's action says (`SA_RESTART`).
pub(crate) fn ends(number: i64, arguments: &[u64; 6], restarts: bool) -> bool {
    let [_, second, _, fourth, ..] = *arguments;
    match number {
        libc::SYS_futex if fourth == 0 => command(second) == libc::FUTEX_WAIT && !restarts,
        libc::SYS_fcntl => {
            [libc::F_SETLKW, libc::F_OFD_SETLKW].contains(&(second as i32)) && !restarts
        }
        _ if RESTARTED.contains(&number) => !restarts,
        _ => again(number, arguments).is_some(),
    }
}

/// Whether a call looks at each of many descriptors before it looks at the time.
pub(crate) fn looks_at_many(number: i64) -> bool {
    [
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_select,
        libc::SYS_pselect6,
    ]
    .contains(&number)
}

const fn command(operation: u64) -> i32 {
    operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

/// Of `io_uring_enter`: that it has arguments of more kinds, a time among them.
pub(super) const EXTENDED: u64 = 8;

/// Whether `io_uring_enter` has a time limit.
pub(super) const fn has_time(arguments: &[u64; 6]) -> bool {
    let [_, _, _, flags, ..] = *arguments;
    flags & EXTENDED != 0
}

/// System calls that the kernel makes again where the handler says `SA_RESTART`, and that end
/// otherwise.
const RESTARTED: [i64; 35] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_ioctl,
    libc::SYS_flock,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_getrandom,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_futex_waitv,
    libc::SYS_openat2,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_where_each_call_has_them() {
        let cases = [
            (libc::SYS_pause, [0; 6], Some(Again::AsItIs)),
            (
                libc::SYS_poll,
                [9, 1, 50, 0, 0, 0],
                Some(Again::Milliseconds(2)),
            ),
            (
                libc::SYS_poll,
                [9, 1, u64::from(u32::MAX), 0, 0, 0],
                Some(Again::AsItIs),
            ),
            (
                libc::SYS_epoll_wait,
                [9, 1, 50, 7, 0, 0],
                Some(Again::Milliseconds(3)),
            ),
            (
                libc::SYS_epoll_pwait2,
                [9, 1, 50, 0, 0, 0],
                Some(Again::AsItIs),
            ),
            (
                libc::SYS_nanosleep,
                [9, 0, 0, 0, 0, 0],
                Some(Again::Pointed(0)),
            ),
            (
                libc::SYS_nanosleep,
                [9, 8, 0, 0, 0, 0],
                Some(Again::Written { there: 1, read: 0 }),
            ),
            (
                libc::SYS_clock_nanosleep,
                [1, 1, 9, 0, 0, 0],
                Some(Again::AsItIs),
            ),
            (
                libc::SYS_clock_nanosleep,
                [1, 0, 9, 0, 0, 0],
                Some(Again::Pointed(2)),
            ),
            // CLOCK_PROCESS_CPUTIME_ID
            (libc::SYS_clock_nanosleep, [2, 0, 9, 0, 0, 0], None),
            (
                libc::SYS_clock_nanosleep,
                [2, 0, 9, 8, 0, 0],
                Some(Again::Written { there: 3, read: 2 }),
            ),
            (
                libc::SYS_futex,
                [9, 128, 0, 8, 0, 0],
                Some(Again::Pointed(3)),
            ),
            (
                libc::SYS_futex,
                [9, 128 | 256 | 9, 0, 8, 0, 0],
                Some(Again::AsItIs),
            ),
            (libc::SYS_futex, [9, 129, 1, 0, 0, 0], None),
            (libc::SYS_close, [3, 0, 0, 0, 0, 0], None),
            (libc::SYS_wait4, [3, 0, 0, 0, 0, 0], None),
        ];
        for (number, arguments, expected) in cases {
            assert_eq!(
                again(number, &arguments),
                expected,
                "{number} {arguments:?}"
            );
        }
    }

    #[test]
    fn a_signal_of_the_programs_ends_what_it_would_end() {
        let wait = [9, 128, 0, 0, 0, 0];
        let timed = [9, 128, 0, 8, 0, 0];
        let wake = [9, 129, 1, 0, 0, 0];
        let lock = [9, 128 | 6, 0, 8, 0, 0];
        let set = [3, libc::F_SETLK as u64, 9, 0, 0, 0];
        let wait_to_set = [3, libc::F_SETLKW as u64, 9, 0, 0, 0];
        for (number, arguments, without, with) in [
            (libc::SYS_read, [0; 6], true, false),
            (libc::SYS_poll, [0; 6], true, true),
            (libc::SYS_futex, wait, true, false),
            (libc::SYS_futex, timed, true, true),
            (libc::SYS_futex, wake, false, false),
            (libc::SYS_futex, lock, false, false),
            (libc::SYS_fcntl, set, false, false),
            (libc::SYS_fcntl, wait_to_set, true, false),
            (libc::SYS_clone, [0; 6], false, false),
        ] {
            let found = [false, true].map(|restarts| ends(number, &arguments, restarts));
            assert_eq!(found, [without, with], "{number} {arguments:?}");
        }
    }
}
