//! Transfers, which a signal of ours can cut short, and calls on sockets, which it ends where the
//! socket has a time limit: both go on by themselves ([`rsunwind::restart`]). Here is noted by
//! which number a libc makes them, and since when the time of a socket counts that is known to have
//! a limit.

use super::calls::note;
use crate::next::Next;
use crate::stand_in;
use crate::stand_in::{Arguments, absent};
use core::ffi::{c_int, c_long};
use rsunwind::restart::{Calls, LIMITED, LIMITED_COUNT, is_limited, limit_noted};
use rsunwind::thread::ThreadState;

/// Notes a call on a descriptor, with its time where that has a limit.
fn transfers(number: c_long, a: &Arguments) {
    let Some(calls) = ThreadState::calls_of_current() else {
        return;
    };
    note(calls, number, a);
    if is_limited(a.first) {
        calls.note_time();
    }
}

/// Declares functions that note a call on a descriptor and jump to the program's of the same name:
/// by themselves, in a few instructions, where it has no limit. These are the calls that programs
/// make most, and nothing of what stands in front of them overlaps with the kernel's work.
macro_rules! transfers {
    ($(fn $name:ident = $number:expr;)*) => {
        $(
            const _: () = {
                // SAFETY: one zero byte, at the end.
                static REAL: Next = Next::new(unsafe {
                    core::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes())
                });

                extern "C" fn before(a: &mut Arguments) -> usize {
                    transfers($number, a);
                    REAL.address().unwrap_or(absent as *const () as usize)
                }

                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C" fn $name() {
                    core::arch::naked_asm!(
                        ".cfi_startproc",
                        "endbr64",
                        "mov r11, qword ptr [rip + rsunwind_thread_word@gottpoff]",
                        "mov r11, qword ptr fs:[r11]",
                        "test r11, r11",
                        "jz 3f",
                        "cmp byte ptr [r11 + {calls} + {are_ended}], 0",
                        "je 3f",
                        "cmp edi, {count}", // an int: what is above it may be anything
                        "jae 2f",
                        "lea r10, [rip + {limited}]",
                        "mov eax, edi",
                        "shr eax, 6",
                        "mov rax, qword ptr [r10 + 8 * rax]",
                        "bt rax, rdi",
                        "jc 4f",
                        "2:", // as `Calls::note`
                        "mov qword ptr [r11 + {calls} + {sp}], 0",
                        "mov qword ptr [r11 + {calls} + {number_at}], {number}",
                        "mov qword ptr [r11 + {calls} + {arguments}], rdi",
                        "mov qword ptr [r11 + {calls} + {arguments} + 8], rsi",
                        "mov qword ptr [r11 + {calls} + {arguments} + 16], rdx",
                        "mov qword ptr [r11 + {calls} + {since}], 0",
                        "mov dword ptr [r11 + {calls} + {sent}], 0",
                        "mov qword ptr [r11 + {calls} + {sp}], rsp",
                        "3:",
                        "mov rax, qword ptr [rip + {real} + {address}]",
                        "test rax, rax",
                        "jz 4f",
                        "xor r10d, r10d",
                        "xor r11d, r11d",
                        "jmp rax",
                        "4:",
                        $crate::hand_over!(),
                        ".cfi_endproc",
                        calls = const ThreadState::CALLS,
                        are_ended = const Calls::ARE_ENDED,
                        count = const LIMITED_COUNT,
                        limited = sym LIMITED,
                        sp = const Calls::SP,
                        number_at = const Calls::NUMBER,
                        number = const $number,
                        arguments = const Calls::ARGUMENTS,
                        since = const Calls::SINCE_NS,
                        sent = const Calls::SENT,
                        real = sym REAL,
                        address = const Next::ADDRESS,
                        before = sym before,
                    )
                }
            };
        )*
    };
}

transfers! {
    fn read = libc::SYS_read;
    fn __read_chk = libc::SYS_read;
    fn pread = libc::SYS_pread64;
    fn pread64 = libc::SYS_pread64;
    fn __pread_chk = libc::SYS_pread64;
    fn __pread64_chk = libc::SYS_pread64;
    fn readv = libc::SYS_readv;
    fn preadv = libc::SYS_preadv;
    fn preadv64 = libc::SYS_preadv;
    fn preadv2 = libc::SYS_preadv2;
    fn preadv64v2 = libc::SYS_preadv2;
    fn write = libc::SYS_write;
    fn writev = libc::SYS_writev;
    fn pwritev = libc::SYS_pwritev;
    fn pwritev64 = libc::SYS_pwritev;
    fn pwritev2 = libc::SYS_pwritev2;
    fn pwritev64v2 = libc::SYS_pwritev2;
    fn recv = libc::SYS_recvfrom;
    fn recvfrom = libc::SYS_recvfrom;
    fn __recv_chk = libc::SYS_recvfrom;
    fn __recvfrom_chk = libc::SYS_recvfrom;
    fn recvmsg = libc::SYS_recvmsg;
    fn recvmmsg = libc::SYS_recvmmsg;
    fn send = libc::SYS_sendto;
    fn sendto = libc::SYS_sendto;
    fn sendmsg = libc::SYS_sendmsg;
    fn sendmmsg = libc::SYS_sendmmsg;
    fn accept = libc::SYS_accept;
    fn accept4 = libc::SYS_accept4;
    fn connect = libc::SYS_connect;
    fn splice = libc::SYS_splice;
    fn copy_file_range = libc::SYS_copy_file_range;
    fn getrandom = libc::SYS_getrandom;
}

stand_in! {
    fn setsockopt = |a| {
        let (level, option) = (a.second as c_int, a.third as c_int);
        if level == libc::SOL_SOCKET && [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].contains(&option) {
            limit_noted(a.first);
        }
    };
}
