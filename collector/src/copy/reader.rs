//! Two threads of ours while the program runs: one reads the rings, the other unwinds what was
//! found there.
//!
//! Each processor has a ring of its own, so records are put in order of time before anything
//! follows from them; those of the last moments wait for the next look, because another ring may
//! still get an older one.

use super::Outcome;
use super::cpu_clock::{Clock, clocks};
use super::program_runs::ProgramRuns;
use super::spate::{REST, Spate};

use crate::clock::monotonic_ns;
use crate::cpu_rings::request::{self, Kind, Request};
use crate::cpu_rings::{CpuRing, TaskRecord, What, read};
use crate::exec_watch::ExecWatch;
use crate::recording::records::Chunk;
use crate::urgency::make_urgent;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// The longest time between looks; rings that fill up ask for one sooner. CPU clocks are to be read
/// before their threads end.
const INTERVAL: Duration = Duration::from_millis(50);
const INTERVAL_OF_SWITCHES: Duration = Duration::from_millis(200);
/// The same where interpreters are to be asked about threads before they are back: so long behind
/// the last switch, and else.
const ACTIVE: Duration = Duration::from_millis(50);
const INTERVAL_OF_INTERPRETERS: Duration = Duration::from_millis(1);
const INTERVAL_OF_IDLE_INTERPRETERS: Duration = Duration::from_millis(4);
/// Within this time of a sample its record is in the ring, ns.
pub(super) const DELAY_NS: u64 = 2_000_000;
/// Bytes of copied stacks that may wait to be unwound: those of context switches beyond are left
/// out.
const MOST_WAITING: usize = 256 << 20;
/// So often what is known goes into the recording.
const CLOSING: Duration = Duration::from_secs(1);

/// What the one who unwinds tells the one who reads.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes of copied stacks that wait to be unwound.
    waiting: AtomicUsize,
    /// Whether threads that go off the CPU are to be looked at while they are.
    soon: AtomicBool,
}

/// Reads the rings and CPU clocks, and does nothing else, so that the rings are empty again before
/// they are full.
pub(super) struct Reader {
    rings: Vec<CpuRing>,
    /// Events on threads that wrote to rings before they were read.
    lent: Vec<OwnedFd>,
    /// What was read of them already.
    early: Vec<TaskRecord>,
    shared: Arc<Shared>,
    execs: Option<ExecWatch>,
    spate: Spate,
    /// When a look found something last.
    found: Instant,
}

/// What was found in one look at the rings.
pub(super) struct Look {
    found: Vec<TaskRecord>,
    /// Bytes of stacks in it.
    bytes: usize,
    /// CPU clocks of the threads that were sampled.
    clocks: Vec<Clock>,
    /// Everything older than that has been found, ns.
    until_ns: u64,
    /// When sampling ended, if this is the last one, ns.
    ended_ns: Option<u64>,
}

impl Reader {
    pub(super) fn new(rings: Vec<CpuRing>, execs: Option<ExecWatch>) -> Self {
        Self {
            rings,
            lent: Vec::new(),
            early: Vec::new(),
            execs,
            shared: Arc::default(),
            spate: Spate::new(Instant::now()),
            found: Instant::now(),
        }
    }

    /// With the events of threads that write to its rings, and what was read of those already.
    pub(super) fn with(self, lent: Vec<OwnedFd>, early: Vec<TaskRecord>) -> Self {
        Self {
            lent,
            early,
            ..self
        }
    }

