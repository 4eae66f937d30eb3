//! Which threads may be held, by what they are in.
//!
//! # Safety
//! System calls on descriptors.
#![allow(unsafe_code)]

use crate::gentle::{is_filtered, may_be_stopped};
use crate::whereabouts::{Call, Whereabouts};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Whether a stop ends nothing that the thread is in, or only what goes on as it was when it is
/// made again: a wait without a limit.
pub(super) fn is_undisturbed(pid: u32, tid: u32, there: Whereabouts) -> bool {
    if is_filtered(pid, tid) {
        return false;
    }
    let wants_all = |flags: u64| flags & libc::MSG_WAITALL as u64 != 0;
    let waits_for_ever = |Call { number, arguments }: Call| match number {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (arguments[3] as i32) < 0,
        libc::SYS_epoll_pwait2 => arguments[3] == 0,
        libc::SYS_pause | libc::SYS_rt_sigsuspend => true,
        // What it has already it would give as if that were all.
        libc::SYS_recvfrom if wants_all(arguments[3]) => false,
        libc::SYS_recvmsg if wants_all(arguments[2]) => false,
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_recvfrom | libc::SYS_recvmsg => {
            is_without_limit(pid, arguments[0] as u32)
        }
        _ => false,
    };
    match there {
        Whereabouts::Asleep {
            call: Some(call), ..
        } if waits_for_ever(call) => true,
        _ => may_be_stopped(pid, tid, there, false),
    }
}

/// Whether a socket of the process lets who reads from it wait for ever, and for the first byte
/// alone: what it had of more it would give as if that were all.
fn is_without_limit(pid: u32, fd: u32) -> bool {
    // SAFETY: descriptors; those that are given are nobody else's.
    let socket = unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let Ok(process) = Errno::result(process) else {
            return false;
        };
        let process = OwnedFd::from_raw_fd(process as i32);
        let copy = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        let Ok(copy) = Errno::result(copy) else {
            return false;
        };
        OwnedFd::from_raw_fd(copy as i32)
    };
    let limit = getsockopt(&socket, sockopt::ReceiveTimeout);
    limit.is_ok_and(|limit| limit == TimeVal::zero()) && least(&socket) == Some(1)
}

/// How many bytes a reader of a socket waits for (`SO_RCVLOWAT`).
fn least(socket: &OwnedFd) -> Option<i32> {
    let mut least = 0i32;
    let mut length = size_of_val(&least) as libc::socklen_t;
    // SAFETY: the kernel writes a number and its length.
    let done = unsafe {
        let (value, length) = (&raw mut least, &raw mut length);
        let name = libc::SO_RCVLOWAT;
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value.cast(),
            length,
        )
    };
    (done == 0).then_some(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_waits_for_more_than_a_byte_is_not_held() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let is_held = || is_without_limit(std::process::id(), socket.as_raw_fd() as u32);
        assert!(is_held());
        let set = |name: i32, value: &[u8]| {
            let (fd, length) = (socket.as_raw_fd(), value.len() as libc::socklen_t);
            // SAFETY: the kernel reads that many bytes.
            let done = unsafe {
                libc::setsockopt(fd, libc::SOL_SOCKET, name, value.as_ptr().cast(), length)
            };
            assert_eq!(done, 0);
        };
        set(libc::SO_RCVLOWAT, &2i32.to_ne_bytes());
        assert!(!is_held());
        set(libc::SO_RCVLOWAT, &1i32.to_ne_bytes());
        assert!(is_held());
        set(libc::SO_RCVTIMEO, &[1i64, 0].map(i64::to_ne_bytes).concat());
        assert!(!is_held());
    }

    #[test]
    fn who_waits_for_all_that_was_asked_for_is_not_held() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let own = std::process::id();
        let is_held = |number, flags: [u64; 2]| {
            let [third, fourth] = flags;
            let fd = socket.as_raw_fd() as u64;
            let arguments = [fd, 0, third, fourth, 0, 0];
            let call = Some(Call { number, arguments });
            let there = Whereabouts::Asleep { ip: 1, sp: 1, call };
            is_undisturbed(own, own, there)
        };
        const ALL: u64 = libc::MSG_WAITALL as u64;
        assert!(is_held(libc::SYS_recvfrom, [ALL, 0]), "a length");
        assert!(!is_held(libc::SYS_recvfrom, [0, ALL]));
        assert!(is_held(libc::SYS_recvmsg, [0, ALL]));
        assert!(!is_held(libc::SYS_recvmsg, [ALL, 0]));
    }
}
