//! What a recording holds once it is read: processes, threads, modules, and samples whose stacks
//! share their outer parts.
//!
//! Not here: names of functions (`symbolize`), what is shown of it (`profile`).

use super::error::Damages;
use super::ids::{CodeId, FrameId, LabelsId, LanguageId, ModuleId, ProcessId, StackId, ThreadId};
use super::kernel_half::KernelHalf;
use super::labels::LabelSets;
use super::modules::{Module, ModuleMap};
use super::names::StoredNames;
use crate::intern::{Pair, both};
use engine::address::CodeAddress;
use engine::wire::charge::{ChildEnd, ProcessEnd};
use engine::wire::clocks::Clocks;
use engine::wire::code::{Code, LineFormat};
use engine::wire::event::EventKind;
use engine::wire::file::FileKind;
use engine::wire::process::Origin;
use engine::wire::sample::{Frame, Method, StopReason, Trigger};
use engine::wire::thread::ThreadEndReason;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

/// A recording, read.
#[derive(Debug, Default)]
pub struct Recording {
    /// The files it was read from.
    pub files: Vec<FileReport>,
    /// The collector's account, if it lived to write it.
    pub session: Option<SessionInfo>,
    /// Those before it, where several recordings are read as one.
    pub other_sessions: Vec<SessionInfo>,
    /// Readings of the collector's clocks, by time.
    pub clocks: Vec<Clocks>,
    /// Program runs, in the order in which they were met.
    pub processes: Vec<Process>,
    /// Threads, likewise.
    pub threads: Vec<Thread>,
    /// Functions that threads without a sample began in, as far as they say so, by address.
    pub(crate) entries: BTreeMap<ThreadId, u64>,
    /// The stacks of these functions.
    pub(crate) began: BTreeMap<ThreadId, StackId>,
    /// Threads by the names that the kernel's records have for them, until they say something of
    /// themselves, and the names that they have in [`Self::threads`].
    pub adopted: BTreeMap<ThreadName, ThreadName>,
    /// Mapped code, of all processes.
    pub modules: Vec<Module>,
    /// Names of the languages that have frames.
    pub languages: Vec<String>,
    /// Distinct code objects of those.
    pub codes: Vec<CodeObject>,
    /// Distinct sets of labels of regions.
    pub labels: LabelSets,
    /// Distinct frames.
    pub frames: Vec<RawFrame>,
    /// Distinct stacks; a parent comes before its children.
    pub stacks: Vec<StackNode>,
    /// Samples, by thread, in the order in which they were taken.
    pub samples: Vec<RawSample>,
    /// Events that were sampled beside CPU time, by number.
    pub sources: Vec<EventSource>,
    /// Their numbers by file, and by the numbers that they have there.
    pub event_numbers: BTreeMap<(usize, u32), u32>,
    /// What its functions were called when it was made, if that is stored in it.
    pub names: StoredNames,
    /// Samples of threads that had no room to write to, and never said so themselves.
    pub chunkless_samples: u64,
    /// Their weight, in sampling periods.
    pub chunkless_weight: u64,
    /// Threads that could not be armed.
    pub unarmed_threads: u64,
    /// Bytes of segments that the collector left out because they did not check.
    pub damaged_bytes: u64,
}

/// An event that was sampled beside CPU time ([`engine::wire::source::Source`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "each is the field of the wire record of that name"
)]
pub struct EventSource {
    pub event: u32,
    pub name: String,
    pub period: u64,
    pub lost: u64,
    pub rest: u64,
}

/// What was found in one file.
#[derive(Debug)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// Segment or recording.
    pub kind: FileKind,
    /// Its length in bytes.
    pub length: u64,
    /// Chunks read.
    pub chunks: u64,
    /// What could not be read.
    pub damages: Damages,
}

/// The collector's account ([`engine::wire::session::Session`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the field of the wire record of that name"
)]
pub struct SessionInfo {
    pub start_ns: u64,
    pub end_ns: u64,
    pub realtime_offset_ns: u64,
    pub wait_status: u32,
    pub processors: u32,
    pub asked_millihertz: u64,
    pub period_ns: u64,
    pub kernel: String,
    pub host: String,
    pub command: Vec<String>,
    pub pid: u32,
    pub charged_ns: u64,
    pub event_ns: u64,
    pub signal_ns: u64,
    pub switches: u64,
    pub switch_ns: u64,
    pub thread_ns: u64,
    pub collector_ns: u64,
    pub load_ns: u64,
    pub stolen_ns: u64,
}

