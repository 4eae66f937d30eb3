//! Context switches of the threads of one program run, made into chunks: an absence is a kernel
//! sample, whose value is how long it was, and the user stack of the same moment.
//!
//! Not here: what is an absence ([`presence`]), what the program run is ([`crate::copy`]), and who
//! of the reader's threads is meant ([`engine::wire::chunk::FROM_SWITCHES`]).

mod presence;

use crate::recording::records::{Chunk, Records};
use engine::wire::chunk::{ChunkInfo, FROM_SWITCHES};
use engine::wire::kernel::KernelHead;
use engine::wire::record::RecordKind;
use engine::wire::sample::{Frame, SampleHead, StopReason, Trigger, flags};
use engine::wire::source::OFF_CPU;
use engine::wire::thread::{self as wire_thread, ThreadEnd, ThreadEndReason};
use presence::Absence;
pub(crate) use presence::Presence;
use std::collections::HashMap;

/// Where a thread was, unwound.
#[derive(Debug)]
pub(crate) struct Stack {
    /// In user mode, from leaf to root.
    pub(crate) frames: Vec<Frame>,
    /// In the kernel.
    pub(crate) kernel: Vec<u64>,
    /// What the walk says of itself; time and flags are the absence's.
    pub(crate) head: SampleHead,
    /// With the frames of interpreters, if anybody has looked; and whether there are any.
    pub(crate) look: Option<Look>,
    pub(crate) has_interpreter: bool,
}

/// A stack that was looked at while its thread was, perhaps, still away.
#[derive(Debug)]
pub(crate) struct Look {
    /// With the frames of interpreters, and deeper than what was copied.
    pub(crate) frames: Vec<Frame>,
    /// As above.
    pub(crate) head: SampleHead,
    /// Whether frames of interpreters are missing.
    pub(crate) lacks: bool,
    /// What the program calls the thread, if that was looked at.
    pub(crate) own_name: Option<Vec<u8>>,
    /// When it was over (`CLOCK_MONOTONIC`, ns). It saw this absence's stack if the thread was not
    /// back by then.
    pub(crate) taken_ns: u64,
}

/// The threads of a program run.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    threads: HashMap<i32, Thread>,
    /// Of threads that have ended.
    ended: Vec<Chunk>,
    sequence: u64,
    /// Absences whose end was lost, of threads that have ended.
    unpaired: u64,
}

#[derive(Debug)]
struct Thread {
    owner: ChunkInfo,
    presence: Presence<Stack>,
    records: Records,
    done: Vec<Chunk>,
    /// Whether the recording knows who it is.
    introduced: bool,
    /// Absences recorded: the newest one's nonce.
    taken: u64,
    /// What the program calls it, as far as was told; and how often that could have been asked.
    own_name: Vec<u8>,
    occasions: u64,
}

impl Switches {
    /// Whether a thread is known to have begun.
    pub(crate) fn knows(&self, tid: i32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// A thread began, which is recorded as `owner`, and is there or away.
    pub(crate) fn begin(
        &mut self,
        owner: ChunkInfo,
        tid: i32,
        time_ns: u64,
        presence: Presence<Stack>,
    ) {
        let owner = ChunkInfo {
            thread_key: time_ns,
            ..owner
        };
        self.threads.insert(tid, Thread::new(owner, presence));
    }

    /// A thread is about to go off its CPU, and stands there.
    pub(crate) fn leaves(&mut self, tid: i32, time_ns: u64, stack: Stack) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.presence.leaves(time_ns, stack);
        }
    }

    /// A thread that was found asleep sleeps there since then, as far as is known.
    pub(crate) fn asleep(&mut self, tid: i32, time_ns: u64, stack: Stack) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.presence.stands(time_ns, stack);
        }
    }

    /// A thread goes off its CPU.
    pub(crate) fn out(&mut self, tid: i32, time_ns: u64, preempted: bool) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.presence.out(time_ns, preempted);
        }
    }

    /// Records were lost, perhaps of these threads.
    pub(crate) fn doubt(&mut self) {
        let threads = self.threads.values_mut();
        threads.for_each(|thread| thread.presence.doubt());
    }

    /// A thread of that name is back on a CPU. Gives whether its absence was recorded: what of it
    /// was after recording began.
    pub(crate) fn back(&mut self, tid: i32, time_ns: u64, begins_ns: u64, name: &[u8]) -> bool {
        let thread = self.threads.get_mut(&tid);
        thread.is_some_and(|thread| thread.back(time_ns, begins_ns, name))
    }

    /// A thread has a new name.
    pub(crate) fn rename(&mut self, tid: i32, time_ns: u64, name: &[u8]) {
        if let Some(thread) = self.threads.get_mut(&tid)
            && thread.introduced
        {
            thread.introduce(time_ns, name);
        }
    }

    /// Whether it is to be found out now what the program calls a thread: until that is known, and
    /// from time to time.
    pub(crate) fn is_own_name_due(&mut self, tid: i32) -> bool {
        self.threads.get_mut(&tid).is_none_or(|thread| {
            thread.occasions += 1;
            thread.own_name.is_empty() || thread.occasions.is_power_of_two()
        })
    }

    /// A thread ended.
    pub(crate) fn end(&mut self, tid: i32, time_ns: u64, reason: ThreadEndReason) {
        let Some(mut thread) = self.threads.remove(&tid) else {
            return;
        };
        self.unpaired += thread.presence.unpaired();
        if thread.introduced {
            let end = ThreadEnd {
                tid: thread.owner.tid,
                thread_key: thread.owner.thread_key,
                time_ns,
                cpu_ns: 0, // not known
                reason,
            };
            thread
                .records
                .other(RecordKind::ThreadEnd, |out| end.encode(out));
        }
        thread.close();
        self.ended.append(&mut thread.done);
    }

    /// Recording ends for all threads; those that are away are so until now. Gives how many
    /// absences that makes.
    pub(crate) fn stop(
        &mut self,
        time_ns: u64,
        begins_ns: u64,
        names: &HashMap<i32, Vec<u8>>,
    ) -> u64 {
        let tids: Vec<i32> = self.threads.keys().copied().collect();
        let mut absences = 0;
        for tid in tids {
            let name = names.get(&tid).map_or(&[][..], Vec::as_slice);
            absences += u64::from(self.back(tid, time_ns, begins_ns, name));
            self.end(tid, time_ns, ThreadEndReason::Stopped);
        }
        absences
    }

    /// Takes what there is for the recording.
    pub(crate) fn take(&mut self) -> Vec<Chunk> {
        let mut chunks = std::mem::take(&mut self.ended);
        for thread in self.threads.values_mut() {
            thread.close();
            chunks.append(&mut thread.done);
        }
        for (info, _) in &mut chunks {
            info.sequence = self.number();
        }
        chunks
    }

    /// The number of the next chunk.
    pub(crate) const fn number(&mut self) -> u64 {
        let number = self.sequence;
        self.sequence += 1;
        FROM_SWITCHES | number
    }

    /// Absences whose end was lost, of threads that have ended.
    pub(crate) fn take_unpaired(&mut self) -> u64 {
        std::mem::take(&mut self.unpaired)
    }
}

