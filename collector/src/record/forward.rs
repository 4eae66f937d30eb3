//! Passing on signals, each exactly once. Keys on the terminal, `timeout`, and service managers
//! signal the whole process group (or every process of a service): the program has then been told
//! already. `kill PID` tells rsunwind alone.
//!
//! The kernel says which signals came from the terminal, but not which of the others were sent to
//! more than one process. So a *witness* stands beside rsunwind in the same group: a process that
//! does nothing, with every signal blocked. What is pending for the witness was sent to everybody.
//!
//! # Safety
//! `fork` while there is one thread; the child makes system calls only.
#![allow(unsafe_code)]

use super::program::Program;
use super::signals::{Arrival, FORWARDED, Signals};
use crate::processes::Stat;
use nix::libc;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Within this time a signal meant for all has reached all, if the processor is its sender's.
const SPREAD: Duration = Duration::from_millis(50);
/// How long is waited for a sender who is still at it, or waits for a processor.
const LONGEST_SPREAD: Duration = Duration::from_millis(250);

/// Passes signals on to a program.
#[derive(Debug)]
pub struct Forwarder {
    witness: Option<Witness>,
}

impl Forwarder {
    /// With a fresh witness. Without one (no more processes allowed) every signal that is not the
    /// terminal's is passed on.
    #[must_use]
    pub fn new() -> Self {
        Self {
            witness: Witness::post(),
        }
    }

    /// Deals with all signals that came in.
    pub fn attend(&mut self, signals: &Signals, program: &mut Program) {
        let arrived =
            |signals: &Signals| std::iter::from_fn(|| signals.next()).collect::<Vec<Arrival>>();
        let mut arrivals = arrived(signals);
        arrivals.retain(|arrival| FORWARDED.contains(&arrival.signal));
        if arrivals.is_empty() {
            return;
        }
        if arrivals.iter().any(|arrival| !arrival.from_kernel) {
            let until = Instant::now() + LONGEST_SPREAD;
            sleep(SPREAD);
            // Between two signals of a series, as timeout(1) sends them, a sender runs or waits for
            // a processor.
            let is_at_it = |one: &Arrival| Stat::read(one.sender).is_some_and(|it| it.is_running());
            while arrivals.iter().any(is_at_it) && Instant::now() < until {
                sleep(SPREAD / 5);
            }
            arrivals.extend(arrived(signals));
        }
        let witnessed = self.witness.as_ref().map_or(0, Witness::pending);
        for signal in FORWARDED {
            let mut meant = arrivals
                .iter()
                .filter(|arrival| arrival.signal == signal)
                .peekable();
            let to_all = witnessed & (1 << (signal as i32 - 1)) != 0;
            if meant.peek().is_some() && !to_all && meant.all(|arrival| !arrival.from_kernel) {
                program.signal(signal);
            }
        }
        self.witness = Witness::post();
    }
}

#[derive(Debug)]
struct Witness(Pid);

impl Witness {
    fn post() -> Option<Self> {
        let rsunwind = getpid();
        // SAFETY: see the top of the file.
        match unsafe { fork() }.ok()? {
            ForkResult::Parent { child } => Some(Self(child)),
            ForkResult::Child => {
                let _ = SigSet::all().thread_block();
                let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
                // SAFETY: nothing of this process uses a descriptor from here on; pipes must not
                // stay open because of it. By number: musl has no function for it.
                unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) };
                while getppid() == rsunwind {
                    nix::unistd::pause();
                }
                // SAFETY: ends the child without running anything of ours.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Signals sent to it and not to be delivered, signal 1 in bit 0.
    fn pending(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}
