//! A profile: a recording with names. Stacks of functions, inlined ones included, each held once
//! and pointing to its caller, and samples with their weight in sampling periods. Everything that
//! is shown or written is made from this.
//!
//! Start at [`Profile::open`]. Failures are frames: a stack that ended early begins with
//! `[truncated: reason]`, and where frames were left out stands `[N frames elided]`.
//!
//! Not here: the order in which anything is shown (`report`), and file formats (`output`).

mod alike;
mod build;
mod events;
mod filter;
mod kind;
mod labels;
mod language;
mod names;
mod own;
mod programs;
mod roots;
#[cfg(test)]
pub(crate) mod tests;

pub use events::{NoEvent, is_time};
pub use filter::{Filter, FilterError};
pub(crate) use kind::{Kind, Kinds, WAITING, palette};
pub use labels::NoLabel;
pub use language::NoLanguage;
pub use own::{OWN_WORK, OwnFrames};
pub use programs::{Rank, Ranks};
pub use roots::is_root;

use crate::charge::{Ledger, Row};
use crate::correlate;
use crate::intern::{Pair, both, index};
use crate::recording::{
    KernelHalf, LabelsId, LanguageId, OpenError, ProcessId, Recording, ThreadId,
};
use crate::symbolize::{ImageId, Places, Symbols, symbolize};
use engine::address::CodeAddress;
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::{Method, StopReason};
use engine::wire::source::WALL;
use std::path::Path;
use std::sync::Arc;

index!(
    /// Of [`Profile::functions`].
    FunctionId
);
index!(
    /// Of [`Profile::frames`].
    SourceFrameId
);
index!(
    /// Of [`Profile::stacks`].
    CallId
);

/// The row of time in which a thread could have run, and others did.
pub const PREEMPTED: &str = "[preempted]";

/// A recording with names.
#[derive(Debug)]
pub struct Profile {
    /// What was recorded: processes, threads, session.
    pub recording: Recording,
    /// What its addresses are.
    pub symbols: Symbols,
    /// Distinct functions.
    pub functions: Vec<Function>,
    /// Distinct frames.
    pub frames: Vec<Frame>,
    /// Distinct stacks; a parent comes before its children.
    pub stacks: Vec<Call>,
    /// Samples of the event that is shown, by thread, in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// Samples of other events.
    pub aside: Vec<Sample>,
    /// CPU time that is in no sample, by process and reason ([`crate::charge`]), in whole periods:
    /// what is shown of CPU time adds up with it.
    pub remainders: Vec<Sample>,
    /// CPU time of our own in functions that stand in front of libc's, ns.
    pub own_calls_ns: u64,
    /// Which event is shown; 0 for CPU time.
    pub shown_event: u32,
    /// What was recorded of it, if a filter has left out some.
    pub unfiltered: Option<u64>,
    /// Each of the samples stands for many that are alike.
    pub are_sums: bool,
}

/// Whose code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The program's.
    User,
    /// The kernel's.
    Kernel,
    /// The program's, in a language that an interpreter runs.
    Language(LanguageId),
    /// Nobody's: a note in the place of frames that are missing.
    Note,
}

/// Divides amounts, one after the other, into whole units: their sum is that of the amounts,
/// rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    unit: u64,
    rest: u64,
}

impl Units {
    pub(crate) const fn of(unit: u64) -> Self {
        Self {
            unit,
            rest: unit / 2,
        }
    }

    pub(crate) const fn next(&mut self, amount: u64) -> u64 {
        let all = self.rest.saturating_add(amount);
        self.rest = all % self.unit;
        all / self.unit
    }
}

/// Which frames are shown that are not the program's own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Show {
    /// Ours.
    pub own: OwnFrames,
    /// The native frames in which interpreters run the frames of their language.
    pub interpreters: bool,
}

impl From<OwnFrames> for Show {
    fn from(own: OwnFrames) -> Self {
        Self {
            own,
            interpreters: false,
        }
    }
}

/// A function of a binary, or a note.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its name, demangled.
    pub name: Arc<str>,
    /// The same without template arguments and parameters, if it has any.
    pub short: Option<Arc<str>>,
    /// The binary that it is in; `None` for JIT code and notes.
    pub image: Option<ImageId>,
    /// Whose code it is.
    pub mode: Mode,
    /// Of a language's the source file, since functions of one name are different ones in different
    /// files.
    pub source: Option<Arc<str>>,
    /// Likewise the line that it begins at; 0 if unknown.
    pub begins: u32,
}

