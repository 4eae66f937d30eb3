//! Stacks that the kernel copies and that are unwound here: of programs that the preload library cannot get into, at each sample of their
//! CPU time, whether they are what is recorded or one of its descendants ([`newcomers`]); and of all programs where their threads go off
//! the CPU, when no signal may be sent, for it would wake them.
//!
//! **Start at [`attach`].** Perf events on the program and all that it starts fill rings for each processor with samples: registers, the
//! upper part of the stack, the kernel's own stack. Threads of ours read them ([`copier`]), follow what each process is and has
//! mapped ([`world`], [`run`]), unwind the copies with framehop ([`walk`]) from the ELF files' tables ([`image`]), and make the same
//! chunks of them as programs that unwind themselves do ([`thread`]). A descendant that loads the preload library is left to itself, but for
//! its context switches: those of all programs become absences ([`presence`]) in chunks of their own ([`switches`]).
//!
//! ```text
//! rings of CPU time (copied programs) ──┐                    ┌─ run ── thread ────► chunks of the thread
//!                                       ├─► copier ─► world ─┤
//! rings of context switches ────────────┘    by time         └─ run ── switches ──► chunks FROM_SWITCHES
//! ```
//!
//! Not here: when this is done (`record`), and how recordings are read.

mod account;
mod arch;
mod copier;
mod event;
mod frozen;
mod image;
mod maps;
mod memory;
mod newcomers;
mod presence;
mod record;
mod refusal;
mod ring;
mod run;
mod switches;
mod thread;
mod urgency;
mod walk;
mod world;

pub use event::open_for_thread;
pub use frozen::{Entry, Frozen, Onlooker};
pub use refusal::{Refusal, Step};
pub use thread::Chunk;

use copier::{Channel, Reader};
use engine::wire::sample::Trigger;
use event::{Kind, Request, Tells};
use newcomers::Newcomers;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Pid, pipe2};
use record::Adopted;
use ring::Ring;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::thread::{Builder, JoinHandle};
use world::World;

/// Bytes of a stack that are copied. The kernel takes this much room in the ring for each sample, used or not.
const STACK_BYTES: u32 = 16 << 10;
/// Bounds of a ring's size, bytes: what is granted to any user, and what a large machine can spare for each processor.
const SMALLEST_RING: usize = 128 << 10;
const LARGEST_RING: usize = 4 << 20;
/// The same where threads go off the CPU, which they may do many thousand times a second.
const LARGEST_SWITCH_RING: usize = 16 << 20;
/// Rings of records without stacks, bytes: some ten thousand records, or where memory is scarce some hundred.
const RECORD_RING: usize = 512 << 10;
const SMALLEST_RECORD_RING: usize = 32 << 10;
/// Memory for all rings together, unless it makes them too small, bytes.
const ALL_RINGS: usize = 64 << 20;
/// Rings of context switches that have at least this size get copies of the full length, bytes.
const AMPLE_RING: usize = 512 << 10;
/// What others get: bytes of a stack.
const SCARCE_STACK_BYTES: u32 = 8 << 10;
/// A copy costs some ten microseconds: a shorter period would leave the program little time, ns.
const SHORTEST_PERIOD_NS: u64 = 100_000;

/// What is asked for, and what of it was granted.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Sampling period asked for, ns.
    pub asked_period_ns: u64,
    /// Sampling period in force, ns.
    pub period_ns: u64,
    /// Frames kept of a stack.
    pub max_depth: usize,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns.
    pub realtime_offset_ns: u64,
    /// Whether stacks are copied at samples of CPU time.
    pub cpu_time: bool,
    /// Whether they are where threads go off the CPU.
    pub switches: bool,
    /// Whether programs that do not unwind themselves are looked out for among those that are started.
    pub newcomers: bool,
    /// Bytes copied of a stack, at most; and where a thread goes off the CPU.
    stack_bytes: u32,
    switch_bytes: u32,
    /// Whether kernel mode is sampled.
    kernel: bool,
    /// errno of the refusal of that; 0 if granted.
    refused: u32,
}

impl Settings {
    /// With the period asked for made affordable.
    #[must_use]
    pub fn new(asked_period_ns: u64, max_depth: u32, realtime_offset_ns: u64) -> Self {
        Self {
            asked_period_ns,
            period_ns: asked_period_ns.max(SHORTEST_PERIOD_NS),
            max_depth: max_depth as usize,
            realtime_offset_ns,
            cpu_time: true,
            switches: false,
            newcomers: false,
            stack_bytes: STACK_BYTES,
            switch_bytes: STACK_BYTES,
            kernel: true,
            refused: 0,
        }
    }

