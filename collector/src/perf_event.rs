//! Opening events ([`engine::perf_event`]) from outside of the programs: for all that rsunwind
//! opens itself. (The library in the program has its own way, which may not link std.)
//!
//! # Safety
//! Two system calls: one reads attributes of ours, and the descriptor that it gives is nobody
//! else's; one writes a word of ours.
#![allow(unsafe_code)]

use engine::perf_event::{Attributes, OPEN_CLOEXEC, request};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The thread that asks, for [`open`].
pub const THIS_THREAD: Pid = Pid::from_raw(0);
/// All that runs on the processor, for [`open`].
pub const EVERYBODY: Pid = Pid::from_raw(-1);
/// Whichever processor the thread runs on, for [`open`].
pub const ANY_PROCESSOR: i32 = -1;

/// Opens an event, which is closed by exec. The attributes' size is filled in.
///
/// # Errors
/// As `perf_event_open(2)`.
pub fn open(attributes: &Attributes, pid: Pid, processor: i32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes {
        size: Attributes::SIZE,
        ..*attributes
    };
    let no_group: libc::c_int = -1;
    // SAFETY: the kernel reads the attributes, whose size is in them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attributes),
            pid.as_raw(),
            processor,
            no_group,
            OPEN_CLOEXEC,
        )
    };
    let fd = i32::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel's number of an event, which is in its records; 0, which is none's, if that is no
/// event.
pub fn id(event: &OwnedFd) -> u64 {
    let mut id = 0u64;
    // SAFETY: the kernel writes a word, or nothing.
    unsafe { libc::ioctl(event.as_raw_fd(), request::ID as libc::Ioctl, &raw mut id) };
    id
}

/// How many samples of an event of a thread ([`Attributes::of_thread`]) found no room; `None` where
/// the kernel does not say, which then gives a time in the place of the event's number.
pub fn lost(event: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 24]; // its count, its number, and that
    let length = nix::unistd::read(event, &mut bytes).ok()?;
    let word = |place: usize| u64::from_ne_bytes(std::array::from_fn(|at| bytes[place * 8 + at]));
    (length == bytes.len() && word(1) == id(event)).then(|| word(2))
}
