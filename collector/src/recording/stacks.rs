//! The second pass: samples, and the stacks they share.
//!
//! Samples of a chunk lean on each other. Behind a damaged record the outer frames that a later sample takes over are not known; such
//! a sample is kept, with its weight and its inner frames, and its root is [`RawFrame::Lost`] until a sample comes that takes over none
//! of them.

use super::account::KernelHalf;
use super::error::Damages;
use super::kernel::{KernelReader, Waiting, WaitingRoom, agrees, is_entry, is_near};
use super::model::{FrameId, RawFrame, RawSample, Recording, StackId, StackNode, ThreadId};
use super::walk::Step;
use engine::address::CodeAddress;
use engine::wire::WireError;
use engine::wire::kernel::KernelHead;
use engine::wire::offer::CPU_EVENT;
use engine::wire::record::RecordKind;
use engine::wire::sample::{Frame, Method, Sample, SampleHead, StopReason, Trigger};
use engine::wire::thread::ThreadEndReason;
use std::collections::HashMap;

/// Deeper stacks than this are taken for damage; walks have a limit far below.
const DEEPEST: usize = 1 << 16;

/// Frames and stacks, each held once.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    frames: HashMap<RawFrame, FrameId>,
    nodes: HashMap<StackNode, StackId>,
    waiting: WaitingRoom,
}

impl Stacks {
    fn push(
        &mut self,
        recording: &mut Recording,
        parent: Option<StackId>,
        frame: RawFrame,
    ) -> Option<StackId> {
        let frames = &mut recording.frames;
        let frame = *self.frames.entry(frame).or_insert_with(|| {
            frames.push(frame);
            FrameId::next_of(frames.len() - 1)
        });
        let nodes = &mut recording.stacks;
        let node = StackNode { parent, frame };
        let id = *self.nodes.entry(node).or_insert_with(|| {
            nodes.push(node);
            StackId::next_of(nodes.len() - 1)
        });
        Some(id)
    }

    fn push_kernel(
        &mut self,
        recording: &mut Recording,
        user: Option<StackId>,
        sample: &Waiting,
    ) -> Option<StackId> {
        let frames = sample.root_first();
        frames.fold(user, |node, frame| {
            self.push(recording, node, RawFrame::Kernel(frame))
        })
    }

    /// Kernel samples that no user stack came for.
    pub(super) fn finish(mut self, recording: &mut Recording) {
        let mut last: HashMap<ThreadId, u64> = HashMap::new();
        for sample in &recording.samples {
            let last = last.entry(sample.thread).or_default();
            *last = sample.time_ns.max(*last);
        }
        for (thread, sample) in self.waiting.rest() {
            let stack = self.push_kernel(recording, None, &sample);
            let half = Self::without_user_stack(recording, thread, &sample.head);
            recording.samples.push(RawSample {
                thread,
                time_ns: sample.head.time_ns,
                weight: u64::from(sample.head.event == CPU_EVENT),
                stack,
                trigger: Trigger::PerfKernel,
                stop: StopReason::Abandoned,
                flags: 0,
                kernel: half,
                event: sample.head.event,
                value: sample.head.value,
            });
            let about = &mut recording.threads[thread.index()];
            let looked_at = about.end.map(|end| end.time_ns);
            let looked_at = looked_at.or(last.get(&thread).copied()).unwrap_or(0);
            if sample.head.event == CPU_EVENT && sample.head.time_ns > looked_at {
                let period = about.armings.last().map_or(0, |arming| arming.period_ns);
                about.late_cpu_ns = about.late_cpu_ns.saturating_add(period);
            }
        }
        recording.samples.sort_by_key(|sample| sample.thread);
    }

