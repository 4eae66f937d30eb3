//! Turns stacks of addresses into stacks of functions.

use super::{
    Call, CallId, Frame, Function, FunctionId, Mode, Profile, Sample, SourceFrameId, roots,
};
use crate::recording::{FrameId, KernelHalf, RawFrame, RawSample, Recording, StackId};
use crate::symbolize::Symbols;
use engine::address::CodeAddress;
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::{Method, StopReason, flags};
use engine::wire::source::OFF_CPU;
use std::collections::HashMap;
use std::sync::Arc;

/// Makes a profile.
pub(super) fn build(recording: Recording, symbols: Symbols) -> Profile {
    let mut builder = Builder {
        recording: &recording,
        symbols: &symbols,
        tables: Tables::default(),
        of_frame: HashMap::new(),
        of_stack: HashMap::new(),
        complete: Vec::new(),
    };
    builder.find_complete();
    let samples = recording
        .samples
        .iter()
        .map(|sample| builder.sample(sample));
    let (samples, aside) = samples.partition(|sample| sample.event == CPU_EVENT);
    let tables = builder.tables;
    Profile {
        functions: tables.functions,
        frames: tables.frames,
        stacks: tables.stacks,
        samples,
        aside,
        shown_event: CPU_EVENT,
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
    known_functions: HashMap<Function, FunctionId>,
    known_frames: HashMap<Frame, SourceFrameId>,
    known_stacks: HashMap<Call, CallId>,
}

impl Tables {
    fn function(&mut self, function: Function) -> FunctionId {
        let all = &mut self.functions;
        let known = self.known_functions.entry(function);
        *known.or_insert_with_key(|function| {
            all.push(function.clone());
            FunctionId::next_of(all.len() - 1)
        })
    }

    fn frame(&mut self, frame: Frame) -> SourceFrameId {
        let all = &mut self.frames;
        let known = self.known_frames.entry(frame);
        *known.or_insert_with_key(|frame| {
            all.push(frame.clone());
            SourceFrameId::next_of(all.len() - 1)
        })
    }

    fn call(&mut self, parent: Option<CallId>, frame: SourceFrameId) -> CallId {
        let all = &mut self.stacks;
        let call = Call { parent, frame };
        *self.known_stacks.entry(call).or_insert_with(|| {
            all.push(call);
            CallId::next_of(all.len() - 1)
        })
    }

    fn note(&mut self, text: String) -> SourceFrameId {
        let function = self.function(Function {
            name: Arc::from(text),
            image: None,
            mode: Mode::Note,
        });
        self.frame(Frame {
            function,
            file: None,
            line: 0,
            inline_depth: 0,
            address: None,
            file_address: 0,
            function_start: None,
            method: None,
        })
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
            Self::KernelOnly(KernelHalf::Profiler) => "[profiler]".to_owned(),
            Self::KernelOnly(KernelHalf::Exit) => "[exit]".to_owned(),
            Self::KernelOnly(_) => "[kernel only: the user stack was taken elsewhere]".to_owned(),
        }
    }
}

struct Builder<'a> {
    recording: &'a Recording,
    symbols: &'a Symbols,
    tables: Tables,
    /// The functions of a recorded frame, outermost first.
    of_frame: HashMap<FrameId, Vec<SourceFrameId>>,
    /// A recorded stack, on top of what it is shown to begin with.
    of_stack: HashMap<(Option<StackId>, Option<Cut>), CallId>,
    /// For each recorded stack whether its outermost frame is a root by name.
    complete: Vec<bool>,
}

