//! The two clocks of a recording, those of our own CPU time, and what the processors lost.

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use std::fs;

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

/// What hypervisors took of all processors since boot, ns, by proc(5): the eighth number of the
/// first line, in ticks. 0 if that cannot be read.
#[must_use]
pub fn stolen_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().nth(8);
    let ticks: u64 = ticks.and_then(|ticks| ticks.parse().ok()).unwrap_or(0);
    let a_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    ticks.saturating_mul(1_000_000_000 / a_second.max(1).cast_unsigned())
}

fn read(clock: ClockId) -> u64 {
    // The kernel knows these clocks; 0 would show as a time before anything else.
    clock_gettime(clock).map_or(0, |time| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    })
}