/// One program run: a process from exec or fork on.
#[derive(Debug, Default)]
pub struct Process {
    /// In its own PID namespace.
    pub pid: u32,
    /// With the pid it names the program run ([`engine::wire::chunk::ChunkHeader::process_key`]).
    pub key: u64,
    /// Whether its identity record was found; if not, most of what follows is empty.
    pub identified: bool,
    /// How it came to be.
    pub origin: Origin,
    /// Parent's pid.
    pub parent_pid: u32,
    /// The parent's [`Process::key`], if it forked; else 0.
    pub parent_key: u64,
    /// The parent, or for an exec the program run before it in the same process, if profiled too.
    pub parent: Option<ProcessId>,
    /// When profiling of it started (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns.
    pub realtime_offset_ns: u64,
    /// Start time of the process, clock ticks since boot.
    pub start_ticks: u64,
    /// Sampling period asked for, ns.
    pub asked_period_ns: u64,
    /// Sampling period in force, ns.
    pub period_ns: u64,
    /// Depth limit in force, frames.
    pub max_depth: u64,
    /// Its pids from the outermost visible PID namespace to its own.
    pub ns_pids: Vec<u32>,
    /// The inode of its PID namespace; 0 if unknown.
    pub pid_namespace: u64,
    /// The executable's path.
    pub executable: String,
    /// Its arguments.
    pub command: Vec<String>,
    /// What it is called, if that is another name of the executable's file.
    pub called: String,
    /// The path of its cgroup; empty if unknown.
    pub cgroup: String,
    /// The container that it runs in; empty if none.
    pub container: String,
    /// CPU time of the process when the runtime began in this program, ns, and of the thread that
    /// it began in.
    pub cpu_ns: u64,
    /// See there.
    pub thread_cpu_ns: u64,
    /// When it looked at itself for the last time, if it did.
    pub end: Option<ProcessEnd>,
    /// The ends of children that it waited for, by time.
    pub children: Vec<ChildEnd>,
    /// What happened to it, by time.
    pub events: Vec<Event>,
    /// Where its modules are.
    pub map: ModuleMap,
    /// Its JIT's symbol file, as far as the collector took it along.
    pub perf_map: Vec<u8>,
    /// Its code objects, by [`engine::wire::code::Code::number`].
    pub codes: HashMap<u64, CodeId>,
    /// Its sets of labels, by [`engine::wire::label::LabelSet::number`].
    pub labels: HashMap<u64, LabelsId>,
}

impl Process {
    /// The program that it called exec for at its end, unless that failed.
    #[must_use]
    pub fn became(&self) -> Option<&str> {
        let mut calls = self.events.iter().rev();
        let last =
            calls.find(|event| matches!(event.kind, EventKind::Exec | EventKind::ExecFailed))?;
        (last.kind == EventKind::Exec).then_some(&*last.text)
    }

    /// The name by which people know it: the executable's last component, or another one under
    /// which the same file was started.
    #[must_use]
    pub fn name(&self) -> &str {
        if !self.called.is_empty() {
            return &self.called;
        }
        let first = self.command.first().map_or("", String::as_str);
        let path = if self.executable.is_empty() {
            first
        } else {
            &self.executable
        };
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        if path.starts_with('[') && path.ends_with(']') {
            return path; // of the kernel's: there may be a slash in it
        }
        match path.rsplit('/').next() {
            Some(name) if !name.is_empty() => name,
            _ => "[unknown]",
        }
    }
}

impl Process {
    /// The name of the container or cgroup that it runs in, and the cgroup's path.
    #[must_use]
    pub fn group(&self) -> (&str, &str) {
        let last = self.cgroup.rsplit('/').next().unwrap_or_default();
        let name = match (&*self.container, last) {
            ("", "") if self.cgroup.is_empty() => "[unknown]",
            ("", "") => &self.cgroup,
            ("", last) => last,
            (container, _) => container,
        };
        (name, &self.cgroup)
    }
}

