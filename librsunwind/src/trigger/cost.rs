//! What one event costs on this machine, so that a period is never so short that the program makes no progress.
//!
//! Measured only where it can matter, at rates above 2 kHz: a few milliseconds at the start of the process.

use super::perf::{PerfEvent, Source};
use crate::config::{Config, TriggerChoice};
use crate::sys;

/// Periods from here on are affordable on any machine seen so far; the most expensive event was 47 µs, in a virtual machine.
const UNQUESTIONED_NS: u64 = 500_000;
/// The period is at least this many times the cost of an event.
const FACTOR: u64 = 4;
/// Bounds of the measurement, ns.
const TRIAL_PERIOD_NS: u64 = 250_000;
const TRIAL_NS: u64 = 1_500_000;

/// The period to use for the one asked for. Our signal's action must be in force, the calling thread not armed.
pub fn affordable_period_ns(config: &Config) -> u64 {
    if config.period_ns >= UNQUESTIONED_NS || config.trigger == TriggerChoice::Timer {
        return config.period_ns;
    }
    let cost = config.event_cost_ns.or_else(measure).unwrap_or(0);
    config.period_ns.max(cost.saturating_mul(FACTOR))
}

/// Cost of an event with its signal, ns; `None` where perf is refused.
fn measure() -> Option<u64> {
    let cpu_ns = || sys::thread_cpu_ns(sys::gettid()).unwrap_or(0);
    let mut turns = 1_000u64;
    let mut plain = spin(turns, cpu_ns);
    while plain < TRIAL_NS && turns < 1 << 40 {
        turns = turns.saturating_mul(if plain < TRIAL_NS / 4 { 4 } else { 2 });
        plain = spin(turns, cpu_ns);
    }
    let plain = plain.min(spin(turns, cpu_ns));
    let open = |kernel| PerfEvent::open(&[Source::cpu_time(TRIAL_PERIOD_NS, kernel)], 0, None);
    let mut event = open(true).or_else(|_| open(false)).ok()?;
    let disturbed = spin(turns, cpu_ns);
    let samples = event.drain(|_, _| ()).samples;
    disturbed.saturating_sub(plain).checked_div(samples)
}

fn spin(turns: u64, cpu_ns: impl Fn() -> u64) -> u64 {
    let began = cpu_ns();
    let mut value = turns;
    for _ in 0..turns {
        value = core::hint::black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value >> 31);
    }
    cpu_ns().saturating_sub(began)
}