    /// For the one who unwinds.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Reads until the other end of `stop` is closed.
    pub(super) fn run(mut self, stop: &OwnedFd, out: &Sender<Look>) {
        make_urgent();
        let (mut sent, mut found_some) = (Instant::now(), true);
        loop {
            let last = match self.spate.is_on() {
                true => rest(stop),
                false => self.sleep(stop),
            };
            let before = monotonic_ns();
            if last {
                let events = self.rings.iter().map(|ring| ring.buffer.event());
                events.chain(&self.lent).for_each(request::disable);
                self.execs.iter_mut().for_each(ExecWatch::disable);
            }
            let mut found = std::mem::take(&mut self.early);
            found.extend(self.execs.iter_mut().flat_map(ExecWatch::take_early));
            for ring in &mut self.rings {
                let (Request { kind, tells, .. }, layout) = (ring.request, ring.layout);
                let ring = &mut ring.buffer;
                ring.take(|raw| found.extend(read(&raw, &layout, kind, tells)));
            }
            let is_thread = |record: &TaskRecord| matches!(record.what, What::Fork(_) | What::Exit);
            self.spate
                .looked(Instant::now(), !found.iter().all(is_thread));
            if let Some(execs) = &mut self.execs
                && !last
            {
                execs.attend(&mut self.rings, &mut found);
            }
            // As long as no process but those that unwind themselves is known, nobody asks what
            // threads they have.
            if self
                .rings
                .iter()
                .all(|ring| ring.request.kind == Kind::Nothing)
            {
                found.retain(|record| !is_thread(record));
            }
            // What was found before waits for a look that finds nothing older; a further one would
            // wake its reader for nothing.
            let found_before = std::mem::replace(&mut found_some, !found.is_empty());
            if found_some {
                self.found = Instant::now();
            }
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
    fn leave_out(&self, found: &mut [TaskRecord]) -> usize {
        let before = self.shared.waiting.load(Ordering::Relaxed);
        let mut bytes = 0;
        for record in found {
            match &mut record.what {
                What::Leaves(_) if before + bytes > MOST_WAITING => {
                    record.what = What::StacksLost(1);
                }
                What::Leaves(copied) | What::Sample(copied) => bytes += copied.stack.len(),
                _ => {}
            }
        }
        self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Whether it is over.
    fn sleep(&mut self, stop: &OwnedFd) -> bool {
        let timeout = self.interval();
        let waited_for = self.rings.iter().filter(|ring| !ring.over);
        let rings = waited_for.map(|ring| ring.buffer.as_fd());
        let places = [stop.as_fd()].into_iter().chain(rings);
        let mut places: Vec<_> = places
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // An interrupted poll is a short sleep.
        let _ = poll(&mut places, timeout);
        let happened = |place: PollFd<'_>| place.revents().unwrap_or(PollFlags::empty());
        let mut happened: Vec<_> = places.into_iter().map(happened).collect();
        let stopped = !happened.remove(0).is_empty();
        let waited_for = self.rings.iter_mut().filter(|ring| !ring.over);
        for (ring, happened) in waited_for.zip(happened) {
            ring.over = happened.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
        }
        stopped
    }

    /// How long to wait for rings that fill up.
    fn interval(&self) -> PollTimeout {
        let any = |wanted: fn(Kind) -> bool| {
            let mut kinds = self.rings.iter().map(|ring| ring.request.kind);
            kinds.any(wanted)
        };
        let copies = any(|kind| matches!(kind, Kind::CpuTime(_)));
        let execs = self.execs.as_ref();
        let soon = self.shared.soon.load(Ordering::Relaxed);
        let interval = match execs {
            _ if soon && self.found.elapsed() < ACTIVE => Some(INTERVAL_OF_INTERPRETERS),
            _ if soon => Some(INTERVAL_OF_IDLE_INTERPRETERS),
            None if copies => Some(INTERVAL),
            Some(execs) if execs.are_copied() => Some(INTERVAL),
            _ if any(|kind| matches!(kind, Kind::Switches | Kind::Records)) => {
                Some(INTERVAL_OF_SWITCHES)
            }
            _ => None,
        };
        let due = execs.and_then(ExecWatch::next_look);
        let shortest = interval.into_iter().chain(due).min();
        shortest.map_or(PollTimeout::NONE, |time| {
            PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)
        })
    }
}

/// Looks away from the rings for a moment. Whether it is over.
fn rest(stop: &OwnedFd) -> bool {
    let mut places = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
    let _ = ppoll(&mut places, Some(TimeSpec::from_duration(REST)), None);
    let [place] = places;
    place.any().unwrap_or(true)
}

/// Unwinds what was read, and makes chunks of it, until there is no more. Gives what came of it.
pub(super) fn unwind(
    mut runs: ProgramRuns,
    shared: &Shared,
    looks: &Receiver<Look>,
    out: &Sender<Vec<Chunk>>,
) -> Outcome {
    let mut waiting: Vec<TaskRecord> = Vec::new();
    let mut closed = Instant::now();
    let mut ended_ns = None;
    while let Ok(look) = looks.recv() {
        ended_ns = look.ended_ns;
        waiting.extend(look.found);
        waiting.sort_by_key(|record| record.time_ns);
        runs.look_ahead(&waiting);
        let ready = waiting.partition_point(|record| record.time_ns < look.until_ns);
        for record in waiting.drain(..ready) {
            runs.take_in(record);
        }
        // What is left of it is of the last moments.
        shared.waiting.fetch_sub(look.bytes, Ordering::Relaxed);
        shared.soon.store(runs.wants_soon(), Ordering::Relaxed);
        let close = closed.elapsed() > CLOSING;
        runs.settle(&look.clocks, close);
        if close {
            closed = Instant::now();
        }
        // A receiver that is gone does not want them.
        let _ = out.send(runs.chunks());
    }
    runs.finish(ended_ns.unwrap_or_else(monotonic_ns));
    let _ = out.send(runs.chunks());
    runs.outcome()
}