    const fn trigger(&self) -> Trigger {
        if self.kernel {
            Trigger::PerfKernel
        } else {
            Trigger::PerfUser
        }
    }
}

/// When sampling begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// When the process calls exec, which it has not done yet.
    AtExec,
    /// At once, in a process that runs.
    Now,
}

/// Stacks of a program that are being copied.
#[derive(Debug)]
pub struct Copying {
    chunks: Receiver<Vec<Chunk>>,
    stop: Option<OwnedFd>,
    unwinding: Option<JoinHandle<Outcome>>,
    settings: Settings,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Program runs that were recorded.
    pub runs: u64,
    /// Programs that began and were not looked at, because the kernel's record of it was lost.
    pub unnoticed: u64,
}

/// Events that are open, and not read yet.
pub struct Attached {
    reader: Reader,
    world: World,
    settings: Settings,
}

/// Opens events on a process and everything that it will start: on CPU time with kernel mode if that is granted, else without.
///
/// # Errors
/// [`Refusal`] if neither is, or no context switches where those are asked for.
pub fn attach(pid: Pid, start: Start, mut settings: Settings) -> Result<Attached, Refusal> {
    let mut channels = Vec::new();
    if settings.cpu_time {
        channels = match open_cpu_time(pid, start, &settings) {
            Err(refusal) if matches!(refusal.errno, Errno::EACCES | Errno::EPERM) => {
                settings.kernel = false;
                settings.refused = refusal.errno as u32;
                open_cpu_time(pid, start, &settings)?
            }
            other => other?,
        };
    }
    if settings.switches {
        let (switches, bytes) = open_switches(pid, start, &settings)?;
        settings.switch_bytes = bytes;
        channels.extend(switches);
    }
    if settings.newcomers {
        match newcomers::listen(pid, start) {
            Err(refusal) if channels.is_empty() => return Err(refusal),
            heard => channels
                .splice(..0, heard.into_iter().flatten())
                .for_each(drop),
        }
    }
    let mut world = World::new(settings);
    let now = copier::monotonic_ns();
    match start {
        Start::AtExec if !settings.cpu_time && !settings.switches => {}
        Start::AtExec => {
            let cpu_ns = maps::cpu_ns(pid.as_raw(), pid.as_raw()).unwrap_or(0);
            world.expect(pid.as_raw(), now, cpu_ns);
        }
        Start::Now => {
            let events = channels.iter().map(|channel| channel.ring.event());
            events.for_each(event::enable);
            let pid = pid.as_raw();
            let adopted = Adopted {
                found: maps::find(pid, &[pid]),
                kernel_refused: None,
                unwatched: (maps::threads(pid).len() as u64).saturating_sub(1),
            };
            world.adopt(pid, now, adopted);
        }
    }
    Ok(Attached {
        reader: Reader::new(
            channels,
            settings.newcomers.then(|| Newcomers::new(settings)),
        ),
        world,
        settings,
    })
}

fn open_cpu_time(pid: Pid, start: Start, settings: &Settings) -> Result<Vec<Channel>, Refusal> {
    let request = Request {
        kind: Kind::CpuTime(settings.period_ns),
        tells: Tells::Everything,
        stack_bytes: settings.stack_bytes,
        kernel: settings.kernel,
        at_exec: start == Start::AtExec,
        watermark: 0,
    };
    open(pid, request, LARGEST_RING).map(|(channels, _)| channels)
}

/// Stacks in one ring of a processor, what pairs them in another. With the bytes that are copied of a stack: fewer where memory for rings is
/// scarce.
fn open_switches(
    pid: Pid,
    start: Start,
    settings: &Settings,
) -> Result<(Vec<Channel>, u32), Refusal> {
    let stacks = Request {
        kind: Kind::Switches,
        tells: Tells::Nothing,
        stack_bytes: settings.switch_bytes,
        kernel: true, // where they happen
        at_exec: start == Start::AtExec,
        watermark: 0,
    };
    let records = Request {
        kind: Kind::Records,
        tells: match settings.cpu_time {
            true => Tells::Nothing,
            false => Tells::Everything,
        },
        ..stacks
    };
    let share = memory::share();
    let (mut channels, size) = open(pid, records, RECORD_RING.min(share / 4))?;
    let (samples, size) = open(pid, stacks, share - size)?;
    if size >= AMPLE_RING {
        channels.extend(samples);
        return Ok((channels, stacks.stack_bytes));
    }
    drop(samples);
    let stacks = Request {
        stack_bytes: SCARCE_STACK_BYTES,
        ..stacks
    };
    channels.extend(open(pid, stacks, size)?.0);
    Ok((channels, stacks.stack_bytes))
}

