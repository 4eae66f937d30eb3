//! Programs that have our library linked in and not preloaded, and unwind themselves at signals of
//! events that are opened here, on each of their threads: on the first as soon as the program is
//! noticed, if it is a static one; once their library has begun, if not.
//!
//! Not here: the events ([`crate::inside`]), and what the library does
//! (`librsunwind/src/life/linked.rs`).

use crate::cpu_rings::request::{Kind, Request};
use crate::inside::{Events, Refusal};
use crate::obstacle;
use crate::processes::{self, Mapping};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// From one look to the next: threads that were born meanwhile are armed then.
const INTERVAL: Duration = Duration::from_millis(20);

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
    // The record of an exec comes some microseconds before the program's environment is there.
    processes::environment_after_exec(pid.cast_unsigned());
    processes::setting(pid, b"outside=").is_some()
}

/// How far our library is that a dynamic program is linked with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Loaded,
    /// It writes samples when it is asked for them.
    Begun,
}

/// None without it, and where it was not told to begin.
pub(super) fn progress(pid: i32, mappings: &[Mapping]) -> Option<Progress> {
    processes::setting(pid, b"outside=")?;
    let root = Path::new("/proc").join(pid.to_string()).join("root");
    let paths = mappings.iter().map(|mapping| &mapping.path[..]);
    let files: BTreeSet<_> = paths.filter_map(|path| path.strip_prefix(b"/")).collect();
    let mut files = files.into_iter().map(OsStr::from_bytes);
    if !files.any(|file| obstacle::is_linked(&root.join(file))) {
        return None;
    }
    Some(match processes::writes_samples(pid) {
        true => Progress::Begun,
        false => Progress::Loaded,
    })
}
