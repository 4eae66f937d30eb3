//! A POSIX timer on the thread's own CPU clock: needs no permission, is bound to the kernel's tick,
//! and says by its overrun count how many periods each signal stands for. It is not inherited by
//! fork and does not survive exec.
//!
//! # Safety
//! System calls on our own structures.
#![allow(unsafe_code)]

use super::Thread;
use crate::clock;
use crate::sys::{self, Errno, call};
use engine::mix::mix;

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
const SECOND: u64 = 1_000_000_000;

/// Such a timer goes off at the first of the kernel's ticks that finds its time used up. So that
/// each tick of a period has the same chance, the time is a whole number of them; within a tick
/// there is nothing to choose.
fn first_by_chance(period_ns: u64, tick_ns: u64, chance: u64) -> u64 {
    let ticks = period_ns.checked_div(tick_ns).unwrap_or(0);
    match chance.checked_rem(ticks) {
        Some(before) if ticks > 1 => before.saturating_mul(tick_ns).max(1),
        _ => period_ns,
    }
}

impl CpuTimer {
    /// Starts a timer for the calling thread.
    ///
    /// # Errors
    /// As `timer_create(2)`; `EAGAIN` when the limit on pending signals is reached.
    pub fn start(period_ns: u64, thread: &Thread) -> Result<Self, Errno> {
        Self::start_at(period_ns, period_ns, thread)
    }

    /// The same, but first at any moment of the first period, as chance has it: of many threads
    /// that each use less than a period some are sampled so, wherever they are, and not none.
    ///
    /// # Errors
    /// As [`CpuTimer::start`].
    pub fn start_by_chance(period_ns: u64, thread: &Thread) -> Result<Self, Errno> {
        let chance = mix(clock::monotonic_ns() ^ u64::from(thread.tid) << 32);
        let first_ns = first_by_chance(period_ns, sys::tick_ns(), chance);
        Self::start_at(first_ns, period_ns, thread)
    }

    fn start_at(first_ns: u64, period_ns: u64, thread: &Thread) -> Result<Self, Errno> {
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
        let [every, first] = [period_ns, first_ns].map(|ns| [ns / SECOND, ns % SECOND]);
        let times = [every, first];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tick_of_the_first_period_has_its_turn() {
        let first = |chance| first_by_chance(40_000, 10_000, chance);
        assert_eq!([0, 1, 2, 3, 4].map(first), [1, 10_000, 20_000, 30_000, 1]);
        for (period_ns, tick_ns) in [(10_000, 10_000), (15_000, 10_000), (1_000, 10_000), (7, 0)] {
            assert_eq!(first_by_chance(period_ns, tick_ns, 3), period_ns);
        }
    }
}
