//! The events on processes that run already: on each of their threads, whose children inherit them.
//! All write to rings that events of our own hold, since a process may have many threads. Those on
//! everybody are on the processors, and tell all that happens from then on.
//!
//! Nothing is done in the processes, and they are never stopped: threads begin and end while their
//! events are opened. One that a thread with open events began has inherited them, as the kernel's
//! record of it says; one without such a record is opened for itself.

use super::beside::Beside;
use super::cpu_clock::clocks_of;
use super::events::On;
use super::program_runs::{Asleep, ProgramRuns};
use super::reader::{DELAY_NS, Reader};
use super::{Attached, STACK_BYTES, Settings};
use crate::clock::monotonic_ns;
use crate::cpu_rings::{
    CpuRing, Refusal, Step, TaskRecord, What, lent, read,
    request::{self, Tells},
};
use crate::processes;
use crate::remote_memory::RemoteMemory;
use crate::whereabouts::Whereabouts;
use nix::errno::Errno;
use nix::unistd::{Pid, getpid};
use std::collections::HashSet;
use std::os::fd::OwnedFd;

/// Threads are looked for so often, at most: who begins threads without end is behind by then only
/// with those of the last moments, which have inherited their events.
const MOST_LOOKS: usize = 20;

/// So few of the kernel's records are no reason to look again before recording begins.
const FEW: usize = 64;

/// Opens events on processes that run and everything that they will start; those that unwind
/// themselves meanwhile are told later.
///
/// # Errors
/// [`Refusal`] as for those that are started; with errno ESRCH if none of the processes is there
/// any more.
pub fn attach_running(
    pids: &[Pid],
    mut settings: Settings,
    beside: Option<Beside>,
) -> Result<Attached, Refusal> {
    settings.running = true;
    settings.beside = beside.is_some();
    let mut opening = Opening {
        rings: On::Threads.rings(&mut settings)?,
        events: Vec::new(),
        early: Vec::new(),
    };
    let beside = beside.unwrap_or_else(Beside::nobody);
    let mut runs = ProgramRuns::new(settings).with(beside.clone());
    let mut is_anyone_there = false;
    for pid in pids {
        let now = monotonic_ns();
        let tids = opening.process(pid.as_raw())?;
        is_anyone_there |= !tids.is_empty();
        beside.found(pid.as_raw(), now);
        adopt(&mut runs, pid.as_raw(), &tids, now, settings);
    }
    if !is_anyone_there {
        return Err(refused(Errno::ESRCH));
    }
    let reader = Reader::new(opening.rings, None).with(opening.events, opening.early);
    Ok(Attached {
        reader,
        runs,
        settings,
    })
}

/// Opens events on all processors: whoever runs there is recorded, but for this process.
///
/// # Errors
/// [`Refusal`]: all that is asked for needs more rights than events on processes of one's own.
pub fn attach_everybody(mut settings: Settings) -> Result<Attached, Refusal> {
    settings.running = true;
    settings.everybody = true;
    let rings = On::Everybody.rings(&mut settings);
    let rings = rings.map_err(|refusal| match refusal.step {
        Step::Open => Refusal {
            step: Step::OpenOnAll,
            ..refusal
        },
        _ => refusal,
    })?;
    let mut opening = Opening {
        rings,
        events: Vec::new(),
        early: Vec::new(),
    };
    for ring in &opening.rings {
        request::enable(ring.buffer.event());
    }
    // On a machine with many programs that takes longer than some recordings do.
    let beside = Beside::later();
    let mut runs = ProgramRuns::new(settings).with(beside.clone());
    for pid in processes::all().filter(|pid| *pid != getpid().as_raw()) {
        let now = monotonic_ns();
        adopt(&mut runs, pid, &processes::threads(pid), now, settings);
        opening.look_early();
    }
    beside.begin(opening.catch_up(&mut runs));
    Ok(Attached {
        reader: Reader::new(opening.rings, None).with(opening.events, opening.early),
        runs,
        settings,
    })
}

/// Takes in a process that runs, and those of its threads.
fn adopt(runs: &mut ProgramRuns, pid: i32, tids: &[i32], time_ns: u64, settings: Settings) {
    runs.find(pid, tids, time_ns);
    if settings.switches {
        let asleep = tids
            .iter()
            .filter_map(|tid| Some((*tid, asleep(pid, *tid)?)));
        asleep.for_each(|(tid, found)| runs.asleep(pid, tid, &found));
    }
}

/// Looks at a thread that sleeps, without a word to it.
fn asleep(pid: i32, tid: i32) -> Option<Asleep> {
    let time_ns = monotonic_ns();
    let (pid, tid) = (pid.cast_unsigned(), tid.cast_unsigned());
    let there = Whereabouts::of(pid, tid);
    let Whereabouts::Asleep { ip, sp, .. } = there else {
        return None;
    };
    let room = STACK_BYTES as usize;
    let stack = RemoteMemory(pid).stack(sp, room)?;
    (Whereabouts::of(pid, tid) == there).then_some(Asleep {
        time_ns,
        ip,
        sp,
        stack,
        room,
    })
}

struct Opening {
    rings: Vec<CpuRing>,
    events: Vec<OwnedFd>,
    /// What the rings have had.
    early: Vec<TaskRecord>,
}

impl Opening {
    /// Opens the events of all threads of a process, and gives those.
    fn process(&mut self, pid: i32) -> Result<Vec<i32>, Refusal> {
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
    fn look(&mut self) -> impl Iterator<Item = (i32, i32)> {
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

    /// Looks before recording begins: what samples are of is not wanted.
    fn look_early(&mut self) {
        let before = self.early.len();
        self.look().for_each(drop);
        for record in self.early.iter_mut().skip(before) {
            if let What::Sample(copied) = &mut record.what {
                (copied.stack, copied.kernel) = Default::default();
            }
        }
    }

    /// Takes in what has happened meanwhile, and CPU time that has passed. Gives since when
    /// recording goes on, ns.
    fn catch_up(&mut self, runs: &mut ProgramRuns) -> u64 {
        let mut sampled = HashSet::new();
        let mut looks = 0;
        loop {
            let until_ns = monotonic_ns().saturating_sub(DELAY_NS);
            self.look_early();
            self.early.sort_by_key(|record| record.time_ns);
            let ready = (self.early).partition_point(|record| record.time_ns < until_ns);
            let taken: Vec<TaskRecord> = self.early.drain(..ready).collect();
            for (number, record) in taken.into_iter().enumerate() {
                if matches!(record.what, What::Sample(_)) {
                    sampled.insert(record.task);
                }
                runs.take_in(record);
                if number % FEW == FEW - 1 {
                    self.look_early();
                }
            }
            looks += 1;
            if ready < FEW || looks == MOST_LOOKS {
                runs.settle(&clocks_of(sampled), false);
                return until_ns;
            }
        }
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
