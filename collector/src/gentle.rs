//! Stopping a thread of another process for a moment, by ptrace, so that it does not notice: which
//! may be, and how long to wait. A stop ends some calls early.
//!
//! Not here: what is done meanwhile.

use crate::remote::MOST;
use crate::unwind::registers;
use crate::whereabouts::{Call, Whereabouts};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread may take to stop, while it is not held: one in the kernel may not stop, one
/// that is ready to run may have to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a seccomp filter says which calls a thread may make.
pub(crate) fn is_filtered(pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let mode = lines.find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

/// Whether a stop certainly does not end what the thread is in.
pub(crate) fn may_be_stopped(pid: u32, tid: u32, there: Whereabouts, filtered: bool) -> bool {
    #[cfg(target_arch = "x86_64")]
    const POLL: &[i64] = &[libc::SYS_poll];
    #[cfg(not(target_arch = "x86_64"))]
    const POLL: &[i64] = &[];
    #[cfg(target_arch = "x86_64")]
    const SELECT: &[i64] = &[libc::SYS_select, libc::SYS_pselect6];
    #[cfg(not(target_arch = "x86_64"))]
    const SELECT: &[i64] = &[libc::SYS_pselect6];
    let (sp, call) = match there {
        Whereabouts::Running => return registers::CAN_GO_ON,
        Whereabouts::Elsewhere => return false,
        Whereabouts::Asleep { call: None, .. } => return true,
        Whereabouts::Asleep {
            sp,
            call: Some(call),
            ..
        } => (sp, call),
    };
    let Call { number, arguments } = call;
    // The kernel notes there how much is left. Where it cannot, the call ends.
    let is_on_stack = |limit: u64| limit == 0 || limit.wrapping_sub(sp) < MOST as u64;
    match number {
        libc::SYS_wait4 | libc::SYS_restart_syscall => true,
        libc::SYS_read => is_resumed_read(pid, tid, arguments[0]),
        libc::SYS_ppoll => is_on_stack(arguments[2]),
        // These go on by another call, `restart_syscall`, for which a filter may kill.
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => !filtered,
        libc::SYS_futex => !filtered || arguments[3] == 0,
        other if POLL.contains(&other) => !filtered,
        other => SELECT.contains(&other) && is_on_stack(arguments[4]),
    }
}

/// Whether reading that descriptor goes on after a stop: sockets and terminals may have time
/// limits, drivers and file systems of programs (FUSE) their own ways.
fn is_resumed_read(pid: u32, tid: u32, fd: u64) -> bool {
    let link = format!("/proc/{pid}/task/{tid}/fd/{}", fd as u32);
    // With a name or without.
    let is_pipe = || fs::metadata(&link).is_ok_and(|file| file.file_type().is_fifo());
    let Ok(file) = fs::read_link(&link) else {
        return false;
    };
    let file = file.to_string_lossy();
    let kind = file.strip_prefix("anon_inode:");
    is_pipe() || kind.is_some_and(|kind| matches!(kind, "[eventfd]" | "[timerfd]" | "[signalfd]"))
}

/// Why a thread has stopped.
pub(crate) enum Stop {
    /// We asked it to.
    Asked,
    /// A signal came at this moment, which it gets when it goes on.
    Signal(Signal),
    /// The same of one that has no name.
    RealTime,
}

/// A moment, where nothing tells of a stop.
pub(crate) fn moment() {
    thread::sleep(Duration::from_micros(50));
}

/// Waits until a thread has stopped, which is looked for after each `pause`. What it stopped for
/// stays with it (`WNOWAIT`), so that it is handed on whatever becomes of us.
pub(crate) fn wait(tid: Pid, pause: impl Fn()) -> Result<Stop, Errno> {
    let flags = WaitPidFlag::WSTOPPED
        | WaitPidFlag::WEXITED
        | WaitPidFlag::WNOHANG
        | WaitPidFlag::WNOWAIT
        | WaitPidFlag::__WALL;
    let began = Instant::now();
    loop {
        match waitid(Id::Pid(tid), flags) {
            Ok(WaitStatus::PtraceEvent(_, signal, 0)) => return Ok(Stop::Signal(signal)),
            Ok(WaitStatus::PtraceEvent(..)) => return Ok(Stop::Asked),
            Ok(WaitStatus::StillAlive) if began.elapsed() < PATIENCE => pause(),
            Ok(WaitStatus::StillAlive) => return Err(Errno::ETIMEDOUT),
            Err(Errno::EINVAL) => return Ok(Stop::RealTime),
            Ok(_) => return Err(Errno::ESRCH),
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SP: u64 = 0x7ffd_0000_0000;

    fn stopped_in(number: i64, arguments: [u64; 6]) -> [bool; 2] {
        let pid = std::process::id();
        let call = Some(Call { number, arguments });
        let there = Whereabouts::Asleep {
            ip: 1,
            sp: SP,
            call,
        };
        [false, true].map(|filtered| may_be_stopped(pid, pid, there, filtered))
    }

    #[test]
    fn only_calls_that_go_on_are_stopped() {
        let no = [0; 6];
        assert_eq!(stopped_in(libc::SYS_epoll_pwait, no), [false; 2]);
        assert_eq!(stopped_in(libc::SYS_recvfrom, no), [false; 2]);
        assert_eq!(stopped_in(libc::SYS_wait4, no), [true; 2]);
        // By `restart_syscall`, for which a seccomp filter may kill.
        assert_eq!(stopped_in(libc::SYS_nanosleep, no), [true, false]);
        assert_eq!(stopped_in(libc::SYS_futex, no), [true; 2]);
        let limit = [1, 0, 0, SP + 8, 0, 0];
        assert_eq!(stopped_in(libc::SYS_futex, limit), [true, false]);
        // Where the rest of the time cannot be noted.
        assert_eq!(
            stopped_in(libc::SYS_ppoll, [0, 0, SP + 8, 0, 0, 0]),
            [true; 2]
        );
        assert_eq!(
            stopped_in(libc::SYS_ppoll, [0, 0, 0x1000, 0, 0, 0]),
            [false; 2]
        );
    }

    #[test]
    fn only_reads_that_go_on_are_stopped() {
        use std::fs::File;
        use std::os::fd::AsRawFd;
        let reads = |fd: &dyn AsRawFd| {
            let fd = fd.as_raw_fd().cast_unsigned();
            stopped_in(libc::SYS_read, [fd.into(), 0, 0, 0, 0, 0])[0]
        };
        let (pipe, _end) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = File::open("/proc/self/status").unwrap();
        assert_eq!(
            (reads(&pipe), reads(&socket), reads(&file)),
            (true, false, false)
        );
    }
}
