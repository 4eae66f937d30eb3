//! Perf events of our own on other processes and all that they start, and their records: a ring for
//! each processor, because the kernel gives an inherited event none otherwise.
//!
//! Start at [`open`]. [`request`] says what is asked of the kernel, [`ring`] reads what it wrote,
//! [`task_record`] makes it a [`TaskRecord`]. [`opening`] is for processes that run already.
//!
//! Not here: rings that threads open for themselves and lend to the collector (`record/rings`).

pub mod memory;
pub(crate) mod opening;
mod refusal;
pub mod request;
mod ring;
mod task_record;

pub use refusal::{Refusal, Step};
pub(crate) use task_record::{Adopted, Copied, Task, TaskRecord, What, read};

use crate::perf_event::THIS_THREAD;
use linux_perf_event_reader::RecordParseInfo;
use nix::errno::Errno;
use nix::unistd::Pid;
use request::{Kind, Request, Tells};
pub(crate) use ring::Ring;
use std::os::fd::OwnedFd;

/// Bounds of a ring's size, bytes: what is granted to any user, and what a large machine can spare
/// for each processor.
const SMALLEST_RING: usize = 128 << 10;
pub(crate) const LARGEST_RING: usize = 4 << 20;
/// The same where threads go off the CPU, which they may do many thousand times a second.
const LARGEST_SWITCH_RING: usize = 16 << 20;
/// Rings of records without stacks, bytes: some ten thousand records, or where memory is scarce
/// some hundred.
pub(crate) const RECORD_RING: usize = 512 << 10;
const SMALLEST_RECORD_RING: usize = 32 << 10;
/// Memory for all rings together, unless it makes them too small, bytes.
const ALL_RINGS: usize = 64 << 20;
/// When sampling begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// When the process calls exec, which it has not done yet.
    AtExec,
    /// At once, in a process that runs.
    Now,
}

/// The ring of a processor, and how to read it.
pub(crate) struct CpuRing {
    pub(crate) buffer: Ring,
    pub(crate) processor: u32,
    /// Nobody has its event any more, which makes it always readable: it is not waited for.
    pub(crate) over: bool,
    /// What the events that write to it ask for.
    pub(crate) request: Request,
    pub(crate) layout: RecordParseInfo,
}

/// One ring for each processor, as large as all of them can be, but no larger than `most`, of
/// events on a process; gives their size.
pub(crate) fn open(
    pid: Pid,
    request: Request,
    most: usize,
) -> Result<(Vec<CpuRing>, usize), Refusal> {
    fit(request, most, |request, processors, size| {
        open_with(pid, request, processors, size)
    })
}

/// The same for events that are opened on single threads later ([`lent`]): until then events on the
/// calling thread hold them, which count nothing.
pub(crate) fn lend(request: Request, most: usize) -> Result<(Vec<CpuRing>, usize), Refusal> {
    fit(request, most, |request, processors, size| {
        let lender = Request {
            kind: Kind::Nothing,
            tells: Tells::Nothing,
            ..request
        };
        let mut rings = open_with(THIS_THREAD, lender, processors, size)?;
        for ring in &mut rings {
            ring.request = request;
        }
        Ok(rings)
    })
}

/// Opens an event on a thread that writes to a ring of [`lend`]; it is not enabled.
///
/// # Errors
/// As `perf_event_open(2)`: ESRCH where the thread is gone, ENODEV where the processor is.
pub(crate) fn lent(tid: i32, ring: &CpuRing) -> Result<OwnedFd, Errno> {
    let event = request::open(&ring.request, Pid::from_raw(tid), ring.processor)?;
    request::redirect(&event, ring.buffer.event())?;
    Ok(event)
}

fn fit(
    request: Request,
    most: usize,
    open: impl Fn(Request, &[u32], usize) -> Result<Vec<CpuRing>, Refusal>,
) -> Result<(Vec<CpuRing>, usize), Refusal> {
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
        match open(request, &processors, size) {
            Err(Refusal {
                step: Step::Map, ..
            }) if size > smallest => size /= 2,
            other => return other.map(|rings| (rings, size)),
        }
    }
}

fn open_with(
    pid: Pid,
    request: Request,
    processors: &[u32],
    size: usize,
) -> Result<Vec<CpuRing>, Refusal> {
    let refused = |step| move |errno| Refusal { step, errno };
    let one = |processor: &u32| match request::open(&request, pid, *processor) {
        // Taken away meanwhile.
        Err(Errno::ENODEV) => None,
        opened => Some(opened.map_err(refused(Step::Open)).and_then(|event| {
            Ok(CpuRing {
                buffer: Ring::map(event, size).map_err(refused(Step::Map))?,
                processor: *processor,
                over: false,
                request,
                layout: request::layout(request.kernel),
            })
        })),
    };
    processors.iter().filter_map(one).collect()
}

/// Processors that are there; events on those that come later are not opened.
pub(crate) fn processors() -> Vec<u32> {
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
