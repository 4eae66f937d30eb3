//! The running program: whether it has ended and how, and sending it signals.
//!
//! # Safety
//! `wait4` directly: the safe wrappers fail on real-time signals, and the status is then lost.
#![allow(unsafe_code)]

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A program that was started.
#[derive(Debug)]
pub struct Program {
    pid: Pid,
    status: Option<Status>,
    charged: Charged,
}

/// What the kernel charged a program until its end, and all descendants that were waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Charged {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Context switches, its own and others' doing.
    pub switches: u64,
}

/// How a program ended, as `waitpid` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

impl Status {
    /// The signal that ended it.
    #[must_use]
    pub fn signal(self) -> Option<i32> {
        libc::WIFSIGNALED(self.0).then(|| libc::WTERMSIG(self.0))
    }

    /// What a shell would report: the exit status, or 128 and the signal.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        let status = self
            .signal()
            .map_or_else(|| libc::WEXITSTATUS(self.0), |signal| 128 + signal);
        u8::try_from(status).unwrap_or(u8::MAX)
    }
}

impl Program {
    /// A child of this process.
    #[must_use]
    pub fn new(pid: Pid) -> Self {
        Self {
            pid,
            status: None,
            charged: Charged::default(),
        }
    }

    /// Its pid.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> Option<Status> {
        if self.status.is_none() {
            let mut status = 0;
            // SAFETY: all zeros is a usage.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: writes to locals.
            let reaped = unsafe {
                let (status, usage) = (&raw mut status, &raw mut usage);
                libc::wait4(self.pid.as_raw(), status, libc::WNOHANG, usage)
            };
            if reaped == self.pid.as_raw() {
                self.status = Some(Status(status));
                self.charged = Charged {
                    cpu_ns: nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
                    switches: (usage.ru_nvcsw + usage.ru_nivcsw).unsigned_abs(),
                };
            }
        }
        self.status
    }

    /// What the kernel charged it; nothing before its end.
    #[must_use]
    pub const fn charged(&self) -> Charged {
        self.charged
    }

    /// Sends it a signal, unless it has ended (its pid may then be another's).
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            // Refused for a program with other rights than ours: there is nothing to do about it.
            let _ = kill(self.pid, signal);
        }
    }
}

fn nanoseconds(time: libc::timeval) -> u64 {
    let [seconds, microseconds] = [time.tv_sec, time.tv_usec].map(|part| part.unsigned_abs());
    seconds * 1_000_000_000 + microseconds * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_given_as_shells_give_them() {
        assert_eq!(Status(3 << 8).exit_status(), 3);
        assert_eq!(
            (Status(9).exit_status(), Status(9).signal()),
            (137, Some(9))
        );
        assert_eq!(
            Status(34 | 0x80).exit_status(),
            162,
            "a real-time signal, with a core"
        );
    }
}
