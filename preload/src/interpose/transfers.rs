//! Transfers, which a signal of ours can cut short, and calls on sockets, which it ends where the
//! socket has a time limit: both go on by themselves ([`rsunwind::restart`]). Here is noted by
//! which number a libc makes them, and since when the time of a socket counts that is known to have
//! a limit.

use super::calls::note;
use crate::stand_in;
use crate::stand_in::Arguments;
use core::ffi::{c_int, c_long};
use rsunwind::restart::{UNKNOWN, is_limited, limit_noted};
use rsunwind::thread::ThreadState;

/// Notes a call on a descriptor.
#[inline]
fn transfers(number: c_long, a: &Arguments) {
    let Some(calls) = ThreadState::calls_of_current() else {
        return;
    };
    note(calls, number, a);
    if is_limited(a.first) {
        calls.note_time();
    }
}

/// The same of one with a message, whose header musl copies.
#[inline]
fn messages(number: c_long, a: &Arguments) {
    let Some(calls) = ThreadState::calls_of_current() else {
        return;
    };
    calls.note(a.sp(), number, [a.first, UNKNOWN, UNKNOWN]);
    if is_limited(a.first) {
        calls.note_time();
    }
}

stand_in! {
    fn read = |a| { transfers(libc::SYS_read, a); };
    fn __read_chk = |a| { transfers(libc::SYS_read, a); };
    fn pread = |a| { transfers(libc::SYS_pread64, a); };
    fn pread64 = |a| { transfers(libc::SYS_pread64, a); };
    fn __pread_chk = |a| { transfers(libc::SYS_pread64, a); };
    fn __pread64_chk = |a| { transfers(libc::SYS_pread64, a); };
    fn readv = |a| { transfers(libc::SYS_readv, a); };
    fn preadv = |a| { transfers(libc::SYS_preadv, a); };
    fn preadv64 = |a| { transfers(libc::SYS_preadv, a); };
    fn preadv2 = |a| { transfers(libc::SYS_preadv2, a); };
    fn preadv64v2 = |a| { transfers(libc::SYS_preadv2, a); };
    fn write = |a| { transfers(libc::SYS_write, a); };
    fn writev = |a| { transfers(libc::SYS_writev, a); };
    fn pwritev = |a| { transfers(libc::SYS_pwritev, a); };
    fn pwritev64 = |a| { transfers(libc::SYS_pwritev, a); };
    fn pwritev2 = |a| { transfers(libc::SYS_pwritev2, a); };
    fn pwritev64v2 = |a| { transfers(libc::SYS_pwritev2, a); };
    fn recv = |a| { transfers(libc::SYS_recvfrom, a); };
    fn recvfrom = |a| { transfers(libc::SYS_recvfrom, a); };
    fn __recv_chk = |a| { transfers(libc::SYS_recvfrom, a); };
    fn __recvfrom_chk = |a| { transfers(libc::SYS_recvfrom, a); };
    fn recvmsg = |a| { messages(libc::SYS_recvmsg, a); };
    fn recvmmsg = |a| { transfers(libc::SYS_recvmmsg, a); };
    fn send = |a| { transfers(libc::SYS_sendto, a); };
    fn sendto = |a| { transfers(libc::SYS_sendto, a); };
    fn sendmsg = |a| { messages(libc::SYS_sendmsg, a); };
    fn sendmmsg = |a| { transfers(libc::SYS_sendmmsg, a); };
    fn accept = |a| { transfers(libc::SYS_accept, a); };
    fn accept4 = |a| { transfers(libc::SYS_accept4, a); };
    fn connect = |a| { transfers(libc::SYS_connect, a); };
    fn splice = |a| { transfers(libc::SYS_splice, a); };
    fn getrandom = |a| {
        if let Some(calls) = ThreadState::calls_of_current() {
            note(calls, libc::SYS_getrandom, a);
        }
    };
    fn setsockopt = |a| {
        let (level, option) = (a.second as c_int, a.third as c_int);
        if level == libc::SOL_SOCKET && [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].contains(&option) {
            limit_noted(a.first);
        }
    };
}
