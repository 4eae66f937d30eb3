//! The one line on standard error that says why a program, or a child of it, runs unprofiled.

use crate::config::Destination;
use crate::process::PROCESS;
use crate::sys::{self, Errno};
use crate::text::{PATH_SIZE, Text};

/// How it begins.
pub const NOT_PROFILED: &[u8] = b"rsunwind: not profiled: ";

/// Room for it.
pub type Line = Text<1400>;

/// Adds that a file cannot be written, why, and what would help.
#[must_use]
pub fn cannot_write(line: Line, path: &Text<PATH_SIZE>, errno: Errno) -> Line {
    line.then(b"cannot write ")
        .then(path.bytes())
        .then(b": ")
        .then(reason_of_writing(errno.0).as_bytes())
}

/// The same as [`reason`], of the place that samples go to: under a collector it is not the user
/// who has chosen that.
fn reason_of_writing(errno: i32) -> &'static str {
    let is_session = matches!(PROCESS.config().destination, Destination::Session(_));
    match errno {
        libc::ENOENT | libc::ENOTDIR if is_session => {
            "the session's folder is not there (a mount namespace with another /dev/shm, or chroot)"
        }
        libc::EACCES | libc::EPERM | libc::EROFS if is_session => {
            "permission denied (to another user, or on a file system that is read-only there)"
        }
        libc::ENOSPC | libc::EDQUOT if is_session => {
            "no space left; free some, or give a container more (--shm-size)"
        }
        errno => reason(errno),
    }
}

/// Says it of a fork child.
///
/// # Signal safety
/// One system call.
pub(super) fn say_of_child(pid: u32, path: &Text<PATH_SIZE>, errno: Errno) {
    let line = Line::new()
        .then(NOT_PROFILED)
        .then(b"fork child ")
        .decimal(u64::from(pid))
        .then(b", and others perhaps: ");
    sys::write_stderr(cannot_write(line, path, errno).then(b"\n").bytes());
}

/// Whether a collector tells of a process that cannot write its recording, so that the process need
/// not: a filter of the program's own keeps it from that, and nothing is wrong.
#[must_use]
pub fn is_left_to_collector() -> bool {
    matches!(PROCESS.config().destination, Destination::Session(_)) && sys::seccomp_filtered()
}

/// What the likely errors mean, and the remedy.
#[must_use]
pub fn reason(errno: i32) -> &'static str {
    match errno {
        libc::ENOENT | libc::ENOTDIR => {
            "no such directory; create it, or set RSUNWIND=output=PATH to another"
        }
        libc::EACCES | libc::EPERM | libc::EROFS => {
            "permission denied; set RSUNWIND=output=PATH to a writable place"
        }
        libc::ENOSPC | libc::EDQUOT => {
            "no space left; free some, or set RSUNWIND=output=PATH to another disk"
        }
        libc::EFBIG => "the file size limit is reached; raise it with ulimit -f",
        libc::ENOMEM => "a limit leaves too little; raise it with ulimit -v and ulimit -d",
        libc::ELOOP => "it is a symbolic link; name the file itself",
        libc::EISDIR => "it is a directory; name a file",
        libc::EMFILE | libc::ENFILE => "no file descriptor left; raise the limit with ulimit -n",
        libc::ENOSYS => "a seccomp filter forbids the call; start the program without it",
        libc::EPROTO => "the session is of another version of rsunwind",
        _ => "see the error number in a system call trace",
    }
}
