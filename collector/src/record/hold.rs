//! Holds a program at its first instruction until its events are open: whom the kernel hides at
//! exec (setuid), nobody can be ready for before, and threads that begin before the events do would
//! go unseen.
//!
//! The hold is a ptrace stop at exec, which sends the program no signal. It is taken only with
//! CAP_SYS_PTRACE: without it a traced program does not get the rights that its file gives it.
//!
//! # Safety
//! ptrace requests and `waitpid` on a child of ours, with no memory but a local.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// Bit of CAP_SYS_PTRACE in capability masks.
const CAP_SYS_PTRACE: u64 = 19;

/// A child that will stop, or has stopped, at exec. It goes on when this is dropped, or we die.
#[derive(Debug)]
pub struct Hold {
    pid: Pid,
    stopped: bool,
}

impl Hold {
    /// Has a child of ours stop when it has called exec; `None` where that is not permitted.
    #[must_use]
    pub fn at_exec(pid: Pid) -> Option<Self> {
        if !may_trace() {
            return None;
        }
        // SAFETY: no memory is involved.
        let seized = unsafe {
            libc::ptrace(
                libc::PTRACE_SEIZE,
                pid.as_raw(),
                0,
                libc::PTRACE_O_TRACEEXEC,
            )
        };
        (seized == 0).then_some(Self {
            pid,
            stopped: false,
        })
    }

    /// Waits until it has stopped there; exec has succeeded.
    pub fn wait(&mut self) {
        let at_exec = libc::SIGTRAP | libc::PTRACE_EVENT_EXEC << 8;
        loop {
            let mut status = 0;
            // SAFETY: writes to a local. Should it have been killed meanwhile, its status is left
            // for who waits for its end.
            let found = unsafe {
                let mut end: libc::siginfo_t = std::mem::zeroed();
                let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
                let id = self.pid.as_raw().unsigned_abs();
                if libc::waitid(libc::P_PID, id, &raw mut end, flags) != 0 {
                    if Errno::last() == Errno::EINTR {
                        continue;
                    }
                    return;
                }
                if end.si_code != libc::CLD_TRAPPED && end.si_code != libc::CLD_STOPPED {
                    return;
                }
                libc::waitpid(
                    self.pid.as_raw(),
                    &raw mut status,
                    libc::__WALL | libc::WUNTRACED,
                )
            };
            if found != self.pid.as_raw() {
                return;
            }
            self.stopped = true;
            if status >> 8 == at_exec {
                return;
            }
            // Another signal came first: it is for the program.
            let signal = match libc::WSTOPSIG(status) {
                libc::SIGTRAP => 0,
                signal => signal,
            };
            // SAFETY: no memory is involved.
            unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid.as_raw(), 0, signal) };
            self.stopped = false;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.stopped {
            // SAFETY: no memory is involved.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid.as_raw(), 0, 0) };
        }
    }
}

fn may_trace() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> CAP_SYS_PTRACE & 1 == 1)
}
