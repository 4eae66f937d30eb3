//! Two threads of ours while the program runs: one reads the rings, the other unwinds what was found there.
//!
//! Each processor has a ring of its own, so records are put in order of time before anything follows from them; those of the last moments
//! wait for the next look, because another ring may still get an older one.

use super::Outcome;
use super::event::{self, Kind, Tells};
use super::maps;
use super::newcomers::Newcomers;
use super::record::{self, Happening, Task, What};
use super::ring::Ring;
use super::thread::Chunk;
use super::urgency::make_urgent;
use super::world::World;
use linux_perf_event_reader::RecordParseInfo;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// The longest time between looks; rings that fill up ask for one sooner. CPU clocks are to be read before their threads end.
const INTERVAL: Duration = Duration::from_millis(50);
const INTERVAL_OF_SWITCHES: Duration = Duration::from_millis(200);
/// Within this time of a sample its record is in the ring, ns.
const DELAY_NS: u64 = 2_000_000;
/// Bytes of copied stacks that may wait to be unwound: those of context switches beyond are left out.
const MOST_WAITING: usize = 256 << 20;
/// So often what is known goes into the recording.
const CLOSING: Duration = Duration::from_secs(1);

/// Reads the rings and CPU clocks, and does nothing else, so that the rings are empty again before they are full.
pub(super) struct Reader {
    channels: Vec<Channel>,
    /// Bytes of copied stacks that wait to be unwound.
    waiting: Arc<AtomicUsize>,
    newcomers: Option<Newcomers>,
}

/// A ring, and how to read it.
pub(super) struct Channel {
    pub(super) ring: Ring,
    pub(super) processor: u32,
    /// Nobody has its event any more, which makes it always readable: it is not waited for.
    pub(super) over: bool,
    /// Of the events that write to it.
    pub(super) kind: Kind,
    pub(super) tells: Tells,
    pub(super) layout: RecordParseInfo,
}

/// What was found in one look at the rings.
pub(super) struct Look {
    found: Vec<Happening>,
    /// Bytes of stacks in it.
    bytes: usize,
    /// CPU clocks of the threads that were sampled.
    clocks: Vec<Clock>,
    /// Everything older than that has been found, ns.
    until_ns: u64,
    /// When sampling ended, if this is the last one, ns.
    ended_ns: Option<u64>,
}

/// What a thread's CPU clock showed, ns, and when (`CLOCK_MONOTONIC`, ns).
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) task: Task,
    pub(super) cpu_ns: u64,
    pub(super) now_ns: u64,
}

impl Reader {
    pub(super) fn new(channels: Vec<Channel>, newcomers: Option<Newcomers>) -> Self {
        Self {
            channels,
            newcomers,
            waiting: Arc::default(),
        }
    }

