//! Turns stacks of addresses into stacks of functions.

use super::PREEMPTED;
use super::own::{OWN_WORK, Own, OwnWork};
use super::{
    Call, CallId, Frame, Function, FunctionId, Gil, Mode, Profile, Sample, Show, SourceFrameId,
    roots,
};
use crate::charge::{Reason, Row};
use crate::intern::{HashMap, Interner, Pairs};
use crate::progress;
use crate::recording::{
    FrameId, KernelHalf, LabelsId, ProcessId, RawFrame, RawSample, Recording, StackId, ThreadId,
};
use crate::symbolize::{ImageId, Symbols};
use engine::address::CodeAddress;
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::{Method, StopReason, Trigger, flags};
use engine::wire::source::OFF_CPU;
use std::sync::Arc;

/// Makes a profile.
pub(super) fn build(recording: Recording, symbols: Symbols, show: Show, rows: &[Row]) -> Profile {
    let mut builder = Builder {
        recording: &recording,
        symbols: &symbols,
        own: Own::new(&recording, &symbols, show.own),
        interpreters: show.interpreters,
        tables: Tables::with_room(recording.stacks.len()),
        of_frame: vec![None; recording.frames.len()],
        functions: Vec::new(),
        of_place: vec![None; symbols.places.len()],
        at_places: Vec::new(),
        todo: Vec::new(),
        of_stack: vec![None; recording.stacks.len()],
        of_cut_stack: HashMap::default(),
        complete: Vec::new(),
        own_calls_ns: 0,
    };
    builder.find_complete();
    let of_time = recording.samples.iter();
    let of_time = of_time.filter(|sample| sample.event == CPU_EVENT).count();
    let mut samples = Vec::with_capacity(of_time);
    let mut aside = Vec::with_capacity(recording.samples.len() - of_time);
    progress::begin("stacks", recording.samples.len() as u64);
    for sample in &recording.samples {
        progress::add(1);
        let made = builder.sample(sample);
        match sample.event {
            CPU_EVENT => samples.push(made),
            _ => aside.push(made),
        }
    }
    let own_calls_ns = builder.own_calls_ns;
    let remainders = builder.remainders(rows);
    let tables = builder.tables;
    Profile {
        functions: tables.functions,
        frames: tables.frames,
        stacks: tables.stacks,
        samples,
        aside,
        remainders,
        own_calls_ns,
        shown_event: CPU_EVENT,
        unfiltered: None,
        are_sums: false,
        recording,
        symbols,
    }
}

/// Distinct functions, frames and stacks, and their indices.
#[derive(Default)]
struct Tables {
    functions: Vec<Function>,
    frames: Vec<Frame>,
    stacks: Vec<Call>,
    known_functions: Interner<FunctionId>,
    known_frames: Interner<SourceFrameId>,
    known_stacks: Pairs<CallId>,
}

impl Tables {
    /// For about so many stacks.
    fn with_room(stacks: usize) -> Self {
        Self {
            stacks: Vec::with_capacity(stacks),
            known_stacks: Pairs::with_room(stacks),
            ..Self::default()
        }
    }

    fn function(&mut self, function: Function) -> FunctionId {
        self.known_functions.place(&mut self.functions, function)
    }

    fn frame(&mut self, frame: Frame) -> SourceFrameId {
        self.known_frames.place(&mut self.frames, frame)
    }

    fn fresh(&mut self, frame: Frame) -> SourceFrameId {
        self.frames.push(frame);
        SourceFrameId::next_of(self.frames.len() - 1)
    }

    fn call(&mut self, parent: Option<CallId>, frame: SourceFrameId) -> CallId {
        let call = Call { parent, frame };
        // The last one called nobody yet.
        let is_last = |parent: CallId| parent.index() + 1 == self.stacks.len();
        match parent.is_some_and(is_last) {
            true => self.known_stacks.add(&mut self.stacks, call),
            false => self.known_stacks.place(&mut self.stacks, call),
        }
    }

