//! Makes the joined recording: perf's samples, with the stacks that threads took of themselves
//! where there are such.
//!
//! Start at [`build`]. Not here: which stack is whose (`moments`), who is who (`tasks`).

use super::chain::{Chain, Deferred};
use super::converter::Converter;
use super::images::Images;
use super::moments::{Found, Moments, half};
use super::tasks::{Run, Tasks};
use crate::recording::{
    Arming, EventSource, FrameId, KernelHalf, LabelsId, Module, ModuleId, ModuleMap, Process,
    ProcessId, RawFrame, RawSample, Recording, StackId, StackTable, Thread, ThreadId, Totals,
};
use crate::symbolize::{Places, symbolize};
use engine::address::{CodeAddress, RuntimeAddress};
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::{Method, StopReason, Trigger};
use perf_data::Event;
use perf_data::{Fields, PerfFile, What};
use std::collections::HashMap;

/// What became of perf's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Of threads of the recording.
    pub(super) ours: u64,
    /// Of those: the kernel has named the entry the same to both.
    pub(super) cookie: u64,
    /// The user's instruction pointer is that of the stack.
    pub(super) exact: u64,
    /// It lies in the same function.
    pub(super) same_function: u64,
    /// perf did not see it.
    pub(super) by_time: u64,
    /// In our own code: there is no stack of the program's then.
    pub(super) profiler: u64,
    /// Of threads that the recording does not have.
    pub(super) others: u64,
}

/// A sample of perf's on its way.
struct Taken {
    time_ns: u64,
    thread: ThreadId,
    ours: bool,
    chain: Chain,
    in_kernel: bool,
    weight: u64,
    /// Number of its event in the result, and what that counted.
    event: u32,
    value: u64,
    /// perf looked for the user's code: where it found none, as in an exec or an exit, there was
    /// none.
    looked: bool,
    /// The user's place and its frame.
    user: Option<(u64, FrameId)>,
}

/// The joined recording, being made.
struct Made {
    recording: Recording,
    table: StackTable,
    /// Processes and threads of runs that are not the recording's.
    processes: HashMap<usize, ProcessId>,
    threads: HashMap<(usize, u32), ThreadId>,
    images: Images,
}

/// Joins; `only`: samples of threads that the recording does not have are left out.
pub(super) fn build(
    file: &PerfFile,
    converter: &Converter,
    recording: Recording,
    places: &Places,
    only: bool,
) -> (Recording, Count) {
    let tasks = Tasks::new(file, converter, &recording);
    let deferred = Deferred::new(file);
    let mut made = Made::new(recording);
    let mut count = Count::default();
    let (main, numbers, sources) = numbered(file);
    made.recording.sources = sources;
    let nominal = file.events[main].period_ns().max(1);
    let mut taken = Vec::new();
    for record in &file.records {
        let What::Sample {
            event,
            in_kernel,
            fields,
        } = &record.what
        else {
            continue;
        };
        let time_ns = converter.monotonic(record.time);
        let Some((thread, ours)) = made.thread(&tasks, fields, time_ns, only) else {
            count.others += 1;
            continue;
        };
        let chain = Chain::new(fields, *in_kernel, &deferred);
        let ip = chain.user.first().copied();
        let user = ip.filter(|_| ours).map(|ip| {
            let frame = made.code(thread, ip, time_ns, true);
            (ip, made.frame(frame))
        });
        let is_main = *event == main;
        let counted = fields.period.filter(|_| file.events[main].counts_time());
        let periods = counted.map_or(1, |period| (period + nominal / 2) / nominal);
        taken.push(Taken {
            time_ns,
            thread,
            ours,
            chain,
            in_kernel: *in_kernel,
            weight: if is_main { periods.max(1) } else { 0 },
            event: numbers[*event],
            value: if is_main {
                0
            } else {
                fields.period.unwrap_or(1)
            },
            looked: !fields.chain.is_empty(),
            user,
        });
    }
    let symbols = symbolize(&made.recording, places);
    let moments = Moments::new(&made.recording, &symbols);
    let mut samples = Vec::with_capacity(taken.len());
    for sample in &taken {
        samples.push(made.sample(sample, &moments, &mut count));
    }
    samples.sort_by_key(|sample| (sample.thread, sample.time_ns));
    let mut recording = made.recording;
    recording.samples = samples;
    for thread in &mut recording.threads {
        // What is counted from here on is perf's.
        let trigger = Trigger::PerfKernel;
        thread.armings = vec![Arming {
            time_ns: thread.key,
            trigger,
            period_ns: nominal,
            periods: 1,
            refused: 0,
            signal: 0,
            unarmed_cpu_ns: 0,
        }];
        thread.totals = Totals::default();
    }
    (recording, count)
}

