//! The second pass: samples, and the stacks they share.
//!
//! Samples of a chunk lean on each other. Behind a damaged record the outer frames that a later sample takes over are not known; such
//! a sample is kept, with its weight and its inner frames, and its root is [`RawFrame::Lost`] until a sample comes that takes over none
//! of them.

use super::error::Damages;
use super::model::{
    FrameId, ModuleId, Process, ProcessId, RawFrame, RawSample, Recording, StackId, StackNode,
    ThreadId,
};
use super::walk::Step;
use engine::address::RuntimeAddress;
use engine::wire::WireError;
use engine::wire::record::RecordKind;
use engine::wire::sample::{Frame, Sample, SampleHead};
use std::collections::HashMap;

/// Deeper stacks than this are taken for damage; walks have a limit far below.
const DEEPEST: usize = 1 << 16;
/// How far up to look for the modules of a process that forked and recorded none of its own.
const MOST_FORKS: usize = 16;

/// Frames and stacks, each held once.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    frames: HashMap<RawFrame, FrameId>,
    nodes: HashMap<StackNode, StackId>,
}

/// The stack of the sample before, from root to leaf.
#[derive(Debug, Default)]
struct Before {
    head: SampleHead,
    /// How many outermost frames are not known.
    unknown: usize,
    frames: Vec<RawFrame>,
    /// The stack at each frame, if no gap lies below it.
    nodes: Vec<StackId>,
}

/// The samples of one chunk, on their way into a recording.
pub(super) struct ChunkSamples<'a> {
    pub(super) recording: &'a mut Recording,
    pub(super) stacks: &'a mut Stacks,
    pub(super) thread: ThreadId,
    before: Before,
}

impl<'a> ChunkSamples<'a> {
    pub(super) fn new(
        recording: &'a mut Recording,
        stacks: &'a mut Stacks,
        thread: ThreadId,
    ) -> Self {
        Self {
            recording,
            stacks,
            thread,
            before: Before::default(),
        }
    }

    /// Takes in the next record.
    pub(super) fn step(&mut self, step: &Step<'_>, damages: &mut Damages) {
        let Step::Record(record, offset) = step else {
            self.lose();
            return;
        };
        if RecordKind::from_number(record.kind) != Some(RecordKind::Sample) {
            return;
        }
        if let Err(error) = self.sample(record.payload) {
            damages.add(*offset, 0, format!("a sample: {error}"));
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.before.frames.clear();
        self.before.nodes.clear();
        self.before.unknown = DEEPEST;
    }

    fn sample(&mut self, payload: &[u8]) -> Result<(), WireError> {
        let sample = Sample::decode(payload, &self.before.head)?;
        let depth = self.before.unknown + self.before.frames.len();
        if sample.reused > depth {
            return Err(WireError::BadValue("reused frames", sample.reused as u64));
        }
        let new: Vec<Frame> = sample.new_frames().collect::<Result<_, _>>()?;
        if sample.reused.saturating_add(new.len()) > DEEPEST {
            return Err(WireError::BadValue("stack depth", new.len() as u64));
        }
        self.take_over(sample.reused);
        let thread = &self.recording.threads[self.thread.index()];
        let process = thread.process;
        if self.recording.processes[process.index()].map.changes() {
            self.look_again(sample.head.time_ns);
        }
        for frame in new.iter().rev() {
            let address = frame.code_address().lookup();
            let module = self.module(process, address, sample.head.time_ns);
            let raw = RawFrame::code(process, *frame, module);
            self.before.frames.push(raw);
        }
        self.before.head = sample.head;
        let stack = self.stack(&sample.head);
        self.recording.samples.push(RawSample {
            thread: self.thread,
            time_ns: sample.head.time_ns,
            weight: sample.head.weight,
            stack,
            trigger: sample.head.trigger,
            stop: sample.head.stop,
            flags: sample.head.flags,
        });
        Ok(())
    }

    /// Keeps the `reused` outermost frames of the stack before.
    fn take_over(&mut self, reused: usize) {
        let unknown = self.before.unknown.min(reused);
        if unknown < self.before.unknown {
            self.before.nodes.clear();
        }
        self.before.unknown = unknown;
        self.before.frames.truncate(reused - unknown);
        self.before.nodes.truncate(reused - unknown);
    }

    /// Frames taken over may lie in another module by now.
    fn look_again(&mut self, time_ns: u64) {
        for index in 0..self.before.frames.len() {
            if let RawFrame::Code {
                process,
                frame,
                method,
                module,
            } = self.before.frames[index]
            {
                let now = self.module(process, frame.lookup(), time_ns);
                if now != module {
                    self.before.nodes.truncate(index);
                    self.before.frames[index] = RawFrame::Code {
                        process,
                        frame,
                        method,
                        module: now,
                    };
                }
            }
        }
    }

    fn module(
        &self,
        process: ProcessId,
        address: RuntimeAddress,
        time_ns: u64,
    ) -> Option<ModuleId> {
        let modules = &self.recording.modules;
        let mut owner = &self.recording.processes[process.index()];
        let mut found = owner.map.find(address, time_ns, modules);
        for _ in 0..MOST_FORKS {
            let parent = owner.parent.filter(|_| inherits(owner));
            let Some(parent) = parent.filter(|_| found.is_none()) else {
                break;
            };
            let forked_ns = owner.key;
            owner = &self.recording.processes[parent.index()];
            found = owner.map.find(address, forked_ns.min(time_ns), modules);
        }
        found
    }

    /// The stack of all frames there are now, and the gap where frames were left out.
    fn stack(&mut self, head: &SampleHead) -> Option<StackId> {
        let depth = self.before.frames.len();
        let gap = (head.elided > 0).then(|| depth.saturating_sub(as_index(head.elided_at)));
        let known = match gap {
            Some(_) => 0,
            None => self.before.nodes.len(),
        };
        let mut node = known.checked_sub(1).map(|last| self.before.nodes[last]);
        if known == 0 && self.before.unknown > 0 {
            node = self.push(None, RawFrame::Lost);
        }
        for index in known..depth {
            if gap == Some(index) {
                node = self.push(node, RawFrame::Elided(head.elided));
            }
            node = self.push(node, self.before.frames[index]);
            if let (None, Some(node)) = (gap, node) {
                self.before.nodes.push(node);
            }
        }
        if gap == Some(depth) {
            node = self.push(node, RawFrame::Elided(head.elided));
        }
        if gap.is_some() {
            self.before.nodes.clear();
        }
        node
    }

    fn push(&mut self, parent: Option<StackId>, frame: RawFrame) -> Option<StackId> {
        let frames = &mut self.recording.frames;
        let frame = *self.stacks.frames.entry(frame).or_insert_with(|| {
            frames.push(frame);
            FrameId::next_of(frames.len() - 1)
        });
        let nodes = &mut self.recording.stacks;
        let node = StackNode { parent, frame };
        let id = *self.stacks.nodes.entry(node).or_insert_with(|| {
            nodes.push(node);
            StackId::next_of(nodes.len() - 1)
        });
        Some(id)
    }
}

fn inherits(process: &Process) -> bool {
    process.map.is_empty() && process.origin == engine::wire::process::Origin::Fork
}

fn as_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
