//! Programs that the preload library cannot get into: the kernel copies their stacks at each sample, and they are unwound here.
//!
//! **Start at [`attach`].** Perf events on the program and all that it starts fill a ring for each processor with samples: registers, the
//! upper part of the stack, the kernel's own stack. Threads of ours read them ([`copier`]), follow what each process is and has
//! mapped ([`world`], [`run`]), unwind the copies with framehop ([`walk`]) from the ELF files' tables ([`image`]), and make the same
//! chunks of them as programs that unwind themselves do ([`thread`]). A descendant that loads the preload library is left to itself.
//!
//! Not here: when this is done (`record`), and how recordings are read.

mod arch;
mod copier;
mod event;
mod frozen;
mod image;
mod maps;
mod record;
mod refusal;
mod ring;
mod run;
mod thread;
mod walk;
mod world;

pub use event::open_for_thread;
pub use frozen::{Entry, Frozen, Onlooker};
pub use refusal::{Refusal, Step};
pub use thread::Chunk;

use copier::Reader;
use engine::wire::sample::Trigger;
use event::Request;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Pid, pipe2};
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
/// Memory for all rings together, unless it makes them too small, bytes.
const ALL_RINGS: usize = 64 << 20;
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
    /// Bytes copied of a stack, at most.
    stack_bytes: u32,
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
            stack_bytes: STACK_BYTES,
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
    unwinding: Option<JoinHandle<u64>>,
    settings: Settings,
}

/// Events that are open, and not read yet.
pub struct Attached {
    reader: Reader,
    world: World,
    settings: Settings,
}

/// Opens events on a process and everything that it will start: with kernel mode if that is granted, else without.
///
/// # Errors
/// [`Refusal`] if neither is.
pub fn attach(pid: Pid, start: Start, mut settings: Settings) -> Result<Attached, Refusal> {
    let rings = match open(pid, start, &settings) {
        Err(refusal) if matches!(refusal.errno, Errno::EACCES | Errno::EPERM) => {
            settings.kernel = false;
            settings.refused = refusal.errno as u32;
            open(pid, start, &settings)?
        }
        other => other?,
    };
    let mut world = World::new(settings);
    let now = copier::monotonic_ns();
    match start {
        Start::AtExec => {
            let cpu_ns = maps::cpu_ns(pid.as_raw(), pid.as_raw()).unwrap_or(0);
            world.expect(pid.as_raw(), now, cpu_ns);
        }
        Start::Now => {
            rings.iter().for_each(|ring| event::enable(ring.event()));
            world.adopt(pid.as_raw(), now);
        }
    }
    let layout = event::layout(settings.kernel);
    Ok(Attached {
        reader: Reader::new(rings, layout),
        world,
        settings,
    })
}

/// One ring for each processor, as large as all of them can be.
fn open(pid: Pid, start: Start, settings: &Settings) -> Result<Vec<Ring>, Refusal> {
    let processors = processors();
    let share = (ALL_RINGS / processors.len().max(1)).clamp(SMALLEST_RING, LARGEST_RING);
    let mut size = 1 << share.ilog2();
    loop {
        match open_with(pid, start, settings, &processors, size) {
            Err(Refusal {
                step: Step::Map, ..
            }) if size > SMALLEST_RING => size /= 2,
            other => return other,
        }
    }
}

fn open_with(
    pid: Pid,
    start: Start,
    settings: &Settings,
    processors: &[u32],
    size: usize,
) -> Result<Vec<Ring>, Refusal> {
    let request = Request {
        period_ns: settings.period_ns,
        stack_bytes: settings.stack_bytes,
        kernel: settings.kernel,
        at_exec: start == Start::AtExec,
        watermark: (size / 4) as u32,
    };
    let refused = |step| move |errno| Refusal { step, errno };
    let one = |processor: &u32| match event::open(&request, pid, *processor) {
        // Taken away meanwhile.
        Err(Errno::ENODEV) => None,
        opened => Some(
            opened
                .map_err(refused(Step::Open))
                .and_then(|event| Ring::map(event, size).map_err(refused(Step::Map))),
        ),
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
        let unwinding = Builder::new()
            .name("unwind-copies".into())
            .spawn(move || copier::unwind(world, &looks, &done))
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

    /// Ends sampling, and gives the number of program runs that were recorded; the rest is then ready.
    pub fn finish(&mut self) -> u64 {
        drop(self.stop.take());
        // A thread that panicked has recorded nothing that could be relied on.
        self.unwinding
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or(0)
    }

    /// Sampling period in force, ns.
    #[must_use]
    pub const fn period_ns(&self) -> u64 {
        self.settings.period_ns
    }
}