impl Builder<'_> {
    fn find_complete(&mut self) {
        for node in &self.recording.stacks {
            let complete = match node.parent {
                Some(parent) => self.complete[parent.index()],
                None => self.is_root(node.frame),
            };
            self.complete.push(complete);
        }
    }

    fn is_root(&self, frame: FrameId) -> bool {
        let place = self.symbols.of_frame[frame.index()];
        let place = place.map(|place| &self.symbols.places[place as usize]);
        let outer = place.and_then(|place| place.functions.last());
        outer.is_some_and(|outer| roots::is_root(&outer.function))
    }

    fn sample(&mut self, sample: &RawSample) -> Sample {
        let complete = sample
            .stack
            .is_some_and(|stack| self.complete[stack.index()]);
        let preempted = sample.flags & flags::PREEMPTED != 0;
        let cut = match sample.kernel {
            // A thread that was made, and waited to begin.
            _ if preempted && sample.stack.is_none() => None,
            half if half.is_alone() => Some(Cut::KernelOnly(half)),
            _ if complete || sample.stop == StopReason::Root => None,
            _ => Some(Cut::Stopped(sample.stop)),
        };
        let mut stack = match sample.stack {
            None if preempted => None,
            None if sample.event == OFF_CPU => {
                let note = self.tables.note("[stack lost]".to_owned());
                Some(self.tables.call(None, note))
            }
            stack => Some(self.stack(stack, cut)),
        };
        if preempted {
            let note = self.tables.note("[preempted]".to_owned());
            stack = Some(self.tables.call(stack, note));
        }
        let mut stack = stack.unwrap_or_else(|| self.stack(None, cut));
        let elsewhere = match sample.flags {
            set if set & flags::LAST != 0 => Some("[since the last sample]"),
            set if set & flags::LET_IN != 0 => Some("[while SIGPROF was blocked]"),
            _ => None,
        };
        if let Some(note) = elsewhere {
            // Taken where the time did not go: of its stack only the root says something.
            while let Some(parent) = self.tables.stacks[stack.index()].parent {
                stack = parent;
            }
            let note = self.tables.note(note.to_owned());
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
            kernel: sample.kernel,
        }
    }

    /// The stack of functions for a recorded stack; its root is a note if it does not reach to one.
    fn stack(&mut self, stack: Option<StackId>, cut: Option<Cut>) -> CallId {
        let mut todo = Vec::new();
        let mut at = stack;
        let mut made = loop {
            if let Some(known) = self.of_stack.get(&(at, cut)) {
                break Some(*known);
            }
            let Some(id) = at else { break None };
            todo.push(id);
            at = self.recording.stacks[id.index()].parent;
        };
        if made.is_none() {
            let lost = todo.last().is_some_and(|root| self.is_lost(*root));
            if let Some(cut) = cut.filter(|_| !lost) {
                let note = self.tables.note(cut.note());
                let root = self.tables.call(None, note);
                self.of_stack.insert((None, Some(cut)), root);
                made = Some(root);
            }
        }
        for id in todo.into_iter().rev() {
            let frame = self.recording.stacks[id.index()].frame;
            for function in self.functions(frame) {
                made = Some(self.tables.call(made, function));
            }
            if let Some(made) = made {
                self.of_stack.insert((Some(id), cut), made);
            }
        }
        made.unwrap_or_else(|| {
            let note = self.tables.note("[no frames]".to_owned());
            self.tables.call(None, note)
        })
    }

    fn is_lost(&self, stack: StackId) -> bool {
        let frame = self.recording.stacks[stack.index()].frame;
        self.recording.frames[frame.index()] == RawFrame::Lost
    }

    fn functions(&mut self, id: FrameId) -> Vec<SourceFrameId> {
        if let Some(known) = self.of_frame.get(&id) {
            return known.clone();
        }
        let made = match self.recording.frames[id.index()] {
            RawFrame::Elided(count) => vec![self.tables.note(format!("[{count} frames elided]"))],
            RawFrame::Lost => {
                let note = "[truncated: the recording is damaged]".to_owned();
                vec![self.tables.note(note)]
            }
            RawFrame::Code { frame, method, .. } => self.named(id, frame, Mode::User, Some(method)),
            RawFrame::Kernel(frame) => self.named(id, frame, Mode::Kernel, None),
        };
        self.of_frame.insert(id, made.clone());
        made
    }

    /// The functions at an address, outermost first.
    fn named(
        &mut self,
        id: FrameId,
        address: CodeAddress,
        mode: Mode,
        method: Option<Method>,
    ) -> Vec<SourceFrameId> {
        let place = self.symbols.of_frame[id.index()];
        let place = place.map(|place| &self.symbols.places[place as usize]);
        let Some(place) = place else {
            return Vec::new();
        };
        let mut made = Vec::with_capacity(place.functions.len());
        for (named, inline_depth) in place.functions.iter().rev().zip(0..) {
            let function = self.tables.function(Function {
                name: named.function.clone(),
                image: place.image,
                mode,
            });
            made.push(self.tables.frame(Frame {
                function,
                file: named.file.clone(),
                line: named.line,
                inline_depth,
                address: Some(address),
                file_address: place.address,
                function_start: named.start,
                method,
            }));
        }
        made
    }
}
