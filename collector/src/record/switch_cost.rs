//! What an event makes a context switch of its thread cost more: the kernel puts its timer off and
//! on again. Two threads wake each other in turns, without events and with them.
//!
//! Each is on a processor of its own, if there are two, which is idle when it waits: what is done
//! there at its end is charged to nobody. Where threads take turns on one processor a switch is
//! charged a quarter more or so.

use super::event_cost;
use crate::clock;
use crate::cpu_rings::{CpuRing, Ring};
use crate::exec_watch;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::thread;

/// How exactly it is measured. Of the trials the least with events and the least without count:
/// what else runs on the machine makes some of them several times too long.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    trials: usize,
    /// How often each of the two is woken in a trial.
    turns: usize,
}

impl Effort {
    /// For a budget that is to be kept.
    pub const EXACT: Self = Self {
        trials: 5,
        turns: 60,
    };
    /// For an estimate: where a processor has to be woken each time, turns take long.
    pub const ESTIMATE: Self = Self {
        trials: 3,
        turns: 30,
    };
}

/// What is opened on a thread.
#[derive(Clone, Copy)]
struct Events {
    period_ns: u64,
    /// Those that tell of programs, too.
    listens: bool,
}

/// What a thread has used.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu_ns: u64,
    switches: u64,
    samples: u64,
}

/// Cost of a switch, from the processor and back to one, with events of that period, of which each
/// takes `event_ns`, above that without, ns; `None` where perf is refused.
pub fn measure(period_ns: u64, event_ns: u64, listens: bool, effort: Effort) -> Option<u64> {
    let events = Events { period_ns, listens };
    let (mut plain_ns, mut armed_ns) = (u64::MAX, u64::MAX);
    for _ in 0..effort.trials {
        plain_ns = plain_ns.min(turns(effort.turns, None, event_ns)?);
        armed_ns = armed_ns.min(turns(effort.turns, Some(events), event_ns)?);
    }
    Some(armed_ns.saturating_sub(plain_ns))
}

/// Cost of a switch, ns.
fn turns(number: usize, events: Option<Events>, event_ns: u64) -> Option<u64> {
    let processor = sched_getcpu().ok()?;
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let may = |other: &usize| *other != processor && allowed.is_set(*other) == Ok(true);
    let other = (0..CpuSet::count()).find(may).unwrap_or(processor);
    let (here, there) = UnixStream::pair().ok()?;
    let begin = |socket, is_first, processor| {
        let turns = 0..number;
        thread::spawn(move || take_turns(turns, (socket, is_first), processor, events))
    };
    let both = [begin(here, true, processor), begin(there, false, other)];
    let [one, other] = both.map(|thread| thread.join().ok().flatten());
    let (one, other) = (one?, other?);
    let samples_ns = (one.samples + other.samples).saturating_mul(event_ns);
    let cpu_ns = (one.cpu_ns + other.cpu_ns).saturating_sub(samples_ns);
    cpu_ns.checked_div(one.switches + other.switches)
}

/// One of the two; when it fails, the other finds its socket closed.
fn take_turns(
    turns: Range<usize>,
    (mut socket, is_first): (UnixStream, bool),
    processor: usize,
    events: Option<Events>,
) -> Option<Used> {
    let mut here = CpuSet::new();
    here.set(processor).ok()?;
    // Elsewhere it costs something else, which is no reason to have nothing.
    let _ = sched_setaffinity(Pid::from_raw(0), &here);
    let armed = match events {
        Some(events) => Some(arm(events)?),
        None => None,
    };
    let before = used()?;
    for _ in turns {
        if is_first {
            socket.write_all(&[0]).ok()?;
        }
        socket.read_exact(&mut [0]).ok()?;
        if !is_first {
            socket.write_all(&[0]).ok()?;
        }
    }
    let after = used()?;
    let samples = armed.map_or(0, |(mut ring, _)| event_cost::samples(&mut ring));
    Some(Used {
        cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
        switches: after.switches.saturating_sub(before.switches),
        samples,
    })
}

/// On the calling thread.
fn arm(events: Events) -> Option<(Ring, Vec<CpuRing>)> {
    let listening = match events.listens {
        true => exec_watch::listen_here(),
        false => Vec::new(),
    };
    Some((event_cost::begin(events.period_ns)?, listening))
}

/// Of the calling thread.
fn used() -> Option<Used> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
    Some(Used {
        cpu_ns: clock::thread_cpu_ns(),
        switches: switches.unsigned_abs(),
        samples: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_is_a_switch() {
        let both = UnixStream::pair().unwrap();
        let begin = |socket, is_first| {
            thread::spawn(move || take_turns(0..30, (socket, is_first), 0, None).unwrap())
        };
        let threads = [begin(both.0, true), begin(both.1, false)];
        let used = threads.map(|thread| thread.join().unwrap());
        assert!(used.iter().all(|used| used.samples == 0));
        assert!(used.iter().any(|used| used.switches > 0));
    }
}
