//! The second pass: samples, and the stacks they share.
//!
//! Samples of a chunk lean on each other. Behind a damaged record the outer frames that a later
//! sample takes over are not known; such a sample is kept, with its weight and its inner frames,
//! and its root is [`RawFrame::Lost`] until a sample comes that takes over none of them.

use super::before::{Before, DEEPEST, read_new};
use super::beside::Beside;
use super::kernel_samples::{KernelReader, Waiting, WaitingRoom};
use super::window::{Sent, Window};
use crate::intern::{HashMap, HashSet};
use crate::recording::{
    Author, ChunkRecords, Damages, FrameId, LabelsId, ProcessId, RawFrame, RawSample, Recording,
    Regions, StackId, StackNode, StackTable, Step, ThreadId, ThreadName,
};
use engine::address::{CodeAddress, RuntimeAddress};
use engine::wire::WireError;
use engine::wire::record::RecordKind;
use engine::wire::sample::{Frame, Method, Sample, SampleHead, flags};
use std::collections::BTreeMap;

/// Bytes from where handlers return to, at most, to behind the system call that leads from there to
/// the interrupted code.
const WAY_BACK: u64 = 16;

/// Of a thread's first sample, where samples are counted.
const FIRST_NONCE: u64 = 1;

/// What is made of chunks.
#[derive(Debug, Default)]
pub(super) struct Made {
    table: StackTable,
    pub(super) frames: Vec<RawFrame>,
    pub(super) stacks: Vec<StackNode>,
    pub(super) samples: Vec<RawSample>,
    /// What is to be added to [`crate::recording::Thread::late_cpu_ns`].
    pub(super) late_cpu_ns: Vec<(ThreadId, u64)>,
}

impl Made {
    pub(super) fn frame(&mut self, frame: RawFrame) -> FrameId {
        self.table.frame(&mut self.frames, frame)
    }

    /// A frame that cannot be there, nor ever be looked for.
    pub(super) fn new_frame(&mut self, frame: RawFrame) -> FrameId {
        self.frames.push(frame);
        FrameId::next_of(self.frames.len() - 1)
    }

    /// A stack that cannot be there, nor ever be looked for.
    pub(super) fn new_call(&mut self, parent: Option<StackId>, frame: FrameId) -> StackId {
        self.stacks.push(StackNode { parent, frame });
        StackId::next_of(self.stacks.len() - 1)
    }

    /// The stack of a frame and its caller's stack.
    pub(super) fn call(&mut self, parent: Option<StackId>, frame: FrameId) -> StackId {
        self.table.push(&mut self.stacks, parent, frame)
    }
}

/// What the chunks of a process share: the stacks so far, and kernel samples that wait for one.
#[derive(Debug)]
pub(super) struct Stacks {
    pub(super) made: Made,
    pub(super) waiting: WaitingRoom,
    pub(super) window: Window,
    /// See [`Sent::late`].
    pub(super) sent: BTreeMap<ThreadName, u64>,
    pub(super) beside: Beside,
    /// Where handlers of a process return to.
    trampolines: HashSet<(ProcessId, u64)>,
    recent: Recent,
    /// What threads said of theirs.
    pub(super) regions: HashMap<ThreadId, Regions>,
    /// The new frames of a sample, leaf first.
    new: Vec<Frame>,
}

impl Stacks {
    pub(super) fn of(recording: &Recording, window: Window, sent: Sent) -> Self {
        let threads = (0..recording.threads.len()).map(ThreadId::next_of);
        let before = threads.filter_map(|id| {
            let weight = sent.beside.get(&name_of(recording, id))?;
            Some((id, *weight))
        });
        Self {
            made: Made::default(),
            waiting: WaitingRoom::default(),
            window,
            sent: sent.late,
            beside: Beside::of(window, before),
            trampolines: HashSet::default(),
            recent: Recent::of(window),
            regions: HashMap::default(),
            new: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, parent: Option<StackId>, frame: RawFrame) -> Option<StackId> {
        let frame = self.made.frame(frame);
        Some(self.made.call(parent, frame))
    }

    /// Whether the kernel was entered at `user_ip` to leave a signal handler for the code that it
    /// interrupted.
    pub(super) fn is_way_back(&self, process: ProcessId, user_ip: u64) -> bool {
        let starts = (1..=WAY_BACK).filter_map(|step| user_ip.checked_sub(step));
        let mut known = starts.map(|start| self.trampolines.contains(&(process, start)));
        known.any(|known| known)
    }

    pub(super) fn push_kernel(
        &mut self,
        user: Option<StackId>,
        sample: &Waiting,
    ) -> Option<StackId> {
        let frames = sample.root_first();
        frames.fold(user, |node, frame| self.push(node, RawFrame::Kernel(frame)))
    }
}

impl Stacks {
    /// Where a sample of user mode was taken is all that is known of its stack.
    pub(super) fn push_leaf(
        &mut self,
        recording: &Recording,
        thread: ThreadId,
        sample: &Waiting,
    ) -> Option<StackId> {
        let process = recording.threads[thread.index()].process;
        let ip = RuntimeAddress(sample.head.user_ip);
        let frame = Frame::native(ip, Method::Registers);
        let module = recording.module_at(process, frame.pc, sample.head.time_ns);
        let frame = RawFrame::code(process, frame, module);
        self.push(None, frame)
    }
}

/// How many frames are remembered; powers of two. A window has few.
const REMEMBERED: usize = 1 << 15;
const REMEMBERED_IN_WINDOW: usize = 1 << 11;

/// Frames that were met, each found in one look: programs return to few places.
#[derive(Debug)]
struct Recent(Vec<Option<(ProcessId, Frame, FrameId)>>);

impl Recent {
    fn of(window: Window) -> Self {
        let count = match window.is_whole() {
            true => REMEMBERED,
            false => REMEMBERED_IN_WINDOW,
        };
        Self(vec![None; count])
    }

