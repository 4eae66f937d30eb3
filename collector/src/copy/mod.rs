//! Stacks that the kernel copies and that are unwound here: of programs that the preload library
//! cannot get into, at each sample of their CPU time, whether they are what is recorded or one of
//! its descendants ([`crate::exec_watch`]); and of all programs where their threads go off the CPU,
//! when no signal may be sent, for it would wake them.
//!
//! **Start at [`attach()`]**; at [`attach_running()`] for processes that run already, and at
//! [`attach_everybody()`] for all of them. Perf events on the program and all that it starts fill
//! rings for each processor with samples: registers, the upper part of the stack, the kernel's own
//! stack. Threads of ours read them ([`reader`]), follow what each process is and has mapped
//! ([`program_runs`], [`run`]), unwind the copies with framehop ([`crate::unwind`]) from the ELF
//! files' tables, and make the same chunks of them as programs that unwind themselves do
//! ([`copied_thread`]). A descendant that loads the preload library is left to itself, but for its
//! context switches: those of all programs become absences in chunks of their own
//! ([`crate::off_cpu`]). Of threads that unwind themselves beside that ([`beside`]) only what was
//! taken in the kernel is kept, in chunks of that kind.
//!
//! ```text
//! CPU time (copied programs) ──┐ rings              ┌─ run ── copied_thread ─► the thread's chunks
//!                              ├─► reader ─► runs ──┤
//! context switches ────────────┘    by time         └─ run ── off_cpu ───────► FROM_SWITCHES
//! ```
//!
//! Not here: when this is done (`record`), and how recordings are read.

mod attach;
mod beside;
mod copied_thread;
mod cpu_clock;
mod events;
mod notes;
mod program_runs;
mod reader;
mod run;
mod running;
mod spate;

pub use attach::attach;
pub use beside::Beside;
pub use running::{attach_everybody, attach_running};

use crate::cpu_rings::request::{Kind, Request, Tells};
use crate::cpu_rings::{Refusal, Step};
use crate::recording::records::Chunk;
use engine::wire::sample::Trigger;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use program_runs::ProgramRuns;
use reader::Reader;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::thread::{Builder, JoinHandle};

/// Bytes of a stack that are copied. The kernel takes this much room in the ring for each sample,
/// used or not.
const STACK_BYTES: u32 = 16 << 10;
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
    /// Whether the programs ran before recording began: they are copied whether they could unwind
    /// themselves or not, and their CPU time counts from then on.
    running: bool,
    /// Whether all processes are copied but this one, whatever is known of their beginning.
    everybody: bool,
    /// Whether some of them unwind themselves meanwhile ([`Beside`]).
    beside: bool,
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
            running: false,
            everybody: false,
            beside: false,
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
        let shared = reader.shared();
        let unwinding = Builder::new()
            .name("unwind-copies".into())
            .spawn(move || reader::unwind(runs, &shared, &looks, &done))
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