/// One ring for each processor, as large as all of them can be, but no larger than `most`; gives their size.
fn open(pid: Pid, request: Request, most: usize) -> Result<(Vec<Channel>, usize), Refusal> {
    let processors = processors();
    let share = ALL_RINGS / processors.len().max(1);
    let smallest = match request.kind {
        Kind::Records => SMALLEST_RECORD_RING,
        Kind::Nothing => most, // as asked
        Kind::CpuTime(_) | Kind::Switches => SMALLEST_RING,
    };
    let mut size = 1 << share.min(most).max(smallest).ilog2();
    loop {
        let request = Request {
            watermark: match request.watermark {
                0 => (size / 4) as u32,
                asked => asked,
            },
            ..request
        };
        match open_with(pid, request, &processors, size) {
            Err(Refusal {
                step: Step::Map, ..
            }) if size > smallest => size /= 2,
            other => return other.map(|channels| (channels, size)),
        }
    }
}

fn open_with(
    pid: Pid,
    request: Request,
    processors: &[u32],
    size: usize,
) -> Result<Vec<Channel>, Refusal> {
    let refused = |step| move |errno| Refusal { step, errno };
    let one = |processor: &u32| match event::open(&request, pid, *processor) {
        // Taken away meanwhile.
        Err(Errno::ENODEV) => None,
        opened => Some(opened.map_err(refused(Step::Open)).and_then(|event| {
            Ok(Channel {
                ring: Ring::map(event, size).map_err(refused(Step::Map))?,
                processor: *processor,
                over: false,
                kind: request.kind,
                tells: request.tells,
                layout: event::layout(request.kernel),
            })
        })),
    };
    processors.iter().filter_map(one).collect()
}

/// Processors that are there; events on those that come later are not opened.
fn processors() -> Vec<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    let found: Vec<u32> = ranges.flatten().collect();
    if found.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        return (0..count as u32).collect();
    }
    found
}

impl Attached {
    /// Whether kernel mode is sampled too.
    #[must_use]
    pub const fn samples_kernel(&self) -> bool {
        self.settings.kernel
    }

    /// Begins to read.
    ///
    /// # Errors
    /// [`Refusal`] if no thread can be had for it.
    pub fn begin(self) -> Result<Copying, Refusal> {
        let refused = |errno| Refusal {
            step: Step::Read,
            errno,
        };
        let no_thread =
            |error: std::io::Error| refused(Errno::from_raw(error.raw_os_error().unwrap_or(0)));
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).map_err(refused)?;
        let (found, looks) = mpsc::channel();
        let (done, chunks) = mpsc::channel();
        let Self {
            reader,
            world,
            settings,
        } = self;
        let waiting = reader.waiting();
        let unwinding = Builder::new()
            .name("unwind-copies".into())
            .spawn(move || copier::unwind(world, &waiting, &looks, &done))
            .map_err(no_thread)?;
        Builder::new()
            .name("read-copies".into())
            .spawn(move || reader.run(&stopped, &found))
            .map_err(no_thread)?;
        Ok(Copying {
            chunks,
            stop: Some(stop),
            unwinding: Some(unwinding),
            settings,
        })
    }
}

impl Copying {
    /// What is ready for the recording.
    pub fn take(&mut self) -> impl Iterator<Item = Chunk> + '_ {
        self.chunks.try_iter().flatten()
    }

    /// Ends sampling.
    pub fn end(&mut self) {
        drop(self.stop.take());
    }

    /// Ends sampling, and gives what came of it; the rest is then ready.
    pub fn finish(&mut self) -> Outcome {
        self.end();
        // A thread that panicked has recorded nothing that could be relied on.
        self.unwinding
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }

    /// Sampling period in force, ns.
    #[must_use]
    pub const fn period_ns(&self) -> u64 {
        self.settings.period_ns
    }
}