/// The event that is counted as CPU time, the number of each in the result, and what these stand
/// for: the first that counts time, or that counts at all, is 0.
fn numbered(file: &PerfFile) -> (usize, Vec<u32>, Vec<EventSource>) {
    let find = |what: fn(&Event) -> bool| file.events.iter().position(what);
    let main = find(Event::counts_time).or_else(|| find(|event| !event.is_dummy()));
    let main = main.unwrap_or(0);
    let mut sources: Vec<EventSource> = Vec::new();
    let mut numbers = Vec::new();
    for (index, event) in file.events.iter().enumerate() {
        let number = u32::try_from(sources.len() + 1).unwrap_or(u32::MAX);
        if index == main || event.is_dummy() {
            numbers.push(CPU_EVENT);
            continue;
        }
        numbers.push(number);
        sources.push(EventSource {
            event: number,
            name: event.name(),
            period: event.fixed_period(),
            lost: 0,
            rest: 0, // counted in the file as a whole
        });
    }
    (main, numbers, sources)
}

impl Taken {
    /// Whether a stack of the thread's own can be its.
    fn may_have_stack(&self) -> bool {
        self.ours && (self.user.is_some() || !self.looked || self.chain.cookie != 0)
    }
}

impl Made {
    fn new(recording: Recording) -> Self {
        Self {
            table: StackTable::of(&recording),
            processes: HashMap::new(),
            threads: HashMap::new(),
            images: Images::default(),
            recording,
        }
    }

    fn frame(&mut self, frame: RawFrame) -> FrameId {
        self.table.frame(&mut self.recording.frames, frame)
    }

    fn push(&mut self, parent: Option<StackId>, frame: RawFrame) -> Option<StackId> {
        let frame = self.frame(frame);
        Some(self.table.push(&mut self.recording.stacks, parent, frame))
    }

    /// A frame of user code.
    fn code(&self, thread: ThreadId, ip: u64, time_ns: u64, leaf: bool) -> RawFrame {
        let process = self.recording.threads[thread.index()].process;
        let address = RuntimeAddress(ip);
        let (frame, method) = if leaf {
            (CodeAddress::Instruction(address), Method::Registers)
        } else {
            (CodeAddress::Return(address), Method::FramePointer)
        };
        RawFrame::Code {
            process,
            frame,
            method,
            module: self.recording.module_at(process, frame.lookup(), time_ns),
        }
    }

    /// The thread of a sample, and whether the recording has it; `only`: none of other threads.
    fn thread(
        &mut self,
        tasks: &Tasks,
        fields: &Fields,
        time_ns: u64,
        only: bool,
    ) -> Option<(ThreadId, bool)> {
        let run = tasks.run(fields.pid, time_ns);
        let known = run.and_then(|run| tasks.thread(run, fields.tid, time_ns));
        if let Some(known) = known {
            return Some((known, true));
        }
        if only {
            return None;
        }
        let run = run.unwrap_or(usize::MAX);
        if let Some(known) = self.threads.get(&(run, fields.tid)) {
            return Some((*known, false));
        }
        let told = tasks.runs.get(run).cloned().unwrap_or_else(|| Run {
            pid: fields.pid,
            ..Run::default()
        });
        let process = tasks
            .process(run)
            .unwrap_or_else(|| self.process(run, &told));
        let name = told.threads.iter().find(|(tid, ..)| *tid == fields.tid);
        self.recording.threads.push(Thread {
            process,
            tid: fields.tid,
            key: time_ns,
            name: name.map_or_else(String::new, |(_, name, _)| name.clone()),
            armings: Vec::new(),
            end: None,
            totals: Totals::default(),
            late_cpu_ns: 0,
        });
        let id = ThreadId::next_of(self.recording.threads.len() - 1);
        self.threads.insert((run, fields.tid), id);
        Some((id, false))
    }

