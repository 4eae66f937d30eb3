//! Opening events ([`engine::perf_event`]) from outside of the programs: for all that rsunwind
//! opens itself. (The library in the program has its own way, which may not link std.)
//!
//! # Safety
//! A system call that reads attributes of ours, and the descriptor that it gives is nobody else's.
#![allow(unsafe_code)]

use engine::perf_event::{Attributes, OPEN_CLOEXEC};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::os::fd::{FromRawFd, OwnedFd};

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

/// What an event of a thread ([`Attributes::of_thread`]) says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// What it has counted, in its own units.
    pub count: u64,
    /// The kernel's number of it. Before Linux 6.0 a time, and no event's number.
    pub id: u64,
    /// How many of its samples found no room. Before Linux 6.0 a time.
    pub lost: u64,
}

/// Asks an event.
pub fn ask(event: &OwnedFd) -> Option<Said> {
    let mut bytes = [0; 24];
    let length = nix::unistd::read(event, &mut bytes).ok()?;
    let word = |place: usize| u64::from_ne_bytes(std::array::from_fn(|at| bytes[place * 8 + at]));
    (length == bytes.len()).then(|| Said {
        count: word(0),
        id: word(1),
        lost: word(2),
    })
}