    /// A frame of which nothing is known but its function.
    fn bare(&mut self, name: Arc<str>, image: Option<ImageId>, mode: Mode) -> SourceFrameId {
        let function = self.function(Function {
            name,
            short: None,
            image,
            mode,
            source: None,
            begins: 0,
        });
        self.frame(Frame::bare(function))
    }

    fn note(&mut self, text: &str) -> SourceFrameId {
        self.bare(Arc::from(text), None, Mode::Note)
    }
}

/// Why a stack does not reach to where its thread began.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Cut {
    Stopped(StopReason),
    KernelOnly(KernelHalf),
}

impl Cut {
    fn note(self) -> String {
        match self {
            Self::Stopped(stop) => format!("[truncated: {}]", stop.words()),
            Self::KernelOnly(KernelHalf::Orphan) => {
                "[kernel only: no user stack was taken after it]".to_owned()
            }
            Self::KernelOnly(KernelHalf::Profiler) => OWN_WORK.to_owned(),
            Self::KernelOnly(KernelHalf::Exit) => "[exit]".to_owned(),
            Self::KernelOnly(_) => "[kernel only: the user stack was taken elsewhere]".to_owned(),
        }
    }
}

/// What the outermost frame of a stack is by its name.
#[derive(Clone, Copy)]
enum Reach {
    /// Where threads begin.
    Root,
    /// It has none.
    Nameless,
    /// Another function.
    Elsewhere,
}

struct Builder<'a> {
    recording: &'a Recording,
    symbols: &'a Symbols,
    own: Own<'a>,
    /// Whether the frames of interpreters are shown.
    interpreters: bool,
    tables: Tables,
    /// For each recorded frame the part of the list below that has its functions.
    of_frame: Vec<Option<(u32, u32)>>,
    /// Outermost first.
    functions: Vec<SourceFrameId>,
    /// For each place where its functions begin in the list below. Places are fewer: processes
    /// share them.
    of_place: Vec<Option<u32>>,
    at_places: Vec<FunctionId>,
    /// Parts of a stack that are to be made.
    todo: Vec<StackId>,
    /// What each recorded stack is shown as.
    of_stack: Vec<Option<CallId>>,
    /// The same of those that end early, on top of what they are shown to begin with.
    of_cut_stack: HashMap<(Option<StackId>, Cut), CallId>,
    /// For each recorded stack whether its outermost frame is a root by name.
    complete: Vec<Reach>,
    /// CPU time of our own in functions that stand in front of libc's, ns.
    own_calls_ns: u64,
}