    /// Bytes of copied stacks that wait to be unwound, to be lowered when they were.
    pub(super) fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting)
    }

    /// Reads until the other end of `stop` is closed.
    pub(super) fn run(mut self, stop: &OwnedFd, out: &Sender<Look>) {
        make_urgent();
        let (mut sent, mut found_some) = (Instant::now(), true);
        loop {
            let last = self.sleep(stop);
            let before = monotonic_ns();
            if last {
                let events = self.channels.iter().map(|channel| channel.ring.event());
                events.for_each(event::disable);
                self.newcomers.iter().for_each(Newcomers::disable);
            }
            let mut found = Vec::new();
            for channel in &mut self.channels {
                let (kind, tells, layout) = (channel.kind, channel.tells, channel.layout);
                let ring = &mut channel.ring;
                ring.take(|raw| found.extend(record::read(&raw, &layout, kind, tells)));
            }
            if let Some(newcomers) = &mut self.newcomers
                && !last
            {
                newcomers.attend(&mut self.channels, &mut found);
            }
            // What was found before waits for a look that finds nothing older; a further one would wake its reader for nothing.
            let found_before = std::mem::replace(&mut found_some, !found.is_empty());
            let idle = !found_some && !found_before && sent.elapsed() < CLOSING;
            if idle && !last {
                continue;
            }
            sent = Instant::now();
            let bytes = self.leave_out(&mut found);
            let until_ns = if last {
                u64::MAX
            } else {
                before.saturating_sub(DELAY_NS)
            };
            let clocks = clocks(&found);
            // A receiver that is gone has nothing to do with it.
            let gone = out.send(Look {
                found,
                bytes,
                clocks,
                until_ns,
                ended_ns: last.then_some(before),
            });
            if last || gone.is_err() {
                return;
            }
        }
    }

    /// Leaves out stacks that would wait for too long. Gives the bytes of the others.
    fn leave_out(&self, found: &mut [Happening]) -> usize {
        let before = self.waiting.load(Ordering::Relaxed);
        let mut bytes = 0;
        for happening in found {
            match &mut happening.what {
                What::Leaves(_) if before + bytes > MOST_WAITING => {
                    happening.what = What::StacksLost(1);
                }
                What::Leaves(copied) | What::Sample(copied) => bytes += copied.stack.len(),
                _ => {}
            }
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Whether it is over.
    fn sleep(&mut self, stop: &OwnedFd) -> bool {
        let timeout = self.interval();
        let waited_for = self.channels.iter().filter(|channel| !channel.over);
        let rings = waited_for.map(|channel| channel.ring.as_fd());
        let places = [stop.as_fd()].into_iter().chain(rings);
        let mut places: Vec<_> = places
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // An interrupted poll is a short sleep.
        let _ = poll(&mut places, timeout);
        let happened = |place: PollFd<'_>| place.revents().unwrap_or(PollFlags::empty());
        let mut happened: Vec<_> = places.into_iter().map(happened).collect();
        let stopped = !happened.remove(0).is_empty();
        let waited_for = self.channels.iter_mut().filter(|channel| !channel.over);
        for (channel, happened) in waited_for.zip(happened) {
            channel.over = happened.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
        }
        stopped
    }

    /// How long to wait for rings that fill up.
    fn interval(&self) -> PollTimeout {
        let any = |wanted: fn(Kind) -> bool| {
            let mut kinds = self.channels.iter().map(|channel| channel.kind);
            kinds.any(wanted)
        };
        let copies = any(|kind| matches!(kind, Kind::CpuTime(_)));
        let newcomers = self.newcomers.as_ref();
        let interval = match newcomers {
            None if copies => Some(INTERVAL),
            Some(newcomers) if newcomers.are_copied() => Some(INTERVAL),
            _ if any(|kind| matches!(kind, Kind::Switches | Kind::Records)) => {
                Some(INTERVAL_OF_SWITCHES)
            }
            _ => None,
        };
        let due = newcomers.and_then(Newcomers::next_look);
        let shortest = interval.into_iter().chain(due).min();
        shortest.map_or(PollTimeout::NONE, |time| {
            PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)
        })
    }
}

fn clocks(found: &[Happening]) -> Vec<Clock> {
    let sampled = found
        .iter()
        .filter(|happening| matches!(happening.what, What::Sample(_)));
    let tasks: HashSet<Task> = sampled.map(|happening| happening.task).collect();
    let clock = |task: Task| {
        let cpu_ns = maps::cpu_ns(task.pid, task.tid)?;
        let now_ns = monotonic_ns();
        Some(Clock {
            task,
            cpu_ns,
            now_ns,
        })
    };
    tasks.into_iter().filter_map(clock).collect()
}

/// Unwinds what was read, and makes chunks of it, until there is no more. Gives what came of it.
pub(super) fn unwind(
    mut world: World,
    waiting_bytes: &AtomicUsize,
    looks: &Receiver<Look>,
    out: &Sender<Vec<Chunk>>,
) -> Outcome {
    let mut waiting: Vec<Happening> = Vec::new();
    let mut closed = Instant::now();
    let mut ended_ns = None;
    while let Ok(look) = looks.recv() {
        ended_ns = look.ended_ns;
        waiting.extend(look.found);
        waiting.sort_by_key(|happening| happening.time_ns);
        let ready = waiting.partition_point(|happening| happening.time_ns < look.until_ns);
        for happening in waiting.drain(..ready) {
            world.take_in(happening);
        }
        // What is left of it is of the last moments.
        waiting_bytes.fetch_sub(look.bytes, Ordering::Relaxed);
        let close = closed.elapsed() > CLOSING;
        world.settle(&look.clocks, close);
        if close {
            closed = Instant::now();
        }
        // A receiver that is gone does not want them.
        let _ = out.send(world.chunks());
    }
    world.finish(ended_ns.unwrap_or_else(monotonic_ns));
    let _ = out.send(world.chunks());
    world.outcome()
}

/// `CLOCK_MONOTONIC`, ns.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