/// A code object of a language ([`engine::wire::code::Code`]). Those that are described alike are
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each is the field of the wire record of that name"
)]
pub struct CodeObject {
    pub language: LanguageId,
    pub name: Arc<str>,
    pub file: Arc<str>,
    pub first_line: u32,
    pub format: LineFormat,
    pub lines: Vec<u8>,
}

impl CodeObject {
    pub(crate) fn new(language: LanguageId, found: &Code<'_>) -> Self {
        Self {
            language,
            name: String::from_utf8_lossy(found.name).into(),
            file: String::from_utf8_lossy(found.file).into(),
            first_line: found.first_line,
            format: found.format,
            lines: found.lines.to_vec(),
        }
    }

    /// The line of a position; 0 if unknown.
    #[must_use]
    pub fn line(&self, position: u32) -> u32 {
        let code = Code {
            first_line: self.first_line,
            format: self.format,
            lines: &self.lines,
            ..Code::default()
        };
        code.line(position)
    }
}

/// Something that happened to a process ([`engine::wire::event::Event`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the field of the wire record of that name"
)]
pub struct Event {
    pub kind: EventKind,
    pub time_ns: u64,
    pub value: u64,
    pub text: String,
}

/// A thread, as chunks name it: pid, process key, tid and thread key.
pub type ThreadName = (u32, u64, u32, u64);

/// One thread.
#[derive(Debug)]
pub struct Thread {
    /// Its process.
    pub process: ProcessId,
    /// Its id in its own PID namespace.
    pub tid: u32,
    /// With the tid it names the thread ([`engine::wire::chunk::ChunkHeader::thread_key`]): when it
    /// was first seen, ns.
    pub key: u64,
    /// Its name; the last one, if it changed.
    pub name: String,
    /// How it was sampled, by time: one entry each time its trigger, period or name changed.
    pub armings: Vec<Arming>,
    /// Its end, if that was seen.
    pub end: Option<ThreadEnd>,
    /// Its own account, from its newest chunk.
    pub totals: Totals,
    /// CPU time that kernel samples show after its clock was looked at for the last time, ns: that
    /// of its end in the kernel.
    pub late_cpu_ns: u64,
}

impl Thread {
    /// The trigger in force at the end.
    #[must_use]
    pub fn trigger(&self) -> Trigger {
        self.armings
            .last()
            .map_or(Trigger::None, |last| last.trigger)
    }

    /// CPU time at its end or when it was last looked at, ns; 0 if never.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let end = self.end.map_or(0, |end| end.cpu_ns);
        end.max(self.totals.cpu_ns).saturating_add(self.late_cpu_ns)
    }

    /// CPU time before it was armed, ns.
    #[must_use]
    pub fn unarmed_cpu_ns(&self) -> u64 {
        let first = self.armings.first().map_or(0, |first| first.unarmed_cpu_ns);
        first.max(self.totals.unarmed_cpu_ns)
    }
}

/// How a thread was sampled from some time on ([`engine::wire::thread::Thread`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the field of the wire record of that name"
)]
pub struct Arming {
    pub time_ns: u64,
    pub trigger: Trigger,
    pub period_ns: u64,
    pub periods: u64,
    pub refused: u32,
    pub signal: u32,
    pub unarmed_cpu_ns: u64,
}

impl Arming {
    /// Whether a perf event sampled it.
    #[must_use]
    pub const fn has_event(&self) -> bool {
        matches!(self.trigger, Trigger::PerfKernel | Trigger::PerfUser)
    }
}

/// A thread's end ([`engine::wire::thread::ThreadEnd`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the field of the wire record of that name"
)]
pub struct ThreadEnd {
    pub time_ns: u64,
    pub cpu_ns: u64,
    pub reason: ThreadEndReason,
}

/// A thread's own account ([`engine::wire::chunk::ThreadTotals`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the field of ThreadTotals of that name"
)]
pub struct Totals {
    pub samples: u64,
    pub weight: u64,
    pub lost_samples: u64,
    pub lost_weight: u64,
    pub handler_ns: u64,
    pub cpu_ns: u64,
    pub unarmed_cpu_ns: u64,
    pub lost_in_ring: u64,
    pub arming_ns: u64,
    pub delivery_ns: u64,
}

