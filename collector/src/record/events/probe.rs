//! Tries an event on the calling thread, so that what cannot be sampled is said before the program
//! starts.

use super::Event;
use crate::perf_event::{self, ANY_PROCESSOR, THIS_THREAD};
use engine::perf_event::{Attributes, flag, kind};
use nix::errno::Errno;
use std::fs;

/// Tries it.
///
/// # Errors
/// Why it cannot be, with the remedy.
pub fn probe(event: &Event, hertz: u64) -> Result<(), String> {
    let refused = match open(event, hertz, event.user_only) {
        Ok(()) => return Ok(()),
        Err(errno) => errno,
    };
    // Without the kernel it may be allowed, and still happen: programs step down by themselves, and
    // say so.
    if !event.user_only
        && matches!(refused, Errno::EACCES | Errno::EPERM)
        && event.named.kind != kind::TRACEPOINT
        && event.named.signals
        && open(event, hertz, true).is_ok()
    {
        return Ok(());
    }
    Err(format!("{}: {}", event.name, explain(event, refused)))
}

fn open(event: &Event, hertz: u64, user_only: bool) -> Result<(), Errno> {
    let (period, is_rate) = event.period_or_rate(hertz);
    let flags = flag::DISABLED
        | flag::EXCLUDE_HV
        | if user_only { flag::EXCLUDE_KERNEL } else { 0 }
        | if is_rate { flag::FREQUENCY } else { 0 };
    let attributes = Attributes {
        kind: event.named.kind,
        config: event.named.config,
        sample_period: period,
        flags,
        ..Attributes::default()
    };
    perf_event::open(&attributes, THIS_THREAD, ANY_PROCESSOR).map(drop)
}

fn explain(event: &Event, errno: Errno) -> String {
    let software = event.named.kind == kind::SOFTWARE;
    match errno {
        Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP if !software => {
            "this machine's processor does not count it, or not for us (virtual machines and containers often have no counters); \
             sample task-clock, page-faults or a tracepoint instead"
                .into()
        }
        Errno::EACCES | Errno::EPERM => {
            let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            let needed = if event.named.kind == kind::TRACEPOINT { "-1" } else { "1" };
            format!(
                "not permitted (kernel.perf_event_paranoid is {}): run as root, give rsunwind CAP_PERFMON, or sysctl kernel.perf_event_paranoid={needed}",
                level.trim()
            )
        }
        Errno::EINVAL => "the kernel does not take it with that period or modifier".into(),
        errno => format!("it cannot be opened: {}", errno.desc()),
    }
}
