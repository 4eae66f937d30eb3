//! One event to sample: CPU time, or one of those that were asked for beside it.

use engine::perf_event::{kind, software};
use engine::wire::offer::CPU_EVENT;

/// What to sample.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Our number of it: [`CPU_EVENT`], or one that its clients know.
    pub event: u32,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// A sample is taken every so many of its own units.
    pub period: u64,
    /// The period is a rate instead, Hz, which the kernel keeps by varying the period.
    pub is_rate: bool,
    /// Whether kernel mode counts, and kernel stacks are taken.
    pub kernel: bool,
    /// Whether a sample makes the thread unwind itself.
    pub raises_signal: bool,
}

impl Source {
    /// The thread's CPU time.
    pub fn cpu_time(period_ns: u64, kernel: bool) -> Self {
        Self {
            event: CPU_EVENT,
            kind: kind::SOFTWARE,
            config: software::TASK_CLOCK,
            period: period_ns,
            is_rate: false,
            kernel,
            raises_signal: true,
        }
    }
}
