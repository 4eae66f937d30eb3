//! The events on the threads of a process that unwind themselves: opened here, with the thread as
//! the one who gets their signal. Only user mode raises it, so that it never comes in a call, and
//! none of them outlives an exec.
//!
//! The handler knows their signals by the number of a descriptor, which the kernel remembers from
//! when the signal was asked for: each event has it for that moment, one after the other.
//!
//! # Safety
//! System calls on descriptors of ours.
#![allow(unsafe_code)]

use super::Refusal;
use crate::perf_event::{self, ANY_PROCESSOR};
use crate::processes;
use engine::perf_event::{Attributes, kind, request, software};
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// No program has a descriptor of its own there that raises SIGURG, unless by intent.
const HIGH: u64 = 60_521;
const SIGNAL: i32 = libc::SIGURG;

/// The number by which the handler knows the signals.
pub(super) fn descriptor() -> i32 {
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(most, _)| most);
    i32::try_from(HIGH.min(most.saturating_sub(1))).unwrap_or(i32::MAX)
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Events {
    period_ns: u64,
    /// Of each thread; none if it blocks the signal, or has it wait.
    open: HashMap<i32, Option<OwnedFd>>,
}

impl Events {
    pub(super) fn new(period_ns: u64) -> Self {
        Self {
            period_ns,
            open: HashMap::new(),
        }
    }

    /// Opens events on threads that have none, and closes those of threads that are gone.
    ///
    /// # Errors
    /// [`Refusal::Events`].
    pub(super) fn open(&mut self, pid: u32) -> Result<(), Refusal> {
        let tids = processes::threads(pid.cast_signed());
        self.open.retain(|tid, _| tids.contains(tid));
        for tid in tids {
            // Who blocked it may not any more.
            if !matches!(self.open.get(&tid), Some(Some(_))) {
                let event = self.event(pid, tid)?;
                self.open.insert(tid, event);
            }
        }
        Ok(())
    }

    fn event(&self, pid: u32, tid: i32) -> Result<Option<OwnedFd>, Refusal> {
        if blocks(pid, tid) {
            return Ok(None);
        }
        let every =
            Attributes::of_thread(kind::SOFTWARE, software::TASK_CLOCK, self.period_ns, false);
        // Without these it would raise a signal in whatever program the thread runs next.
        let [newest, older, _] = every.and_for_older_kernels();
        let thread = Pid::from_raw(tid);
        let opened = perf_event::open(&newest, thread, ANY_PROCESSOR);
        let opened = opened.or_else(|_| perf_event::open(&older, thread, ANY_PROCESSOR));
        let event = match opened {
            Ok(event) => event,
            Err(Errno::ESRCH) => return Ok(None),
            Err(errno) => return Err(Refusal::Events(errno)),
        };
        raise(&event, tid).map_err(Refusal::Events)?;
        Ok(Some(event))
    }

    /// How many threads have events, and how many have none.
    pub(super) fn counts(&self) -> (usize, usize) {
        let armed = self.open.values().flatten().count();
        (armed, self.open.len() - armed)
    }

    pub(super) fn close(&mut self) {
        self.open.clear();
    }
}

/// Has the event raise the signal on its thread, and run.
fn raise(event: &OwnedFd, tid: i32) -> Result<(), Errno> {
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    let owner = [0 /* F_OWNER_TID */, tid];
    let number = descriptor();
    // SAFETY: the kernel reads the two words of the owner; the number is used for this alone, and
    // is free again at the end.
    unsafe {
        let fd = libc::dup3(event.as_raw_fd(), number, libc::O_CLOEXEC);
        Errno::result(fd)?;
        let asked = Errno::result(libc::fcntl(fd, F_SETSIG, SIGNAL))
            .and_then(|_| Errno::result(libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr())))
            .and_then(|_| {
                let flags = libc::O_ASYNC | libc::O_NONBLOCK;
                Errno::result(libc::fcntl(fd, libc::F_SETFL, flags))
            })
            .and_then(|_| Errno::result(libc::ioctl(fd, request::ENABLE as libc::Ioctl, 0)));
        libc::close(fd);
        asked.map(drop)
    }
}

/// Whether a thread blocks the signal: it may wait for it, and would not be sampled.
fn blocks(pid: u32, tid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & 1 << (SIGNAL - 1) != 0)
}
