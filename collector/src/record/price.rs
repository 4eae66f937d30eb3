//! What the kernel takes for perf events on this machine, measured when recording has ended: for
//! the account, where it is named an estimate.

use super::switch_cost::{self, Effort};
use super::{event_cost, thread_cost};

/// So few context switches cost too little to be asked for.
const FEW_SWITCHES: u64 = 100;

/// What one of each costs, ns; 0 where that is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Price {
    /// What the program cannot see of an event with its signal.
    pub event_ns: u64,
    /// What it can.
    pub signal_ns: u64,
    /// What the event adds to a context switch of its thread.
    pub switch_ns: u64,
    /// What the events that tell of programs add to the beginning and the end of a thread.
    pub thread_ns: u64,
}

impl Price {
    /// Measures it for events of that period in a program of so many context switches. `listens`
    /// says whether there were events that tell of programs.
    #[must_use]
    pub fn measured(period_ns: u64, switches: u64, listens: bool) -> Self {
        let Some((event_ns, signal_ns)) = event_cost::in_two_parts() else {
            return Self::default();
        };
        let price = Self {
            event_ns,
            signal_ns,
            ..Self::default()
        };
        if switches < FEW_SWITCHES {
            return price;
        }
        let switch_ns = switch_cost::measure(period_ns, event_ns, listens, Effort::ESTIMATE);
        let thread_ns = listens.then(thread_cost::measure).flatten();
        Self {
            switch_ns: switch_ns.unwrap_or(0),
            thread_ns: thread_ns.unwrap_or(0),
            ..price
        }
    }
}
