//! The events on processes that run already: on each of their threads, whose children inherit them.
//! All write to rings that events of our own hold, since a process may have many threads. Those on
//! everybody are on the processors, and tell all that happens from then on.
//!
//! Nothing is done in the processes, and they are never stopped ([`crate::cpu_rings::opening`]).

use super::beside::Beside;
use super::cpu_clock::clocks_of;
use super::events::On;
use super::program_runs::{Asleep, ProgramRuns};
use super::reader::{DELAY_NS, Reader};
use super::{Attached, STACK_BYTES, Settings};
use crate::clock::monotonic_ns;
use crate::cpu_rings::opening::{MOST_LOOKS, Opening};
use crate::cpu_rings::{Refusal, Step, TaskRecord, What, request};
use crate::processes;
use crate::remote_memory::RemoteMemory;
use crate::whereabouts::Whereabouts;
use nix::unistd::{Pid, getpid};
use std::collections::HashSet;

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
    let mut opening = Opening::on(On::Threads.rings(&mut settings)?);
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
        return Err(Refusal::ENDED);
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
    let mut opening = Opening::on(rings);
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

impl Opening {
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
}
