//! Records of the rings, read: the few kinds that matter here, in one order of time.
//!
//! Not here: what follows from them ([`crate::copy`]).

use super::request::{Kind, Tells};
use super::ring::RawRecord;
use crate::processes::{FileId, Found, Mapping};
use crate::unwind::registers::{self, Registers, STACK_POINTER};
use linux_perf_event_reader::{
    ContextSwitchRecord, EventRecord, Mmap2FileId, RawEventRecord, RecordParseInfo, RecordType,
    SampleRecord, TaskWasPreempted,
};

/// `PERF_CONTEXT_MAX`: call chain entries from here on are markers.
const FIRST_MARKER: u64 = (-4095i64) as u64;
/// `PROT_EXEC`.
const EXECUTABLE: u32 = 4;

/// Whom a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Task {
    pub(crate) pid: i32,
    pub(crate) tid: i32,
}

/// Something that happened, at [`TaskRecord::time_ns`] (`CLOCK_MONOTONIC`).
#[derive(Debug)]
pub(crate) struct TaskRecord {
    pub(crate) time_ns: u64,
    pub(crate) task: Task,
    pub(crate) what: What,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum What {
    /// The thread was sampled.
    Sample(Box<Copied>),
    /// It is about to go off its CPU.
    Leaves(Box<Copied>),
    /// It goes; whether it could run on.
    Out(bool),
    /// It is back on a CPU.
    Back,
    /// Code was mapped.
    Mapped(Mapping),
    /// The process replaced its program; the thread's name.
    Exec(Vec<u8>),
    /// The same, from an event that tells no more than that; whether it is one that copies stacks.
    Began(bool),
    /// The process is copied from now on, of which others have told nothing yet.
    Adopted(Box<Adopted>),
    /// The process is not profiled, and why.
    Unprofiled(Box<(Found, String)>),
    /// The thread was given a name.
    Name(Vec<u8>),
    /// The task began, made by that one.
    Fork(Task),
    /// The thread ended.
    Exit,
    /// That many records found no room in the ring.
    Lost(u64),
    /// Likewise samples of context switches, with their stacks.
    StacksLost(u64),
    /// Likewise records of context switches, and of what else happened.
    SwitchesLost(u64),
    /// Likewise records of programs that began.
    BeginningsLost(u64),
}

/// A process that runs, and is copied from now on.
#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) found: Found,
    /// errno of the refusal to sample kernel mode, if it was refused.
    pub(crate) kernel_refused: Option<u32>,
    /// Threads that are not sampled.
    pub(crate) unwatched: u64,
    /// Whether it does not unwind itself though it has the preload library.
    pub(crate) has_library: bool,
}

/// A sample: registers, the copied stack, and the kernel's own stack.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// The word that it waits on in the kernel, as C libraries' locks do.
    pub(crate) waits_on: Option<u64>,
    /// Where it stood in user mode; `None` where there is no user mode any more.
    pub(crate) user: Option<(u64, u64, Registers)>,
    /// From the stack pointer upwards.
    pub(crate) stack: Vec<u8>,
    /// Bytes that could have been copied.
    pub(crate) room: usize,
    /// The kernel's frames from the leaf; empty for a sample of user mode.
    pub(crate) kernel: Vec<u64>,
}

/// Reads a record of an event of that kind, which tells that much; `None` if it is of no interest,
/// or not what it should be.
pub(crate) fn read(
    raw: &RawRecord<'_>,
    layout: &RecordParseInfo,
    kind_of_event: Kind,
    tells: Tells,
) -> Option<TaskRecord> {
    let kind = RecordType(raw.kind);
    let interesting = [
        RecordType::SAMPLE,
        RecordType::MMAP2,
        RecordType::COMM,
        RecordType::FORK,
        RecordType::EXIT,
        RecordType::LOST,
        RecordType::SWITCH,
    ];
    if !interesting.contains(&kind) {
        return None;
    }
    let record = RawEventRecord::new(kind, raw.misc, raw.body, *layout);
    let common = record.common_data().ok()?;
    let mut task = Task {
        pid: common.pid?,
        tid: common.tid?,
    };
    let what = match record.parse().ok()? {
        EventRecord::Sample(sample) => {
            let copied = Box::new(copied(&sample));
            match kind_of_event {
                Kind::CpuTime(_) => What::Sample(copied),
                Kind::Switches | Kind::Records | Kind::Nothing => What::Leaves(copied),
            }
        }
        EventRecord::ContextSwitch(ContextSwitchRecord::In { .. }) => What::Back,
        EventRecord::ContextSwitch(ContextSwitchRecord::Out { preempted, .. }) => {
            What::Out(preempted == TaskWasPreempted::Yes)
        }
        EventRecord::Mmap2(map) if map.protection & EXECUTABLE != 0 => What::Mapped(Mapping {
            start: map.address,
            length: map.length,
            offset: map.page_offset,
            file: match map.file_id {
                Mmap2FileId::InodeAndVersion(file) => FileId {
                    device: (file.major, file.minor),
                    inode: file.inode,
                },
                // Not asked for.
                Mmap2FileId::BuildId(_) => FileId::default(),
            },
            path: map.path.as_slice().into_owned(),
        }),
        EventRecord::Comm(comm) => {
            task = Task {
                pid: comm.pid,
                tid: comm.tid,
            };
            let name = comm.name.as_slice().into_owned();
            match (comm.is_execve, tells) {
                (true, Tells::Programs) => What::Began(matches!(kind_of_event, Kind::CpuTime(_))),
                (true, _) => What::Exec(name),
                (false, Tells::Programs) => return None,
                (false, _) => What::Name(name),
            }
        }
        EventRecord::Fork(fork) => {
            task = Task {
                pid: fork.pid,
                tid: fork.tid,
            };
            What::Fork(Task {
                pid: fork.ppid,
                tid: fork.ptid,
            })
        }
        EventRecord::Exit(exit) => {
            task = Task {
                pid: exit.pid,
                tid: exit.tid,
            };
            What::Exit
        }
        EventRecord::Lost(lost) => match kind_of_event {
            Kind::CpuTime(_) => What::Lost(lost.count),
            Kind::Switches => What::StacksLost(lost.count),
            Kind::Records => What::SwitchesLost(lost.count),
            Kind::Nothing => What::BeginningsLost(lost.count),
        },
        _ => return None,
    };
    Some(TaskRecord {
        time_ns: common.timestamp?,
        task,
        what,
    })
}

fn copied(sample: &SampleRecord<'_>) -> Copied {
    let user = sample.user_regs.as_ref().and_then(|found| {
        let (ip, walk) = registers::interrupted(found)?;
        Some((ip, found.get(STACK_POINTER)?, walk))
    });
    let (stack, room) = match sample.user_stack {
        Some((stack, copied)) => {
            let room = stack.len();
            let copied = usize::try_from(copied).unwrap_or(0).min(room);
            let bytes = stack.get(0..copied);
            let bytes = bytes.map_or_else(Vec::new, |bytes| bytes.as_slice().into_owned());
            (bytes, room)
        }
        None => (Vec::new(), 0),
    };
    let kernel = sample.callchain.as_ref().map_or_else(Vec::new, |chain| {
        let entries = (0..chain.len()).filter_map(|index| chain.get(index));
        entries.filter(|entry| *entry < FIRST_MARKER).collect()
    });
    Copied {
        waits_on: sample.user_regs.as_ref().and_then(registers::waits_on),
        user,
        stack,
        room,
        kernel,
    }
}
