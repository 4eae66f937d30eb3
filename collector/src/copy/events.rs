//! Which events are opened for copies, and the memory that their rings get.

use super::Settings;
use crate::cpu_rings::request::{Kind, Request, Tells};
use crate::cpu_rings::{CpuRing, LARGEST_RING, RECORD_RING, Refusal, Start, lend, memory, open};
use crate::perf_event::EVERYBODY;
use nix::errno::Errno;
use nix::unistd::Pid;

/// Rings of context switches that have at least this size get copies of the full length, bytes.
const AMPLE_RING: usize = 512 << 10;
/// What others get: bytes of a stack.
const SCARCE_STACK_BYTES: u32 = 8 << 10;

/// Whom the events are on.
#[derive(Clone, Copy)]
pub(super) enum On {
    /// A process, and all that it starts.
    Process(Pid, Start),
    /// Threads that are found later, and all that they start.
    Threads,
    /// Whoever runs.
    Everybody,
}

impl On {
    fn open(self, request: Request, most: usize) -> Result<(Vec<CpuRing>, usize), Refusal> {
        match self {
            Self::Process(pid, _) => open(pid, request, most),
            Self::Threads => lend(request, most),
            Self::Everybody => open(EVERYBODY, request, most),
        }
    }

    fn at_exec(self) -> bool {
        matches!(self, Self::Process(_, Start::AtExec))
    }

    /// Everything that is asked for: CPU time with kernel mode if that is granted, else without.
    ///
    /// # Errors
    /// [`Refusal`] if neither is, or no context switches where those are asked for.
    pub(super) fn rings(self, settings: &mut Settings) -> Result<Vec<CpuRing>, Refusal> {
        let mut rings = Vec::new();
        if settings.cpu_time {
            rings = match self.cpu_time(settings) {
                Err(refusal) if matches!(refusal.errno, Errno::EACCES | Errno::EPERM) => {
                    settings.kernel = false;
                    settings.refused = refusal.errno as u32;
                    self.cpu_time(settings)?
                }
                other => other?,
            };
        }
        if settings.switches {
            let (switches, bytes) = self.switches(settings)?;
            settings.switch_bytes = bytes;
            rings.extend(switches);
        }
        Ok(rings)
    }

    fn cpu_time(self, settings: &Settings) -> Result<Vec<CpuRing>, Refusal> {
        let request = Request {
            kind: Kind::CpuTime(settings.period_ns),
            tells: Tells::Everything,
            stack_bytes: settings.stack_bytes,
            kernel: settings.kernel,
            at_exec: self.at_exec(),
            watermark: 0,
        };
        self.open(request, LARGEST_RING).map(|(rings, _)| rings)
    }

    /// Stacks in one ring of a processor, what pairs them in another. With the bytes that are
    /// copied of a stack: fewer where memory for rings is scarce.
    fn switches(self, settings: &Settings) -> Result<(Vec<CpuRing>, u32), Refusal> {
        let stacks = Request {
            kind: Kind::Switches,
            tells: Tells::Nothing,
            stack_bytes: settings.switch_bytes,
            kernel: true, // where they happen
            at_exec: self.at_exec(),
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
        let (mut rings, size) = self.open(records, RECORD_RING.min(share / 4))?;
        let (samples, size) = self.open(stacks, share - size)?;
        if size >= AMPLE_RING {
            rings.extend(samples);
            return Ok((rings, stacks.stack_bytes));
        }
        drop(samples);
        let stacks = Request {
            stack_bytes: SCARCE_STACK_BYTES,
            ..stacks
        };
        rings.extend(self.open(stacks, size)?.0);
        Ok((rings, stacks.stack_bytes))
    }
}