    /// A process that only perf knows.
    fn process(&mut self, run: usize, told: &Run) -> ProcessId {
        if let Some(known) = self.processes.get(&run) {
            return *known;
        }
        let id = ProcessId::next_of(self.recording.processes.len());
        let first = self.recording.modules.len();
        for map in told.maps.iter().filter(|map| map.path.starts_with('/')) {
            let (build_id, bias) = self.images.of_mapping(&map.path, map.start, map.offset);
            self.recording.modules.push(Module {
                process: id,
                time_ns: 0,
                gone_ns: u64::MAX,
                start: RuntimeAddress(map.start),
                end: RuntimeAddress(map.start.saturating_add(map.length)),
                bias,
                build_id: if map.build_id.is_empty() {
                    build_id
                } else {
                    map.build_id.clone()
                },
                path: map.path.clone(),
                ours: false, // the recording does not have this process
                code: None,
            });
        }
        let ids = (first..self.recording.modules.len()).map(ModuleId::next_of);
        let map = ModuleMap::new(ids, &self.recording.modules);
        let name = if told.pid == 0 { "swapper" } else { &told.name };
        self.recording.processes.push(Process {
            pid: told.pid,
            key: told.from,
            time_ns: told.from,
            executable: name.to_owned(),
            map,
            ..Process::default()
        });
        self.processes.insert(run, id);
        id
    }

    /// Whether it was taken in our own code.
    fn is_profiler(&self, sample: &Taken) -> bool {
        let process = self.recording.threads[sample.thread.index()].process;
        let at = sample.user.filter(|_| sample.ours);
        at.is_some_and(|(ip, _)| self.recording.is_ours(process, ip, sample.time_ns))
    }

    fn sample(&mut self, sample: &Taken, moments: &Moments, count: &mut Count) -> RawSample {
        let found = sample
            .may_have_stack()
            .then(|| {
                let cookie = sample.chain.cookie;
                moments.find(sample.thread, sample.time_ns, sample.user, cookie)
            })
            .flatten();
        *(if sample.ours {
            &mut count.ours
        } else {
            &mut count.others
        }) += 1;
        let (mut stack, stop, kernel) = match found {
            Some((how, moment)) => {
                let counter = match how {
                    Found::Cookie => &mut count.cookie,
                    Found::Exact => &mut count.exact,
                    Found::SameFunction => &mut count.same_function,
                    Found::ByTime => &mut count.by_time,
                };
                *counter += 1;
                let mut stack = Some(moment.stack);
                let caller = match how {
                    Found::Cookie | Found::Exact if moment.of_caller => Some(stack),
                    Found::SameFunction => Some(self.recording.stacks[moment.stack.index()].parent),
                    Found::Cookie | Found::Exact | Found::ByTime => None,
                };
                if let (Some(caller), Some((_, frame))) = (caller, sample.user) {
                    stack = Some(self.table.push(&mut self.recording.stacks, caller, frame));
                }
                (stack, moment.stop, half(sample.in_kernel))
            }
            None if self.is_profiler(sample) => {
                count.profiler += 1;
                (None, StopReason::Abandoned, KernelHalf::Profiler)
            }
            // What perf found by itself: by frame pointers, as far as there are any.
            None => {
                let user = sample.chain.user.iter().enumerate().rev();
                let stack = user.fold(None, |stack, (index, ip)| {
                    let code = self.code(sample.thread, *ip, sample.time_ns, index == 0);
                    self.push(stack, code)
                });
                let alone = stack.is_none() && sample.ours;
                let kernel = if alone {
                    KernelHalf::Late
                } else {
                    KernelHalf::None
                };
                let stop = match (sample.ours, stack) {
                    (false, None) => StopReason::Root, // a thread of the kernel's own
                    _ => StopReason::FramePointerZero,
                };
                (stack, stop, kernel)
            }
        };
        // Nobody has said what the thread was in when the other recorder looked.
        let labels = match self.recording.labels.any() {
            true => LabelsId::UNKNOWN,
            false => LabelsId::NONE,
        };
        for (index, address) in sample.chain.kernel.iter().enumerate().rev() {
            let address = RuntimeAddress(*address);
            stack = self.push(
                stack,
                RawFrame::Kernel(if index == 0 {
                    CodeAddress::Instruction(address)
                } else {
                    CodeAddress::Return(address)
                }),
            );
        }
        RawSample {
            thread: sample.thread,
            time_ns: sample.time_ns,
            weight: sample.weight,
            stack,
            trigger: Trigger::PerfKernel,
            stop,
            flags: 0,
            kernel,
            entry_ip: 0,
            event: sample.event,
            value: sample.value,
            cookie: sample.chain.cookie,
            labels,
        }
    }
}
