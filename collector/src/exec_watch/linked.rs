//! Static programs that have our library linked in, and unwind themselves at signals of events that
//! are opened here, on each of their threads: on the first as soon as the program is noticed.
//!
//! Not here: the events ([`crate::inside`]), and what the library does
//! (`librsunwind/src/life/linked.rs`).

use crate::cpu_rings::request::{Kind, Request};
use crate::inside::{Events, Refusal};
use crate::processes;
use std::thread;
use std::time::{Duration, Instant};

/// From one look to the next: threads that were born meanwhile are armed then.
const INTERVAL: Duration = Duration::from_millis(20);

/// The record of an exec comes some microseconds before the program's environment is there.
const EXEC: Duration = Duration::from_micros(100);
/// A program may have none.
const MOST_LOOKS: usize = 20;

/// Those that run.
pub(super) struct Linked {
    period_ns: u64,
    running: Vec<(i32, Events)>,
    looked: Instant,
}

impl Linked {
    /// None, to be sampled as often as copies would be.
    pub(super) fn new(request: &Request) -> Self {
        Self {
            period_ns: match request.kind {
                Kind::CpuTime(period_ns) => period_ns,
                _ => 0,
            },
            running: Vec::new(),
            looked: Instant::now(),
        }
    }

    /// Arms a program that has begun.
    pub(super) fn begin(&mut self, pid: i32) -> Result<(), Refusal> {
        let mut events = Events::new(self.period_ns);
        events.open_first(pid)?;
        self.running.push((pid, events));
        Ok(())
    }

    /// The process runs another program, or is another.
    pub(super) fn forget(&mut self, pid: i32) {
        self.running.retain(|(known, _)| *known != pid);
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        (!self.running.is_empty()).then(|| self.looked + INTERVAL)
    }

    /// Arms threads that have begun.
    pub(super) fn look(&mut self) {
        if self.next_look().is_none_or(|due| Instant::now() < due) {
            return;
        }
        self.running.retain_mut(|(pid, events)| {
            // Refused for a thread that is born later, it is not sampled.
            let _ = events.open(pid.cast_unsigned());
            events.are_any()
        });
        self.looked = Instant::now();
    }

    /// Ends the sampling of all.
    pub(super) fn close(&mut self) {
        self.running.clear();
    }
}

/// Whether the library in a process has been told to begin: by its environment, which may have been
/// taken from it.
pub(super) fn records_itself(pid: i32) -> bool {
    for _ in 0..MOST_LOOKS {
        if !processes::environment(pid).is_empty() {
            break;
        }
        thread::sleep(EXEC);
    }
    processes::setting(pid, b"outside=").is_some()
}