impl Builder<'_> {
    fn find_complete(&mut self) {
        for node in &self.recording.stacks {
            let complete = match node.parent {
                Some(parent) => self.complete[parent.index()],
                None => self.reach(node.frame),
            };
            self.complete.push(complete);
        }
    }

    fn reach(&self, frame: FrameId) -> Reach {
        if let RawFrame::Language { .. } = self.recording.frames[frame.index()] {
            return Reach::Nameless; // its language has said that there are no more
        }
        let place = self.symbols.of_frame[frame.index()];
        let place = place.map(|place| &self.symbols.places[place as usize]);
        match place.and_then(|place| place.functions.last()) {
            Some(outer) if roots::is_root(&outer.function) => Reach::Root,
            Some(outer) if outer.is_nameless() => Reach::Nameless,
            _ => Reach::Elsewhere,
        }
    }

    fn sample(&mut self, sample: &RawSample) -> Sample {
        let complete = sample
            .stack
            .is_some_and(|stack| match self.complete[stack.index()] {
                Reach::Root => true,
                // No name says otherwise.
                Reach::Nameless => sample.stop == StopReason::Root,
                Reach::Elsewhere => false,
            });
        let preempted = sample.flags & flags::PREEMPTED != 0;
        let cut = match sample.kernel {
            // A thread that was made, and waited to begin.
            _ if preempted && sample.stack.is_none() => None,
            half if half.is_alone() => Some(Cut::KernelOnly(half)),
            _ if complete || sample.stop == StopReason::Root => None,
            _ => Some(Cut::Stopped(sample.stop)),
        };
        let work = self.own.work(sample);
        if work == Some(OwnWork::Call) && sample.event == CPU_EVENT {
            let period_ns = self.recording.period_ns(sample.thread);
            let time_ns = sample.weight.saturating_mul(period_ns);
            self.own_calls_ns = self.own_calls_ns.saturating_add(time_ns);
        }
        let mut stack = match sample.stack {
            _ if work.is_some() => Some(self.own_work()),
            None if preempted => None,
            None if sample.event == OFF_CPU => {
                let note = self.tables.note("[stack lost]");
                Some(self.tables.call(None, note))
            }
            Some(id) => {
                let shown = self.stack(Some(id), cut);
                Some(
                    self.wrapper(id)
                        .map_or(shown, |frame| self.tables.call(Some(shown), frame)),
                )
            }
            None => Some(self.stack(None, cut)),
        };
        if preempted {
            let note = self.tables.note(PREEMPTED);
            stack = Some(self.tables.call(stack, note));
        }
        let gil = match sample.flags {
            set if set & flags::INTERPRETER_LOCK != 0 => Gil::Held,
            set if set & flags::WAITS_FOR_INTERPRETER_LOCK != 0 && !preempted => Gil::Awaited,
            _ => Gil::Nothing,
        };
        if gil == Gil::Awaited {
            let note = self.tables.note("[waiting for the GIL]");
            stack = Some(self.tables.call(stack, note));
        }
        let mut stack = stack.unwrap_or_else(|| self.stack(None, cut));
        let elsewhere = match sample.flags {
            set if set & flags::LAST != 0 => Some(self.since_last(sample.thread)),
            set if set & flags::LET_IN != 0 => Some("[while the signal was blocked]"),
            _ => None,
        };
        if let Some(note) = elsewhere {
            // Taken where the time did not go: of its stack only the root says something.
            while let Some(parent) = self.tables.stacks[stack.index()].parent {
                stack = parent;
            }
            let note = self.tables.note(note);
            stack = self.tables.call(Some(stack), note);
        }
        Sample {
            thread: sample.thread,
            time_ns: sample.time_ns,
            weight: if sample.event == CPU_EVENT {
                sample.weight
            } else {
                sample.value
            },
            event: sample.event,
            stack,
            stop: sample.stop,
            complete,
            gil,
            kernel: sample.kernel,
            labels: sample.labels,
        }
    }

    /// What a thread did since its last sample, which none was taken of.
    fn since_last(&self, thread: ThreadId) -> &'static str {
        match self.recording.threads[thread.index()].trigger() {
            // Its kernel mode is in no sample, wherever it was.
            Trigger::PerfUser => "[in the kernel, which may not be seen, or since the last sample]",
            _ => "[since the last sample]",
        }
    }

    /// What is in no sample: one for each process or thread and reason, with a note for its stack.
    /// Their weights are whole periods, whose sums for each process and reason are right.
    fn remainders(&mut self, rows: &[Row]) -> Vec<Sample> {
        let recording = self.recording;
        let labels = match recording.labels.any() {
            true => LabelsId::UNKNOWN,
            false => LabelsId::NONE,
        };
        let mut first_threads = vec![None; recording.processes.len()];
        for (index, thread) in recording.threads.iter().enumerate().rev() {
            let place = &mut first_threads[thread.process.index()];
            let pid = recording.processes[thread.process.index()].pid;
            let is_main = |id: &ThreadId| recording.threads[id.index()].tid == pid;
            if !place.as_ref().is_some_and(is_main) {
                *place = Some(ThreadId::next_of(index));
            }
        }
        let anybody = first_threads.iter().flatten().next().copied();
        let mut made = Vec::new();
        let mut sums: HashMap<(Option<ProcessId>, Reason), u64> = HashMap::default();
        for row in rows {
            let own = row
                .process
                .and_then(|process| first_threads[process.index()]);
            let thread = row.thread.or(own).or(anybody);
            let Some(thread) = thread.filter(|_| row.reason != Reason::Sampled) else {
                continue;
            };
            let period_ns = recording.period_ns(thread);
            let sum = sums.entry((row.process, row.reason)).or_default();
            let periods = |ns: u64| ns.saturating_add(period_ns / 2) / period_ns;
            let before = periods(*sum);
            *sum = sum.saturating_add(row.ns);
            let weight = periods(*sum).saturating_sub(before);
            if weight == 0 {
                continue;
            }
            let process = &recording.processes[recording.threads[thread.index()].process.index()];
            let name = match row.reason {
                Reason::SetUp => OWN_WORK,
                reason => reason.name(),
            };
            let note = self.tables.note(name);
            let began = row.thread.and_then(|thread| recording.began.get(&thread));
            let began = began.map(|stack| self.stack(Some(*stack), None));
            made.push(Sample {
                thread,
                time_ns: process.end.map_or(process.time_ns, |end| end.time_ns),
                weight,
                event: CPU_EVENT,
                stack: self.tables.call(began, note),
                stop: StopReason::Root,
                complete: false,
                gil: Gil::Nothing,
                kernel: KernelHalf::None,
                labels,
            });
        }
        made
    }

    /// The stack of functions for a recorded stack; its root is a note if it does not reach to one.
    fn stack(&mut self, stack: Option<StackId>, cut: Option<Cut>) -> CallId {
        let mut todo = std::mem::take(&mut self.todo);
        let mut at = stack;
        let mut made = loop {
            if let Some(known) = self.known(at, cut) {
                break Some(known);
            }
            let Some(id) = at else { break None };
            todo.push(id);
            at = self.recording.stacks[id.index()].parent;
        };
        if made.is_none() {
            let lost = todo.last().is_some_and(|root| self.is_lost(*root));
            if let Some(cut) = cut.filter(|_| !lost) {
                let note = self.tables.note(&cut.note());
                let root = self.tables.call(None, note);
                self.of_cut_stack.insert((None, cut), root);
                made = Some(root);
            }
        }
        while let Some(id) = todo.pop() {
            let node = self.recording.stacks[id.index()];
            if self.own.hides(node.frame) || self.is_interpreter(id) {
                continue;
            }
            let is_kernel = matches!(
                self.recording.frames[node.frame.index()],
                RawFrame::Kernel(_)
            );
            if let Some(frame) = node
                .parent
                .filter(|_| is_kernel)
                .and_then(|id| self.wrapper(id))
            {
                made = Some(self.tables.call(made, frame));
            }
            let (first, behind) = self.functions(node.frame);
            for index in first..behind {
                let function = self.functions[index as usize];
                made = Some(self.tables.call(made, function));
            }
            match (made, cut) {
                (Some(made), Some(cut)) => _ = self.of_cut_stack.insert((Some(id), cut), made),
                (made, _) => self.of_stack[id.index()] = made,
            }
        }
        self.todo = todo;
        made.unwrap_or_else(|| {
            let leaf = stack.map(|id| self.recording.stacks[id.index()].frame);
            let hidden = leaf.is_some_and(|leaf| self.own.hides(leaf));
            let note = if hidden { OWN_WORK } else { "[no frames]" };
            let note = self.tables.note(note);
            self.tables.call(None, note)
        })
    }

    fn known(&self, stack: Option<StackId>, cut: Option<Cut>) -> Option<CallId> {
        match (stack, cut) {
            (stack, Some(cut)) => self.of_cut_stack.get(&(stack, cut)).copied(),
            (Some(stack), None) => self.of_stack[stack.index()],
            (None, None) => None,
        }
    }

    /// Whether a native frame runs the frame of a language that is its caller on the stack, and is
    /// not to be shown.
    fn is_interpreter(&self, stack: StackId) -> bool {
        if self.interpreters || self.recording.languages.is_empty() {
            return false;
        }
        let frame = |id: StackId| {
            let node = &self.recording.stacks[id.index()];
            (self.recording.frames[node.frame.index()], node.parent)
        };
        let (own, Some(parent)) = frame(stack) else {
            return false;
        };
        let runs = matches!(frame(parent).0, RawFrame::Language { .. });
        runs && matches!(own, RawFrame::Code { .. })
    }

    fn own_work(&mut self) -> CallId {
        let note = self.tables.note(OWN_WORK);
        self.tables.call(None, note)
    }

    /// The function of libc that a stack stands in which ends in code of ours.
    fn wrapper(&mut self, stack: StackId) -> Option<SourceFrameId> {
        let (name, image) = self.own.stands_for(stack)?;
        Some(self.tables.bare(name, image, Mode::User))
    }

    fn is_lost(&self, stack: StackId) -> bool {
        let frame = self.recording.stacks[stack.index()].frame;
        self.recording.frames[frame.index()] == RawFrame::Lost
    }

    /// Where in the list the functions of a frame are.
    fn functions(&mut self, id: FrameId) -> (u32, u32) {
        if let Some(known) = self.of_frame[id.index()] {
            return known;
        }
        let first = SourceFrameId::next_of(self.functions.len()).number();
        match self.recording.frames[id.index()] {
            RawFrame::Elided(count) => {
                let note = self.tables.note(&format!("[{count} frames elided]"));
                self.functions.push(note);
            }
            RawFrame::Lost => {
                let note = self.tables.note("[truncated: the recording is damaged]");
                self.functions.push(note);
            }
            RawFrame::Code { frame, method, .. } => {
                self.named(id, Some(frame), Mode::User, Some(method));
            }
            RawFrame::Kernel(frame) => self.named(id, Some(frame), Mode::Kernel, None),
            RawFrame::Language { .. } => self.named(id, None, Mode::User, Some(Method::Language)),
            RawFrame::Missing => {
                let note = self.tables.note("[frames missing]");
                self.functions.push(note);
            }
        }
        let behind = SourceFrameId::next_of(self.functions.len()).number();
        self.of_frame[id.index()] = Some((first, behind));
        (first, behind)
    }

    /// Adds the functions at an address to the list.
    fn named(
        &mut self,
        id: FrameId,
        address: Option<CodeAddress>,
        mode: Mode,
        method: Option<Method>,
    ) {
        let Some(index) = self.symbols.of_frame[id.index()] else {
            return;
        };
        let place = &self.symbols.places[index as usize];
        let first = self.of_place[index as usize].unwrap_or_else(|| {
            let mode = place.language.map_or(mode, Mode::Language);
            let first = FunctionId::next_of(self.at_places.len()).number();
            for named in &place.functions {
                let function = self.tables.function(Function {
                    name: named.function.clone(),
                    short: named.short.clone(),
                    image: place.image,
                    mode,
                    source: named.file.clone().filter(|_| place.language.is_some()),
                    begins: named.begins,
                });
                self.at_places.push(function);
            }
            first
        });
        self.of_place[index as usize] = Some(first);
        let functions = &self.at_places[first as usize..];
        let all = place.functions.iter().zip(functions);
        for ((named, function), inline_depth) in all.rev().zip(0..) {
            let frame = Frame {
                function: *function,
                file: named.file.clone(),
                line: named.line,
                inline_depth,
                address,
                file_address: place.address,
                function_start: named.start,
                method,
            };
            // An address is in one recorded frame only, or in few.
            let frame = match address {
                Some(_) => self.tables.fresh(frame),
                None => self.tables.frame(frame),
            };
            self.functions.push(frame);
        }
    }
}
