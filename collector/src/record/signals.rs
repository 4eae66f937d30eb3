//! The signals of a recording: which of them rsunwind takes for itself while the program runs, and
//! how it looks at them.
//!
//! They are blocked and read from a descriptor, so nothing interrupts anything. What the program is
//! given is what rsunwind was given ([`Inherited`]); passing signals on is [`super::forward`].
//!
//! # Safety
//! `sigaction` with `SIG_DFL` and `SIG_IGN` only: no handler is ever installed.
#![allow(unsafe_code)]

use super::inherited;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask,
};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// Passed on to the program when they are meant for it.
pub const FORWARDED: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Signal state that the program must find as if it had been started directly.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    mask: SigSet,
    child: SigAction,
}

impl Inherited {
    /// In the new process, before exec.
    ///
    /// # Errors
    /// errno of the calls.
    pub fn restore(&self) -> Result<(), Errno> {
        let pipe = if inherited::pipe_signal_was_ignored() {
            SigHandler::SigIgn
        } else {
            SigHandler::SigDfl
        };
        // SAFETY: no handler is installed.
        unsafe {
            sigaction(
                Signal::SIGPIPE,
                &SigAction::new(pipe, SaFlags::empty(), SigSet::empty()),
            )?;
            sigaction(Signal::SIGCHLD, &self.child)?;
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)
    }
}

/// A signal that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Which.
    pub signal: Signal,
    /// Whether the kernel sent it, as for keys on the terminal: then it went to the whole
    /// foreground group.
    pub from_kernel: bool,
    /// The process that sent it; 0 if it is out of sight.
    pub sender: u32,
}

/// The signals of rsunwind while it records. Dropping it puts back what was there.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
    inherited: Inherited,
}

impl Signals {
    /// Blocks the signals and opens the descriptor.
    ///
    /// # Errors
    /// errno of the calls.
    pub fn take() -> Result<Self, Errno> {
        let mut set = SigSet::empty();
        FORWARDED
            .iter()
            .chain([&Signal::SIGCHLD, &Signal::SIGXFSZ])
            .for_each(|signal| set.add(*signal));
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // Where SIGCHLD is ignored the kernel reaps the program, and its status is lost.
        // SAFETY: no handler is installed.
        let child = unsafe { sigaction(Signal::SIGCHLD, &default)? };
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut mask))?;
        let descriptor =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self {
            descriptor,
            inherited: Inherited { mask, child },
        })
    }

    /// What the program must find.
    #[must_use]
    pub const fn inherited(&self) -> &Inherited {
        &self.inherited
    }

    /// The next signal that came in, if any.
    pub fn next(&self) -> Option<Arrival> {
        let info = self.descriptor.read_signal().ok().flatten()?;
        let signal = Signal::try_from(info.ssi_signo as i32).ok()?;
        Some(Arrival {
            signal,
            from_kernel: info.ssi_code == libc::SI_KERNEL,
            sender: info.ssi_pid,
        })
    }

    /// Sleeps until a signal is there, or until then.
    pub fn wait(&self, until: Option<Instant>) {
        self.wait_or(None, until);
    }

    /// The same, or until something can be read there; gives whether that is so.
    pub fn wait_or(&self, other: Option<BorrowedFd<'_>>, until: Option<Instant>) -> bool {
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let wanted = [Some(self.as_fd()), other].into_iter().flatten();
        let mut wanted: Vec<_> = wanted
            .map(|one| PollFd::new(one, PollFlags::POLLIN))
            .collect();
        // An interrupted or refused poll is a short sleep.
        let polled = poll(&mut wanted, timeout);
        let other = wanted.get(1).and_then(PollFd::any);
        polled.is_ok() && other == Some(true)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What came in until now was for the recording; later ones act on rsunwind itself again.
        while self.next().is_some() {}
        // SAFETY: puts back an action that was in force before.
        let _ = unsafe { sigaction(Signal::SIGCHLD, &self.inherited.child) };
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.inherited.mask), None);
    }
}
