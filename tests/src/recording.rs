//! A recording, read record by record through the wire contract: no symbols, no merging, every
//! damage a panic.

use collector::recording::unpacked;
use engine::wire::chunk::{self, ChunkInfo};
use engine::wire::event::{Event, EventKind};
use engine::wire::file::{self, FileInfo};
use engine::wire::kernel::{KernelHead, KernelSample};
use engine::wire::module::{Module, ModuleGone};
use engine::wire::offer::CPU_EVENT;
use engine::wire::process::{Origin, Process};
use engine::wire::record::{self, RecordKind};
use engine::wire::sample::{Frame, Sample, SampleHead, Trigger};
use engine::wire::thread::{Thread, ThreadAccount, ThreadEnd, ThreadEndReason};
use std::collections::BTreeMap;
use std::path::Path;

/// A whole file.
#[derive(Debug)]
pub struct Recording {
    /// Its header.
    pub header: FileInfo,
    /// Program runs, in the order of their records.
    pub processes: Vec<ProcessFacts>,
    /// Threads by (key of the process, tid, key of the thread).
    pub threads: BTreeMap<(u64, u32, u64), ThreadFacts>,
    /// Modules, in the order of their records.
    pub modules: Vec<ModuleFacts>,
    /// Events, in the order of their records.
    pub events: Vec<EventFacts>,
    /// Kernel samples, counted by their records; of CPU time only those of kernel mode.
    pub kernel_samples: u64,
}

/// What a Process record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of Process of that name")]
pub struct ProcessFacts {
    pub pid: u32,
    pub key: u64,
    pub origin: Origin,
    pub parent_pid: u32,
    pub parent_key: u64,
    pub asked_period_ns: u64,
    pub period_ns: u64,
    pub executable: String,
    pub command: Vec<String>,
}

/// What a Module record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of Module of that name")]
pub struct ModuleFacts {
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    pub path: String,
    /// Whether a ModuleGone record took it away again.
    pub gone: bool,
}

/// What an Event record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of Event of that name")]
pub struct EventFacts {
    pub kind: EventKind,
    pub time_ns: u64,
    pub value: u64,
    pub text: String,
}

/// Everything of one thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadFacts {
    /// Name, in its newest record.
    pub name: String,
    /// Triggers, in the order of its records.
    pub triggers: Vec<Trigger>,
    /// errno of the next better trigger's refusal, in its newest record.
    pub refused: u32,
    /// Sampling period, ns.
    pub period_ns: u64,
    /// CPU time before it was armed, ns.
    pub unarmed_cpu_ns: u64,
    /// CPU time at its end, and why it ended.
    pub end: Option<(u64, ThreadEndReason)>,
    /// Stacks.
    pub samples: Vec<Stack>,
    /// Samples lost: the newest chunk's totals.
    pub lost_samples: u64,
    /// Weight of samples written: the newest chunk's totals.
    pub weight: u64,
    newest_chunk: u64,
}

/// One sample.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Everything but the frames.
    pub head: SampleHead,
    /// From leaf to root.
    pub frames: Vec<Frame>,
}

impl ThreadFacts {
    /// Weight of the samples that are in the file.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.samples.iter().map(|sample| sample.head.weight).sum()
    }
}

impl Recording {
    /// Reads a file.
    ///
    /// # Panics
    /// At anything that is not whole.
    #[must_use]
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let bytes = unpacked(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let header =
            FileInfo::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut recording = Self {
            header,
            processes: Vec::new(),
            threads: BTreeMap::new(),
            modules: Vec::new(),
            events: Vec::new(),
            kernel_samples: 0,
        };
        let mut at = file::HEADER_SIZE;
        while let Some(magic) = bytes.get(at..at + 4) {
            if magic == [0; 4] {
                at += chunk::SEGMENT_STRIDE; // allocated, and its thread did not live to begin it
                continue;
            }
            let info = ChunkInfo::parse(&bytes[at..])
                .unwrap_or_else(|error| panic!("{} at {at}: {error}", path.display()));
            let start = at + chunk::HEADER_SIZE;
            recording.chunk(&info, &bytes[start..start + info.committed as usize]);
            at += info.stride as usize;
        }
        recording
    }

    fn chunk(&mut self, info: &ChunkInfo, mut bytes: &[u8]) {
        if info.tid != 0 {
            self.totals(info);
        }
        let mut before = Stack {
            head: SampleHead::default(),
            frames: Vec::new(),
        };
        while !bytes.is_empty() {
            let record = record::parse(bytes).unwrap_or_else(|error| panic!("{error}"));
            if let Some(kind) = RecordKind::from_number(record.kind) {
                self.record(info, kind, record.payload, &mut before);
            }
            bytes = &bytes[record.length..];
        }
    }