    fn find(&self, process: ProcessId, frame: &Frame) -> Option<FrameId> {
        let found = self.0[self.place(process, frame)].as_ref();
        let found = found.filter(|(whose, what, _)| *whose == process && what == frame);
        found.map(|(_, _, id)| *id)
    }

    fn note(&mut self, process: ProcessId, frame: &Frame, id: FrameId) {
        let place = self.place(process, frame);
        self.0[place] = Some((process, *frame, id));
    }

    fn place(&self, process: ProcessId, frame: &Frame) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = frame.pc.0 ^ u64::from(frame.position) ^ u64::from(process.number()) << 48;
        (mixed.wrapping_mul(ODD) >> 48) as usize & (self.0.len() - 1)
    }
}

/// The samples of one chunk, on their way into a recording.
pub(super) struct ChunkSamples<'a, 'c> {
    pub(super) recording: &'a Recording,
    pub(super) stacks: &'a mut Stacks,
    pub(super) thread: ThreadId,
    by: Author,
    file: usize,
    before: Before<'c>,
    kernel: KernelReader,
}

impl<'a, 'c> ChunkSamples<'a, 'c> {
    pub(super) fn new(
        recording: &'a Recording,
        stacks: &'a mut Stacks,
        chunk: &ChunkRecords<'_>,
    ) -> Self {
        Self {
            recording,
            stacks,
            thread: chunk.thread,
            by: chunk.by,
            file: chunk.file,
            before: Before::default(),
            kernel: KernelReader::default(),
        }
    }

    /// Takes in the next record.
    pub(super) fn step(&mut self, step: &Step<'c>, damages: &mut Damages) {
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
        self.before.lose();
        self.kernel.lose();
    }

    fn kernel_sample(&mut self, payload: &[u8]) -> Result<(), WireError> {
        let (mut head, frames) = self.kernel.read(payload)?;
        head.event = self.recording.event_of(self.file, head.event);
        self.stacks.waiting.enter(self.thread, head, frames);
        Ok(())
    }

    fn sample(&mut self, payload: &'c [u8]) -> Result<(), WireError> {
        let sample = Sample::decode(payload, &self.before.head)?;
        if sample.reused > self.before.depth() {
            return Err(WireError::BadValue("reused frames", sample.reused as u64));
        }
        let window = self.stacks.window;
        let head = &sample.head;
        // What was seen from outside stands for samples that waited until the end.
        let is_end = window.is_last() && head.flags & flags::FROM_OUTSIDE != 0;
        let is_wanted = window.has(head.time_ns) || is_end;
        if is_wanted || !self.pass_over(&sample)? {
            let mut new = std::mem::take(&mut self.stacks.new);
            let taken = self.new_frames(&sample, &mut new);
            self.stacks.new = new;
            taken?;
        }
        self.before.head = sample.head;
        let head = self.weighed(sample.head);
        self.learn_regions(&head);
        if !is_wanted {
            let is_over = window.is_over(head.time_ns);
            let waiting = &mut self.stacks.waiting;
            // The next window takes it that this one had them.
            waiting.leave_but(self.thread, head.nonce, |kernel| {
                is_over && window.has_late(kernel.time_ns)
            });
            return Ok(());
        }
        let stack = self.stack(&head);
        self.add(&head, stack);
        Ok(())
    }

    /// With the weight that is left to it by what was recorded beside it.
    fn weighed(&mut self, head: SampleHead) -> SampleHead {
        let (beside, thread) = (&mut self.stacks.beside, self.thread);
        let weight = match self.by {
            Author::Collector => head.weight,
            Author::Beside => {
                beside.copied(thread, head.time_ns, head.weight);
                head.weight
            }
            Author::Thread => {
                let is_first = head.nonce == FIRST_NONCE;
                let (weight, before) = beside.own(thread, is_first, head.time_ns, head.weight);
                if before > 0 {
                    let before_ns = before.saturating_mul(self.period_ns());
                    self.stacks.made.late_cpu_ns.push((thread, before_ns));
                }
                weight
            }
        };
        SampleHead { weight, ..head }
    }