    fn without_user_stack(
        recording: &Recording,
        thread: ThreadId,
        kernel: &KernelHead,
    ) -> KernelHalf {
        let about = &recording.threads[thread.index()];
        if recording.is_ours(about.process, kernel.user_ip, kernel.time_ns) {
            return KernelHalf::Profiler;
        }
        match about.end.map(|end| end.reason) {
            None | Some(ThreadEndReason::Stopped) => KernelHalf::Orphan,
            Some(_) => KernelHalf::Exit,
        }
    }
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
    kernel: KernelReader,
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
            kernel: KernelReader::default(),
        }
    }

    /// Takes in the next record.
    pub(super) fn step(&mut self, step: &Step<'_>, damages: &mut Damages) {
        let Step::Record(record, offset) = step else {
            self.lose();
            return;
        };
        let read = match RecordKind::from_number(record.kind) {
            Some(RecordKind::Sample) => self.sample(record.payload),
            Some(RecordKind::Kernel) => self.kernel_sample(record.payload),
            _ => return,
        };
        if let Err(error) = read {
            damages.add(*offset, 0, format!("a sample: {error}"));
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.before.frames.clear();
        self.before.nodes.clear();
        self.before.unknown = DEEPEST;
        self.kernel.lose();
    }

    fn kernel_sample(&mut self, payload: &[u8]) -> Result<(), WireError> {
        let (head, frames) = self.kernel.read(payload)?;
        self.stacks.waiting.enter(self.thread, head, frames);
        Ok(())
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
            let module = self
                .recording
                .module_at(process, address, sample.head.time_ns);
            let raw = RawFrame::code(process, *frame, module);
            self.before.frames.push(raw);
        }
        self.before.head = sample.head;
        let stack = self.stack(&sample.head);
        self.add(&sample.head, stack);
        Ok(())
    }

    /// Adds a user stack, and on top of it the kernel's stacks of the same entry, one period each.
    fn add(&mut self, head: &SampleHead, stack: Option<StackId>) {
        let mut made = RawSample {
            thread: self.thread,
            time_ns: head.time_ns,
            weight: head.weight,
            stack,
            trigger: head.trigger,
            stop: head.stop,
            flags: head.flags,
            kernel: KernelHalf::None,
            event: CPU_EVENT,
            value: 0,
        };
        let (leaf, caller) = self.shield(stack);
        let mut joined = false;
        for kernel in self.stacks.waiting.leave(self.thread, head.nonce) {
            let (mut half, user) = match agrees(&kernel.head, head, leaf) {
                true => (KernelHalf::Merged, stack),
                false => self.elsewhere(&kernel.head, head, stack, caller),
            };
            if half == KernelHalf::Merged && std::mem::replace(&mut joined, true) {
                half = KernelHalf::Reused;
            }
            let whole = self.stacks.push_kernel(self.recording, user, &kernel);
            // The weights of an entry add up to its CPU time, which may be a little less than its samples say. Other events have none.
            let is_cpu_time = kernel.head.event == CPU_EVENT;
            let weight = made.weight.min(u64::from(is_cpu_time));
            made.weight -= weight;
            self.recording.samples.push(RawSample {
                time_ns: kernel.head.time_ns,
                weight,
                stack: whole,
                kernel: half,
                event: kernel.head.event,
                value: kernel.head.value,
                ..made
            });
        }
        if made.weight > 0 {
            self.recording.samples.push(made);
        }
    }

    /// What a kernel sample is that was not taken where the user stack's leaf is, and its user stack. `caller` is the stack of who called
    /// the wrapper of ours that the user stack was taken in, if it was.
    fn elsewhere(
        &self,
        kernel: &KernelHead,
        user: &SampleHead,
        stack: Option<StackId>,
        caller: Option<StackId>,
    ) -> (KernelHalf, Option<StackId>) {
        if let Some(interrupted) = self.interrupted(stack, kernel.user_ip) {
            return (KernelHalf::Merged, Some(interrupted));
        }
        let process = self.recording.threads[self.thread.index()].process;
        let is_ours = self
            .recording
            .is_ours(process, kernel.user_ip, user.time_ns);
        match caller {
            _ if is_ours => (KernelHalf::Profiler, None),
            Some(caller) if is_near(kernel, user) => (KernelHalf::Shielded, Some(caller)),
            None if is_near(kernel, user) && kernel.user_sp < user.sp => {
                self.held_back(stack).unwrap_or((KernelHalf::Late, None))
            }
            _ => (KernelHalf::Late, None),
        }
    }

    /// A sample taken deeper in the stack than where the user stack was taken, which it was not at once: some function held all signals
    /// back meanwhile. libc's do, around clone and vfork. Its caller is on both stacks.
    fn held_back(&self, stack: Option<StackId>) -> Option<(KernelHalf, Option<StackId>)> {
        let holder = self.recording.stacks[stack?.index()];
        let RawFrame::Code {
            module: Some(module),
            ..
        } = self.recording.frames[holder.frame.index()]
        else {
            return None;
        };
        let holder_is_libc = self.recording.modules[module.index()].is_libc();
        holder_is_libc.then_some((KernelHalf::Shielded, holder.parent))
    }

    /// The stack from the frame on that a signal of the program interrupted at that address: on the way back from the kernel its handler
    /// was entered before ours, and our walk began there.
    fn interrupted(&self, stack: Option<StackId>, user_ip: u64) -> Option<StackId> {
        let mut at = stack;
        while let Some(id) = at {
            let node = self.recording.stacks[id.index()];
            if let RawFrame::Code { frame, method, .. } = self.recording.frames[node.frame.index()]
                && method == Method::SignalFrame
                && is_entry(user_ip, frame.lookup().0)
            {
                return Some(id);
            }
            at = node.parent;
        }
        None
    }

    /// The address of the leaf, and if that lies in our own library, the stack from the outermost of its frames there: the wrapper that the
    /// program called.
    fn shield(&self, stack: Option<StackId>) -> (u64, Option<StackId>) {
        let (mut leaf, mut wrapper, mut at) = (None, None, stack);
        while let Some(id) = at {
            let node = self.recording.stacks[id.index()];
            let RawFrame::Code { frame, module, .. } = self.recording.frames[node.frame.index()]
            else {
                break;
            };
            leaf.get_or_insert(match frame {
                CodeAddress::Instruction(address) | CodeAddress::Return(address) => address.0,
            });
            if !module.is_some_and(|module| self.recording.modules[module.index()].is_ours()) {
                break;
            }
            wrapper = Some(id);
            at = node.parent;
        }
        (leaf.unwrap_or(0), wrapper)
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
                let now = self.recording.module_at(process, frame.lookup(), time_ns);
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
        self.stacks.push(self.recording, parent, frame)
    }
}

fn as_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