/// How functions are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Without template arguments and parameters.
    #[default]
    Short,
    /// As the program's source has them.
    Whole,
}

impl Function {
    /// What it is called.
    #[must_use]
    pub fn called(&self, names: Names) -> &str {
        match (names, &self.short) {
            (Names::Short, Some(short)) => short,
            _ => &self.name,
        }
    }
}

/// A function at a place in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub function: FunctionId,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line; 0 if unknown.
    pub line: u32,
    /// How often what is here was inlined into the next: 0 for the function that the address is in.
    pub inline_depth: u32,
    /// The address, as recorded; `None` for notes and frames of interpreters.
    pub address: Option<CodeAddress>,
    /// The same in its image; the runtime address in code of no image.
    pub file_address: u64,
    /// Where the function begins in its image.
    pub function_start: Option<u64>,
    /// How it was found; `None` for notes.
    pub method: Option<Method>,
}

/// A stack: a frame and the stack of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The caller's stack; `None` for the outermost frame.
    pub parent: Option<CallId>,
    /// The frame.
    pub frame: SourceFrameId,
}

impl Pair for Call {
    fn both(self) -> u64 {
        both(self.parent, self.frame)
    }
}

/// What a thread had to do with the lock of its interpreter, which Python calls the GIL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gil {
    /// Nothing that is known.
    #[default]
    Nothing,
    /// It had it.
    Held,
    /// It waited for it.
    Awaited,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Whose.
    pub thread: ThreadId,
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// How many sampling periods it stands for; for other events than CPU time what the event
    /// counted (ns of time off the CPU, and of wall-clock time).
    pub weight: u64,
    /// Which event it is of; 0 for CPU time.
    pub event: u32,
    /// Its stack; never without a frame.
    pub stack: CallId,
    /// Why the walk ended.
    pub stop: StopReason,
    /// Whether the outermost frame is, by its name, where threads begin.
    pub complete: bool,
    /// What the thread had to do with its interpreter's lock.
    pub gil: Gil,
    /// What it has of the kernel.
    pub kernel: KernelHalf,
    /// The labels of the regions that the thread was in.
    pub labels: LabelsId,
}

impl Frame {
    /// Of which nothing is known but the function.
    pub(crate) const fn bare(function: FunctionId) -> Self {
        Self {
            function,
            file: None,
            line: 0,
            inline_depth: 0,
            address: None,
            file_address: 0,
            function_start: None,
            method: None,
        }
    }

    /// Whether it was inlined into the function of the calling frame.
    #[must_use]
    pub fn inlined(&self) -> bool {
        self.inline_depth > 0
    }
}

impl Profile {
    /// Reads recordings and names what is in them.
    ///
    /// # Errors
    /// [`OpenError`] if one cannot be read at all.
    pub fn open(paths: &[impl AsRef<Path>], places: &Places) -> Result<Self, OpenError> {
        Ok(Self::new(correlate::read(paths)?, places))
    }

    /// Names what is in a recording, as the program's: frames of ours are left out
    /// ([`OwnFrames::Hidden`]).
    #[must_use]
    pub fn new(recording: Recording, places: &Places) -> Self {
        Self::with(recording, places, OwnFrames::default())
    }

    /// Names what is in a recording.
    #[must_use]
    pub fn with(recording: Recording, places: &Places, show: impl Into<Show>) -> Self {
        let rows = Ledger::of(&recording).rows;
        Self::build(recording, places, show.into(), &rows)
    }

    /// Names what is in a part of a recording. CPU time that is in no sample is known of whole ones
    /// only; `rows` are that of the part.
    #[must_use]
    pub fn of_part(recording: Recording, places: &Places, rows: &[Row]) -> Self {
        Self::build(recording, places, Show::default(), rows)
    }

    fn build(mut recording: Recording, places: &Places, show: Show, rows: &[Row]) -> Self {
        let mut symbols = symbolize(&recording, places);
        names::make_visible(&mut recording, &mut symbols);
        build::build(recording, symbols, show, rows)
    }

