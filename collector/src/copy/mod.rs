//! Stacks that the kernel copies and that are unwound here: of programs that the preload library
//! cannot get into, at each sample of their CPU time, whether they are what is recorded or one of
//! its descendants ([`exec_watch`]); and of all programs where their threads go off the CPU, when
//! no signal may be sent, for it would wake them.
//!
//! **Start at [`attach`].** Perf events on the program and all that it starts fill rings for each
//! processor with samples: registers, the upper part of the stack, the kernel's own stack. Threads
//! of ours read them ([`reader`]), follow what each process is and has mapped ([`program_runs`],
//! [`run`]), unwind the copies with framehop ([`crate::unwind`]) from the ELF files' tables, and
//! make the same chunks of them as programs that unwind themselves do ([`copied_thread`]). A
//! descendant that loads the preload library is left to itself, but for its context switches: those
//! of all programs become absences in chunks of their own ([`crate::off_cpu`]).
//!
//! ```text
//! rings of CPU time (copied programs) ──┐                    ┌─ run ── copied_thread ─► chunks of the thread
//!                                       ├─► reader ─► runs ──┤
//! rings of context switches ────────────┘    by time         └─ run ── off_cpu ───────► chunks FROM_SWITCHES
//! ```
//!
//! Not here: when this is done (`record`), and how recordings are read.

mod copied_thread;
mod cpu_clock;
mod notes;
mod program_runs;
mod reader;
mod run;
mod spate;
mod urgency;

use crate::clock::monotonic_ns;
use crate::cpu_rings::request::{self, Kind, Request, Tells};
use crate::cpu_rings::{
    Adopted, CpuRing, LARGEST_RING, RECORD_RING, Refusal, Start, Step, memory, open,
};
use crate::exec_watch::{self, ExecWatch};
use crate::processes;
use crate::recording::records::Chunk;
use engine::wire::sample::Trigger;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Pid, pipe2};
use program_runs::ProgramRuns;
use reader::Reader;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::thread::{Builder, JoinHandle};

/// Bytes of a stack that are copied. The kernel takes this much room in the ring for each sample,
/// used or not.
const STACK_BYTES: u32 = 16 << 10;
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
    /// Whether programs that do not unwind themselves are looked out for among those that are
    /// started.
    pub execs: bool,
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
            execs: false,
            stack_bytes: STACK_BYTES,
            switch_bytes: STACK_BYTES,
            kernel: true,
            refused: 0,
        }
    }

    /// What is asked of the kernel for programs that are found later, and cannot unwind themselves.
    const fn of_new_programs(&self) -> Request {
        Request {
            kind: Kind::CpuTime(self.period_ns),
            // Where context switches are recorded, their events tell everything else.
            tells: match self.switches {
                true => Tells::Programs,
                false => Tells::Everything,
            },
            stack_bytes: self.stack_bytes,
            kernel: self.kernel,
            at_exec: false,
            watermark: 0,
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
    runs: ProgramRuns,
    settings: Settings,
}

/// Opens events on a process and everything that it will start: on CPU time with kernel mode if
/// that is granted, else without.
///
/// # Errors
/// [`Refusal`] if neither is, or no context switches where those are asked for.
pub fn attach(pid: Pid, start: Start, mut settings: Settings) -> Result<Attached, Refusal> {
    let mut rings = Vec::new();
    if settings.cpu_time {
        rings = match open_cpu_time(pid, start, &settings) {
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
        rings.extend(switches);
    }
    if settings.execs {
        match exec_watch::listen(pid, start) {
            Err(refusal) if rings.is_empty() => return Err(refusal),
            heard => rings
                .splice(..0, heard.into_iter().flatten())
                .for_each(drop),
        }
    }
    let mut runs = ProgramRuns::new(settings);
    let now = monotonic_ns();
    match start {
        Start::AtExec if !settings.cpu_time && !settings.switches => {}
        Start::AtExec => {
            let cpu_ns = processes::cpu_ns(pid.as_raw(), pid.as_raw()).unwrap_or(0);
            runs.expect(pid.as_raw(), now, cpu_ns);
        }
        Start::Now => {
            let events = rings.iter().map(|ring| ring.buffer.event());
            events.for_each(request::enable);
            let pid = pid.as_raw();
            let adopted = Adopted {
                found: processes::find(pid, &[pid]),
                kernel_refused: None,
                unwatched: (processes::threads(pid).len() as u64).saturating_sub(1),
                has_library: false,
            };
            runs.adopt(pid, now, adopted);
        }
    }
    Ok(Attached {
        reader: Reader::new(
            rings,
            settings
                .execs
                .then(|| ExecWatch::new(settings.of_new_programs())),
        ),
        runs,
        settings,
    })
}

fn open_cpu_time(pid: Pid, start: Start, settings: &Settings) -> Result<Vec<CpuRing>, Refusal> {
    let request = Request {
        kind: Kind::CpuTime(settings.period_ns),
        tells: Tells::Everything,
        stack_bytes: settings.stack_bytes,
        kernel: settings.kernel,
        at_exec: start == Start::AtExec,
        watermark: 0,
    };
    open(pid, request, LARGEST_RING).map(|(rings, _)| rings)
}

/// Stacks in one ring of a processor, what pairs them in another. With the bytes that are copied of
/// a stack: fewer where memory for rings is scarce.
fn open_switches(
    pid: Pid,
    start: Start,
    settings: &Settings,
) -> Result<(Vec<CpuRing>, u32), Refusal> {
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
    let (mut rings, size) = open(pid, records, RECORD_RING.min(share / 4))?;
    let (samples, size) = open(pid, stacks, share - size)?;
    if size >= AMPLE_RING {
        rings.extend(samples);
        return Ok((rings, stacks.stack_bytes));
    }
    drop(samples);
    let stacks = Request {
        stack_bytes: SCARCE_STACK_BYTES,
        ..stacks
    };
    rings.extend(open(pid, stacks, size)?.0);
    Ok((rings, stacks.stack_bytes))
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
            runs,
            settings,
        } = self;
        let waiting = reader.waiting();
        let unwinding = Builder::new()
            .name("unwind-copies".into())
            .spawn(move || reader::unwind(runs, &waiting, &looks, &done))
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
