//! Opens events on all threads of a process that runs, and is not stopped: threads begin and end
//! meanwhile. One that a thread with open events began has inherited them, as the kernel's record
//! of it says; one without such a record is opened for itself.

use super::request::{self, Tells};
use super::{CpuRing, Refusal, Step, TaskRecord, What, lent, read};
use crate::processes;
use nix::errno::Errno;
use std::collections::HashSet;
use std::os::fd::OwnedFd;

/// Threads are looked for so often, at most: who begins threads without end is behind by then only
/// with those of the last moments, which have inherited their events.
pub(crate) const MOST_LOOKS: usize = 20;

/// Events that are being opened.
pub(crate) struct Opening {
    /// Where they write to.
    pub(crate) rings: Vec<CpuRing>,
    pub(crate) events: Vec<OwnedFd>,
    /// What the rings have had.
    pub(crate) early: Vec<TaskRecord>,
}

impl Opening {
    /// None yet, that will write to those rings.
    pub(crate) const fn on(rings: Vec<CpuRing>) -> Self {
        Self {
            rings,
            events: Vec::new(),
            early: Vec::new(),
        }
    }

    /// Opens the events of all threads of a process, and gives those.
    pub(crate) fn process(&mut self, pid: i32) -> Result<Vec<i32>, Refusal> {
        let mut known: HashSet<i32> = HashSet::new();
        let mut opened = Vec::new();
        for _ in 0..MOST_LOOKS {
            let mut tids = processes::threads(pid);
            let begun = self.look();
            known.extend(begun.filter(|(of, _)| *of == pid).map(|(_, tid)| tid));
            tids.retain(|tid| known.insert(*tid));
            if tids.is_empty() {
                break;
            }
            for tid in tids {
                if self.thread(tid)? {
                    opened.push(tid);
                }
            }
        }
        Ok(opened)
    }

    /// The tasks that have begun since the last look, by process and thread.
    pub(crate) fn look(&mut self) -> impl Iterator<Item = (i32, i32)> {
        let before = self.early.len();
        for ring in &mut self.rings {
            let (request, layout) = (ring.request, ring.layout);
            let early = &mut self.early;
            let ring = &mut ring.buffer;
            ring.take(|raw| early.extend(read(&raw, &layout, request.kind, request.tells)));
        }
        let new = self.early.get(before..).unwrap_or_default().iter();
        let begun = new.filter(|record| matches!(record.what, What::Fork(_)));
        begun.map(|record| (record.task.pid, record.task.tid))
    }

    /// Opens the events of a thread. Gives whether it was still there.
    fn thread(&mut self, tid: i32) -> Result<bool, Refusal> {
        let mut events = Vec::new();
        for ring in &self.rings {
            match lent(tid, ring) {
                Err(Errno::ESRCH) => return Ok(false),
                Err(Errno::ENODEV) => {} // a processor that was taken away
                opened => events.push((ring.request.tells, opened.map_err(refused)?)),
            }
        }
        // What tells of children comes last: then these have inherited everything.
        events.sort_by_key(|(tells, _)| *tells == Tells::Everything);
        for (_, event) in events {
            request::enable(&event);
            self.events.push(event);
        }
        Ok(true)
    }
}

const fn refused(errno: Errno) -> Refusal {
    Refusal {
        step: Step::Open,
        errno,
    }
}