    /// Leaves what it holds to the end of the process: millions of small pieces, one by one, would
    /// be given back for nobody.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    /// The frames of a stack, from leaf to root.
    pub fn walk(&self, stack: CallId) -> impl Iterator<Item = &Frame> + '_ {
        let mut next = Some(stack);
        std::iter::from_fn(move || {
            let call = self.stacks.get(next?.index())?;
            next = call.parent;
            self.frames.get(call.frame.index())
        })
    }

    /// The samples shown, and of CPU time, which is in wall-clock time too, what is in no sample.
    pub fn weighed(&self) -> impl Iterator<Item = &Sample> + Clone {
        let remainders: &[Sample] = match self.shown_event {
            CPU_EVENT | WALL => &self.remainders,
            _ => &[],
        };
        self.samples.iter().chain(remainders)
    }

    /// As how many samples one counts.
    #[must_use]
    pub fn times(&self, sample: &Sample) -> u64 {
        match self.are_sums {
            true => sample.weight.max(1),
            false => 1,
        }
    }

    /// How many samples there are.
    #[must_use]
    pub fn number(&self) -> u64 {
        let all = self.samples.iter().map(|sample| self.times(sample));
        all.fold(0, u64::saturating_add)
    }

    /// The function of a frame.
    #[must_use]
    pub fn function(&self, frame: &Frame) -> &Function {
        &self.functions[frame.function.index()]
    }

    /// The sampling period of a thread, ns; the process's or the session's if the thread has none.
    #[must_use]
    pub fn period_ns(&self, thread: ThreadId) -> u64 {
        self.recording.period_ns(thread)
    }

    /// CPU time that a sample stands for, ns; for other events what the event counted.
    #[must_use]
    pub fn time_ns(&self, sample: &Sample) -> u64 {
        if sample.event != CPU_EVENT {
            return sample.weight;
        }
        sample.weight.saturating_mul(self.period_ns(sample.thread))
    }

    /// What amounts are divided by where they are to be numbers of samples: for CPU time the
    /// shortest period of all, ns, as the threads of several recordings may have different ones.
    /// Else 1.
    #[must_use]
    pub fn unit(&self) -> u64 {
        if self.shown_event != CPU_EVENT {
            return 1;
        }
        let mut threads: Vec<ThreadId> = self.weighed().map(|sample| sample.thread).collect();
        threads.dedup();
        let periods = threads.into_iter().map(|thread| self.period_ns(thread));
        periods.min().unwrap_or(1_000_000).max(1)
    }

    /// What is shown, all together: ns, or what the event counted.
    #[must_use]
    pub fn whole(&self) -> u64 {
        let times = self.weighed().map(|sample| self.time_ns(sample));
        times.fold(0, u64::saturating_add)
    }

    /// The process of a sample.
    #[must_use]
    pub fn process_of(&self, thread: ThreadId) -> ProcessId {
        self.recording.threads[thread.index()].process
    }

    /// The last component of a function's binary, or what stands for it.
    #[must_use]
    pub fn image_name<'a>(&'a self, function: &'a Function) -> &'a str {
        match (function.image, function.mode) {
            (Some(id), _) => self.symbols.images[id.index()].name(),
            (None, Mode::Kernel) => "[kernel]",
            (None, Mode::Language(id)) => function.source.as_deref().map_or_else(
                || &*self.recording.languages[id.index()],
                |source| source.rsplit('/').next().unwrap_or(source),
            ),
            (None, Mode::User) => "[anonymous]",
            (None, Mode::Note) => "-",
        }
    }

    /// The same, and of a language's function the line that it begins at: there may be several of
    /// one name in a file.
    #[must_use]
    pub fn origin(&self, function: &Function) -> String {
        let name = self.image_name(function);
        match (function.begins, &function.source) {
            (0, _) | (_, None) => name.to_owned(),
            (line, Some(_)) => format!("{name}:{line}"),
        }
    }

    /// When the first sample or arming was, `CLOCK_MONOTONIC`, ns: the zero of exported times.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        let session = self.recording.session.as_ref().map(|s| s.start_ns);
        let processes = self.recording.processes.iter().map(|p| p.time_ns);
        let samples = self.all_samples().map(|s| s.time_ns);
        let first = processes.chain(samples).filter(|ns| *ns > 0).min();
        match (session.filter(|ns| *ns > 0), first) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(0),
        }
    }
}
