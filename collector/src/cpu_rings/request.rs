//! The perf events that copy stacks: on one process and everything it starts, one event for each
//! processor, because the kernel gives an inherited event no ring otherwise; or on all that runs on
//! a processor.
//!
//! Not here: the rings ([`super::ring`]) and what is in them ([`super::task_record`]).
//!
//! # Safety
//! One system call: `ioctl` without a memory argument.
#![allow(unsafe_code)]

use crate::perf_event::{self, EVERYBODY};
use crate::unwind::registers::USER_REGISTERS;
use engine::perf_event::{Attributes, flag, kind, request, software};
use linux_perf_event_reader::{
    BranchSampleFormat, Endianness, ReadFormat, RecordIdParseInfo, RecordParseInfo, SampleFormat,
};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::os::fd::{AsRawFd, OwnedFd};

/// What makes a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// CPU time, every so many ns.
    CpuTime(u64),
    /// Each context switch of a thread from a CPU.
    Switches,
    /// Nothing: there are only records, of switches from a CPU and back to one. They have a ring of
    /// their own, because they are small, and without one of them the others do not say how long a
    /// thread was away.
    Records,
    /// Nothing by itself: it may tell what happens, and lend its ring to other events.
    Nothing,
}

/// What an event tells beside its samples. Of the events that a process has one tells everything,
/// so that nothing is heard twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    Nothing,
    /// That a program began, by exec.
    Programs,
    /// What processes begin, map, and are named.
    Everything,
}

/// What is asked of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) tells: Tells,
    /// Bytes of stack copied at each sample, at most.
    pub(crate) stack_bytes: u32,
    /// Whether kernel mode is sampled too.
    pub(crate) kernel: bool,
    /// Whether it begins when the process calls exec; else at once.
    pub(crate) at_exec: bool,
    /// Bytes in a ring at which its reader is woken; 0 for a share of its size.
    pub(crate) watermark: u32,
}

const PROGRAMS: u64 = flag::COMM | flag::COMM_EXEC;
const EVERYTHING: u64 = PROGRAMS | flag::MMAP | flag::MMAP2 | flag::TASK;

/// Opens the event of one processor on a process, or [`EVERYBODY`]; it waits for exec or for
/// [`enable`].
///
/// # Errors
/// As `perf_event_open(2)`.
pub(crate) fn open(request: &Request, pid: Pid, processor: u32) -> Result<OwnedFd, Errno> {
    let processor = i32::try_from(processor).map_err(|_| Errno::ENODEV)?;
    let mut attributes = attributes(request);
    match (pid, request.kind) {
        // A task's own clock stands for the processor's here, and that of nobody is left out.
        (EVERYBODY, Kind::CpuTime(_)) => {
            attributes.config = software::CPU_CLOCK;
            attributes.flags |= flag::EXCLUDE_IDLE;
        }
        (EVERYBODY, _) => {}
        _ => attributes.flags |= flag::INHERIT,
    }
    perf_event::open(&attributes, pid, processor)
}

/// Opens an event on one thread alone, wherever it runs; it waits for exec or for [`enable`].
///
/// # Errors
/// As `perf_event_open(2)`.
pub(crate) fn open_on_thread(request: &Request, tid: Pid) -> Result<OwnedFd, Errno> {
    perf_event::open(&attributes(request), tid, perf_event::ANY_PROCESSOR)
}

fn attributes(request: &Request) -> Attributes {
    let kernel = if request.kernel {
        flag::EXCLUDE_CALLCHAIN_USER
    } else {
        flag::EXCLUDE_KERNEL
    };
    let (config, period, own) = match request.kind {
        Kind::CpuTime(period_ns) => (software::TASK_CLOCK, period_ns, 0),
        Kind::Switches => (software::CONTEXT_SWITCHES, 1, 0),
        Kind::Records => (software::DUMMY, 1, flag::CONTEXT_SWITCH),
        Kind::Nothing => (software::DUMMY, 1, 0),
    };
    let told = match request.tells {
        Tells::Nothing => 0,
        Tells::Programs => PROGRAMS,
        Tells::Everything => EVERYTHING,
    };
    let when = |wanted, flag| if wanted { flag } else { 0 };
    Attributes {
        kind: kind::SOFTWARE,
        config,
        sample_period: period,
        sample_type: sample_format(request.kernel).bits(),
        flags: flag::DISABLED
            | flag::EXCLUDE_HV
            | flag::WATERMARK
            | flag::SAMPLE_ID_ALL
            | flag::USE_CLOCKID
            | kernel
            | own
            | told
            | when(request.at_exec, flag::ENABLE_ON_EXEC),
        wakeup: request.watermark,
        sample_regs_user: USER_REGISTERS,
        sample_stack_user: request.stack_bytes,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    }
}

/// Begins to sample, the process and all that inherited the event from it.
pub(crate) fn enable(event: &OwnedFd) {
    control(event, request::ENABLE);
}

/// Ends that.
pub(crate) fn disable(event: &OwnedFd) {
    control(event, request::DISABLE);
}

fn control(event: &OwnedFd, request: libc::c_ulong) {
    // SAFETY: no memory is involved. It cannot fail on an event that is open.
    unsafe { libc::ioctl(event.as_raw_fd(), request as libc::Ioctl, 0) };
}

/// Has an event write to the ring of another one of the same processor and the same layout, instead
/// of its own.
///
/// # Errors
/// As the ioctl.
pub(crate) fn redirect(event: &OwnedFd, lender: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    let done = unsafe {
        libc::ioctl(
            event.as_raw_fd(),
            request::SET_OUTPUT as libc::Ioctl,
            lender.as_raw_fd(),
        )
    };
    Errno::result(done).map(drop)
}

fn sample_format(kernel: bool) -> SampleFormat {
    let format = SampleFormat::IP
        | SampleFormat::TID
        | SampleFormat::TIME
        | SampleFormat::REGS_USER
        | SampleFormat::STACK_USER;
    if kernel {
        format | SampleFormat::CALLCHAIN
    } else {
        format
    }
}

/// How records of such events are laid out.
pub(crate) fn layout(kernel: bool) -> RecordParseInfo {
    /// What ends a record that is no sample: pid and tid, time.
    const TRAILER: u8 = 16;
    RecordParseInfo {
        endian: Endianness::LittleEndian,
        sample_format: sample_format(kernel),
        branch_sample_format: BranchSampleFormat::empty(),
        read_format: ReadFormat::empty(),
        common_data_offset_from_end: Some(TRAILER),
        sample_regs_user: USER_REGISTERS,
        user_regs_count: USER_REGISTERS.count_ones() as u8,
        sample_regs_intr: 0,
        intr_regs_count: 0,
        id_parse_info: RecordIdParseInfo {
            nonsample_record_id_offset_from_end: None,
            sample_record_id_offset_from_start: None,
        },
        nonsample_record_time_offset_from_end: Some(8),
        sample_record_time_offset_from_start: Some(16),
    }
}
