//! What one event costs on this machine, so that a period is never so short that the program makes
//! no progress: as the settings say, or measured here ([`engine::affordable`]).
//!
//! # Safety
//! The memory that the trial works on is its own.
#![allow(unsafe_code)]

use super::perf::PerfEvent;
use super::thread::{Outlook, Thread};
use crate::config::source::Source;
use crate::config::{Config, TriggerChoice};
use crate::signal;
use crate::sys;
use engine::affordable::{TRIAL_BYTES, TRIAL_PERIOD_NS, Trial};

/// Cost of an event with its signal, ns, as far as it matters at this rate. Our signal's action
/// must be in force, the calling thread not armed.
pub fn of_event(config: &Config) -> Option<u64> {
    match config.trigger {
        TriggerChoice::Timer => None,
        _ => config.event_cost_ns.or_else(measure),
    }
}

/// `None` where perf is refused.
fn measure() -> Option<u64> {
    let memory = sys::map_anonymous(TRIAL_BYTES).ok()?;
    sys::populate(memory, TRIAL_BYTES);
    // SAFETY: fresh memory of that size, which nothing else uses.
    let bytes = unsafe { core::slice::from_raw_parts_mut(memory, TRIAL_BYTES) };
    let cost = disturb(&mut Trial::new(bytes, || {
        sys::thread_cpu_ns(sys::gettid()).unwrap_or(0)
    }));
    // SAFETY: made above; the trial is over.
    unsafe { sys::unmap(memory, TRIAL_BYTES) };
    cost
}

fn disturb(trial: &mut Trial<'_, impl Fn() -> u64>) -> Option<u64> {
    let thread = Thread {
        tid: sys::gettid(),
        tag: 0,
        signal: signal::current(),
        nonce: 0,
        recipient: None,
        periods: 1,
        outlook: Outlook::Lasting,
    };
    let open = |kernel| PerfEvent::open(&[Source::cpu_time(TRIAL_PERIOD_NS, kernel)], &thread);
    let event = open(true).or_else(|_| open(false)).ok()?;
    let disturbed = trial.disturbed_ns();
    let samples = event.drain(|_, _| ()).samples;
    disturbed.checked_div(samples)
}