    /// Notes what the thread says itself. Others, who do not know it, give what they saw no weight,
    /// or are marked.
    fn learn_regions(&mut self, head: &SampleHead) {
        if head.changes | head.labels != 0
            || self.by == Author::Thread
                && head.weight != 0
                && head.flags & flags::FROM_OUTSIDE == 0
        {
            let labels = self.labels(head);
            let regions = self.stacks.regions.entry(self.thread).or_default();
            regions.say(head.time_ns, head.changes, labels);
        }
    }

    /// The labels that a sample says that it has.
    pub(super) fn labels(&self, head: &SampleHead) -> LabelsId {
        if head.labels == 0 {
            return LabelsId::NONE;
        }
        let process = self.recording.threads[self.thread.index()].process;
        let known = &self.recording.processes[process.index()].labels;
        known
            .get(&head.labels)
            .copied()
            .unwrap_or(LabelsId::UNKNOWN)
    }

    /// Leaves frames of a sample that is not wanted for later, if nothing is to be learned of them:
    /// most are on no sample that is wanted.
    fn pass_over(&mut self, sample: &Sample<'c>) -> Result<bool, WireError> {
        let process = self.recording.threads[self.thread.index()].process;
        let map = &self.recording.processes[process.index()].map;
        if map.changes() || !self.recording.has_steady_map(process) {
            return Ok(false);
        }
        let Some(new) = sample.plain_frames()? else {
            return Ok(false);
        };
        check_depth(sample.reused, new)?;
        self.before.take_over(sample.reused);
        self.before.leave(sample, new);
        Ok(true)
    }

    /// Takes the frames of a sample that are not those of the sample before.
    fn new_frames(&mut self, sample: &Sample<'_>, new: &mut Vec<Frame>) -> Result<(), WireError> {
        self.before.take_over(sample.reused);
        self.before.read_unread(new)?;
        read_new(sample, new)?;
        check_depth(sample.reused, new.len())?;
        let time_ns = sample.head.time_ns;
        let process = self.recording.threads[self.thread.index()].process;
        self.before.unwanted.extend(new.iter().rev());
        if self.recording.processes[process.index()].map.changes() {
            self.look_again(time_ns);
        }
        if !self.recording.has_steady_map(process) {
            self.want_frames(time_ns, false);
        }
        self.learn_trampolines(process, new);
        Ok(())
    }

    /// All frames there are now are wanted. `steady`: an address of the process means the same
    /// module at all times.
    fn want_frames(&mut self, time_ns: u64, steady: bool) {
        let process = self.recording.threads[self.thread.index()].process;
        for frame in &self.before.unwanted {
            let known = self.stacks.recent.find(process, frame).filter(|_| steady);
            let id = known.unwrap_or_else(|| {
                let raw = self.recording.raw_frame(process, *frame, time_ns);
                let id = self.stacks.made.frame(raw);
                self.stacks.recent.note(process, frame, id);
                id
            });
            self.before.frames.push(id);
        }
        self.before.unwanted.clear();
    }

    /// The frame inside of one that a signal interrupted is the trampoline that the handler returns
    /// to.
    fn learn_trampolines(&mut self, process: ProcessId, leaf_first: &[Frame]) {
        for pair in leaf_first.windows(2) {
            if let [inner, outer] = pair
                && outer.method == Method::SignalFrame
                && let CodeAddress::Return(start) = inner.code_address()
            {
                self.stacks.trampolines.insert((process, start.0));
            }
        }
    }

    /// Frames taken over may lie in another module by now.
    fn look_again(&mut self, time_ns: u64) {
        for index in 0..self.before.frames.len() {
            if let RawFrame::Code {
                process,
                frame,
                method,
                module,
            } = self.stacks.made.frames[self.before.frames[index].index()]
            {
                let now = self.recording.module_at(process, frame.lookup(), time_ns);
                if now != module {
                    self.before.nodes.truncate(index);
                    let raw = RawFrame::Code {
                        process,
                        frame,
                        method,
                        module: now,
                    };
                    self.before.frames[index] = self.stacks.made.frame(raw);
                }
            }
        }
    }

    /// The stack of all frames there are now, and the gap where frames were left out.
    fn stack(&mut self, head: &SampleHead) -> Option<StackId> {
        // Of others none are left.
        self.want_frames(head.time_ns, true);
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
            let frame = self.before.frames[index];
            let pushed = self.stacks.made.call(node, frame);
            node = Some(pushed);
            if gap.is_none() {
                self.before.nodes.push(pushed);
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
        self.stacks.push(parent, frame)
    }
}

fn check_depth(reused: usize, new: usize) -> Result<(), WireError> {
    match reused.saturating_add(new) > DEEPEST {
        true => Err(WireError::BadValue("stack depth", new as u64)),
        false => Ok(()),
    }
}

/// How chunks name a thread.
pub(super) fn name_of(recording: &Recording, thread: ThreadId) -> ThreadName {
    let thread = &recording.threads[thread.index()];
    let process = &recording.processes[thread.process.index()];
    (process.pid, process.key, thread.tid, thread.key)
}

fn as_index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