/// A frame as recorded, with the module that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawFrame {
    /// Code.
    Code {
        /// Whose.
        process: ProcessId,
        /// The address and its meaning.
        frame: CodeAddress,
        /// How it was found.
        method: Method,
        /// Where it lies.
        module: Option<ModuleId>,
    },
    /// A frame of an interpreter.
    Language {
        /// What it ran; `None` if that was not described.
        code: Option<CodeId>,
        /// Where in it, in the language's own counting.
        position: u32,
    },
    /// An unknown number of frames, between the end of the walk and what a language had beyond it.
    Missing,
    /// Code of the kernel.
    Kernel(CodeAddress),
    /// Frames that the walk left out, because the stack was deeper than the limit.
    Elided(u64),
    /// Outer frames that were lost with a damaged part of the file.
    Lost,
}

impl Hash for RawFrame {
    /// By what tells nearly all of them apart, since millions are looked for.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (whose, what) = match self {
            Self::Code { process, frame, .. } => (process.number(), frame.lookup().0),
            Self::Language { code, position } => (*position, code.map_or(0, CodeId::number).into()),
            Self::Kernel(frame) => (1, frame.lookup().0),
            Self::Elided(count) => (2, *count),
            Self::Missing => (3, 0),
            Self::Lost => (4, 0),
        };
        (what ^ u64::from(whose).rotate_right(16)).hash(state);
    }
}

impl RawFrame {
    pub(crate) fn code(process: ProcessId, frame: Frame, module: Option<ModuleId>) -> Self {
        Self::Code {
            process,
            frame: frame.code_address(),
            method: frame.method,
            module,
        }
    }
}

/// A stack: a frame and the stack of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// The caller's stack; `None` for the outermost frame.
    pub parent: Option<StackId>,
    /// The frame.
    pub frame: FrameId,
}

impl Pair for StackNode {
    fn both(self) -> u64 {
        both(self.parent, self.frame)
    }
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSample {
    /// Whose.
    pub thread: ThreadId,
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// How many sampling periods it stands for.
    pub weight: u64,
    /// The stack; `None` if it has no frames at all.
    pub stack: Option<StackId>,
    /// What made the thread unwind.
    pub trigger: Trigger,
    /// Why the walk ended.
    pub stop: StopReason,
    /// See [`engine::wire::sample::flags`].
    pub flags: u64,
    /// What it has of the kernel.
    pub kernel: KernelHalf,
    /// Where the user's code was, as the kernel saw it; 0 for samples of user mode.
    pub entry_ip: u64,
    /// Which event it is of ([`engine::wire::kernel::KernelHead::event`]); 0 for CPU time.
    pub event: u32,
    /// What that event counted ([`engine::wire::kernel::KernelHead::value`]); 0 for CPU time.
    pub value: u64,
    /// The kernel's own name of the entry ([`engine::wire::kernel::KernelHead::cookie`]); 0 if it
    /// gave none, and for samples of user mode.
    pub cookie: u64,
    /// The labels of the regions that the thread was in.
    pub labels: LabelsId,
}

impl Recording {
    /// All sessions.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionInfo> {
        self.other_sessions.iter().chain(&self.session)
    }

    /// The number of an event that has that one in a file.
    #[must_use]
    pub fn event_of(&self, file: usize, event: u32) -> u32 {
        let number = self.event_numbers.get(&(file, event));
        number.copied().unwrap_or(event)
    }

    /// The frames of a stack, from leaf to root.
    pub fn walk(&self, stack: Option<StackId>) -> impl Iterator<Item = RawFrame> + '_ {
        let mut next = stack;
        std::iter::from_fn(move || {
            let node = self.stacks.get(next?.index())?;
            next = node.parent;
            self.frames.get(node.frame.index()).copied()
        })
    }

    /// The sampling period of a thread, ns; the process's or the session's if the thread has none.
    #[must_use]
    pub fn period_ns(&self, thread: ThreadId) -> u64 {
        let thread = &self.threads[thread.index()];
        let armed = thread.armings.last().map_or(0, |arming| arming.period_ns);
        let process = self.processes[thread.process.index()].period_ns;
        let session = self.session.as_ref().map_or(0, |s| s.period_ns);
        let known = [armed, process, session];
        known.into_iter().find(|ns| *ns > 0).unwrap_or(1_000_000)
    }

    /// Damages of all files.
    #[must_use]
    pub fn damage_count(&self) -> u64 {
        self.files.iter().map(|file| file.damages.count()).sum()
    }
}