    fn totals(&mut self, info: &ChunkInfo) {
        let id = (info.process_key, info.tid, info.thread_key);
        let thread = self.threads.entry(id).or_default();
        let own = !info.is_from_ring() && !info.is_from_outside();
        if own && info.sequence >= thread.newest_chunk {
            thread.newest_chunk = info.sequence;
            thread.lost_samples = info.lost_samples;
            thread.weight = info.weight;
        }
    }

    fn record(&mut self, info: &ChunkInfo, kind: RecordKind, payload: &[u8], before: &mut Stack) {
        match kind {
            RecordKind::Process => self.process(info, &expect(Process::decode(payload))),
            RecordKind::Event => {
                let event = expect(Event::decode(payload));
                self.events.push(EventFacts {
                    kind: event.kind,
                    time_ns: event.time_ns,
                    value: event.value,
                    text: text(event.text),
                });
            }
            RecordKind::Module => {
                let module = expect(Module::decode(payload));
                self.modules.push(ModuleFacts {
                    start: module.start,
                    end: module.end,
                    bias: module.bias,
                    path: text(module.path),
                    gone: false,
                });
            }
            RecordKind::ModuleGone => {
                let gone = expect(ModuleGone::decode(payload));
                let modules = self
                    .modules
                    .iter_mut()
                    .filter(|module| module.start == gone.start);
                modules.for_each(|module| module.gone = true);
            }
            RecordKind::Thread => {
                let id = (info.process_key, info.tid, info.thread_key);
                self.thread(id, &expect(Thread::decode(payload)));
            }
            RecordKind::ThreadEnd => {
                self.thread_end(info, &expect(ThreadEnd::decode(payload)));
            }
            RecordKind::ThreadAccount => {
                let account = expect(ThreadAccount::decode(payload));
                let id = self.thread_end(info, &account.end);
                self.thread(id, &account.thread);
            }
            RecordKind::Sample => self.sample(info, payload, before),
            RecordKind::Kernel => {
                let sample = expect(KernelSample::decode(payload, &KernelHead::default()));
                let frames = sample.reused + sample.new_frames().count();
                let of_user_mode = sample.head.event == CPU_EVENT && frames == 0;
                self.kernel_samples += u64::from(!of_user_mode);
            }
            _ => {}
        }
    }

    fn process(&mut self, info: &ChunkInfo, process: &Process<'_>) {
        self.processes.push(ProcessFacts {
            pid: info.pid,
            key: info.process_key,
            origin: process.origin,
            parent_pid: process.parent_pid,
            parent_key: process.parent_key,
            asked_period_ns: process.asked_period_ns,
            period_ns: process.period_ns,
            executable: text(process.executable),
            command: process.command.split(|byte| *byte == 0).map(text).collect(),
        });
    }

    fn thread_end(&mut self, info: &ChunkInfo, end: &ThreadEnd) -> (u64, u32, u64) {
        let id = (info.process_key, end.tid, end.thread_key);
        self.threads.entry(id).or_default().end = Some((end.cpu_ns, end.reason));
        id
    }

    fn thread(&mut self, id: (u64, u32, u64), record: &Thread<'_>) {
        let thread = self.threads.entry(id).or_default();
        thread.name = text(record.name);
        thread.triggers.push(record.trigger);
        thread.refused = record.refused;
        thread.period_ns = record.period_ns;
        thread.unarmed_cpu_ns += record.unarmed_cpu_ns;
    }

    fn sample(&mut self, info: &ChunkInfo, payload: &[u8], before: &mut Stack) {
        let sample = expect(Sample::decode(payload, &before.head));
        let mut frames: Vec<Frame> = sample.new_frames().map(expect).collect();
        let kept = before.frames.len() - sample.reused;
        frames.extend_from_slice(&before.frames[kept..]);
        *before = Stack {
            head: sample.head,
            frames,
        };
        let id = (info.process_key, info.tid, info.thread_key);
        self.threads
            .entry(id)
            .or_default()
            .samples
            .push(before.clone());
    }

    /// All samples of all threads.
    pub fn samples(&self) -> impl Iterator<Item = &Stack> {
        self.threads.values().flat_map(|thread| &thread.samples)
    }

    /// The thread that a program run began with.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    #[track_caller]
    pub fn main_thread(&self) -> &ThreadFacts {
        let pid = self.header.pid;
        let main = self.threads.iter().find(|((_, tid, _), _)| *tid == pid);
        main.map(|(_, thread)| thread)
            .expect("no main thread in the recording")
    }

    /// Samples lost for any reason.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let lost: u64 = self
            .threads
            .values()
            .map(|thread| thread.lost_samples)
            .sum();
        lost + self.header.chunkless_samples
    }
}

#[track_caller]
fn expect<T>(result: Result<T, engine::wire::WireError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