impl Thread {
    fn new(owner: ChunkInfo, presence: Presence<Stack>) -> Self {
        Self {
            owner,
            presence,
            records: Records::default(),
            done: Vec::new(),
            introduced: false,
            taken: 0,
            own_name: Vec::new(),
            occasions: 0,
        }
    }

    fn back(&mut self, time_ns: u64, begins_ns: u64, name: &[u8]) -> bool {
        let absence = self.presence.back(time_ns);
        let Some(mut absence) = absence.filter(|absence| absence.until_ns > begins_ns) else {
            return false;
        };
        absence.since_ns = absence.since_ns.max(begins_ns);
        if !self.introduced {
            self.introduce(self.owner.thread_key, name);
        }
        self.record(absence);
        true
    }

    fn record(&mut self, absence: Absence<Stack>) {
        let mut stack = absence.stack.unwrap_or_else(Stack::unknown);
        let own_name = stack.look.as_mut().and_then(|look| look.own_name.take());
        if let Some(name) = own_name.filter(|name| *name != self.own_name) {
            let record = wire_thread::ThreadName {
                time_ns: absence.since_ns,
                name: &name,
            };
            self.records
                .other(RecordKind::ThreadName, |out| record.encode(out));
            self.own_name = name;
        }
        self.taken += 1;
        let preempted = if absence.preempted {
            flags::PREEMPTED
        } else {
            0
        };
        let look = stack.look.filter(|look| look.taken_ns < absence.until_ns);
        let (frames, known, read) = match look {
            Some(look) if look.lacks => (look.frames, look.head, flags::LANGUAGE_TROUBLE),
            Some(look) => (look.frames, look.head, 0),
            None if stack.has_interpreter => (stack.frames, stack.head, flags::LANGUAGES_UNREAD),
            None => (stack.frames, stack.head, 0),
        };
        let head = SampleHead {
            nonce: self.taken,
            time_ns: absence.since_ns,
            weight: 0,
            trigger: Trigger::PerfKernel,
            flags: preempted | read | known.flags,
            ..known
        };
        let kernel = KernelHead {
            cursor: self.taken,
            time_ns: absence.since_ns,
            user_ip: frames.first().map_or(0, |leaf| leaf.pc.0),
            user_sp: known.sp,
            event: OFF_CPU,
            value: absence.until_ns - absence.since_ns,
            cookie: 0,
            more: 0,
        };
        self.records.kernel(&kernel, &stack.kernel);
        if !self.records.sample(&head, &frames) {
            // Deeper than a record can be, which the walk's own limit prevents.
            self.records.sample(&head, &[]);
        }
        if self.records.are_enough() {
            self.close();
        }
    }

    fn introduce(&mut self, time_ns: u64, name: &[u8]) {
        let record = wire_thread::Thread {
            time_ns,
            name,
            ..wire_thread::Thread::default()
        };
        self.records
            .other(RecordKind::Thread, |out| record.encode(out));
        self.introduced = true;
    }

    /// The next chunk decodes by itself.
    fn close(&mut self) {
        if !self.records.are_none() {
            let records = self.records.take();
            let committed = u32::try_from(records.len()).unwrap_or(u32::MAX);
            let info = ChunkInfo {
                committed,
                ..self.owner
            };
            self.done.push((info, records));
        }
    }
}

impl Stack {
    fn unknown() -> Self {
        Self {
            frames: Vec::new(),
            kernel: Vec::new(),
            head: SampleHead {
                stop: StopReason::Abandoned,
                ..SampleHead::default()
            },
            look: None,
            has_interpreter: false,
        }
    }
}
