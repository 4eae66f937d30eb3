//! The two clocks of a recording, and those of our own CPU time.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, ns: the time of everything in a recording.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// `CLOCK_BOOTTIME`, ns: that, and what the machine was suspended.
#[must_use]
pub fn boottime_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME)
}

/// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns.
#[must_use]
pub fn realtime_offset_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME).saturating_sub(monotonic_ns())
}

/// CPU time of the calling thread, ns.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process, ns.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: ClockId) -> u64 {
    // The kernel knows these clocks; 0 would show as a time before anything else.
    clock_gettime(clock).map_or(0, |time| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    })
}
