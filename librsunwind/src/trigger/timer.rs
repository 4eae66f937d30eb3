//! A POSIX timer on the thread's own CPU clock: needs no permission, is bound to the kernel's tick,
//! and says by its overrun count how many periods each signal stands for. It is not inherited by
//! fork and does not survive exec.
//!
//! # Safety
//! System calls on our own structures.
#![allow(unsafe_code)]

use super::Thread;
use crate::sys::{Errno, call};

/// An armed timer of this thread.
#[derive(Debug)]
pub struct CpuTimer {
    id: i32,
}

/// The kernel's `struct sigevent`.
#[repr(C)]
struct SignalEvent {
    value: usize,
    signal: i32,
    notify: i32,
    tid: i32,
    padding: [u32; 11],
}

const SIGEV_THREAD_ID: i32 = 4;

impl CpuTimer {
    /// Starts a timer for the calling thread.
    ///
    /// # Errors
    /// As `timer_create(2)`; `EAGAIN` when the limit on pending signals is reached.
    pub fn start(period_ns: u64, thread: &Thread) -> Result<Self, Errno> {
        let event = SignalEvent {
            value: thread.tag,
            signal: thread.signal,
            notify: SIGEV_THREAD_ID,
            tid: thread.tid as i32,
            padding: [0; 11],
        };
        let mut id = 0i32;
        // SAFETY: the kernel reads the event and writes the id.
        unsafe {
            call!(
                libc::SYS_timer_create,
                libc::CLOCK_THREAD_CPUTIME_ID,
                &raw const event,
                &raw mut id
            )
        }?;
        let timer = Self { id };
        let (seconds, nanoseconds) = (period_ns / 1_000_000_000, period_ns % 1_000_000_000);
        let times = [seconds, nanoseconds, seconds, nanoseconds];
        // SAFETY: the kernel reads two timespecs.
        unsafe { call!(libc::SYS_timer_settime, id, 0, times.as_ptr(), 0) }?;
        Ok(timer)
    }

    /// Whether a signal with this `si_timerid` is this timer's.
    pub fn raised(&self, id: i32) -> bool {
        self.id == id
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: the timer is this value's.
        let _ = unsafe { call!(libc::SYS_timer_delete, self.id) };
    }
}
