//! The records of a profile in the order of time: who there is, what is mapped, samples, who ends.
//!
//! Not here: the bytes of a record (`records`), and the file around them (`write`).

use super::super::locations;
use super::encode::{self, Who};
use super::mappings::Files;
use super::named_code::NamedCode;
use crate::profile::{CallId, Mode, Profile, Sample};
use crate::recording::{ModuleId, Process, ProcessId, RawFrame, ThreadId};
use crate::symbolize::kernel_text_start;
use engine::wire::process::Origin;
use perf_data::format::context;
use std::collections::HashMap;

/// Where the kernel's own code can be; modules are behind it.
const KERNEL_START: u64 = 0xffff_ffff_8000_0000;
const KERNEL_END: u64 = 0xffff_ffff_c000_0000;

/// Memory of no file: perf looks for its names in `/tmp/perf-PID.map`.
const ANONYMOUS: &str = "//anon";

/// What comes first of what happens at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Begin,
    Map,
    /// And stacks that stand apart, in the order in which they were made: perf gives up the samples
    /// of a thread that wait for another stack than the one that comes.
    Sample,
    End,
}

/// All records, and the code that was given names.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    records: Vec<(u64, Turn, Vec<u8>)>,
    pub(super) names: NamedCode,
    /// Whether a sample was taken in the kernel.
    pub(super) kernel: bool,
    /// Times of the first and the last sample.
    pub(super) span: (u64, u64),
}

/// A stack in two parts, each from its leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chain {
    kernel: Vec<u64>,
    user: Vec<u64>,
}

impl Chain {
    fn leaf(&self) -> u64 {
        let first = self.kernel.first().or(self.user.first());
        first.copied().unwrap_or(0)
    }

    fn entries(&self, user: &[u64]) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.kernel.len() + user.len() + 2);
        if !self.kernel.is_empty() {
            all.push(context::KERNEL);
            all.extend_from_slice(&self.kernel);
        }
        all.extend_from_slice(user);
        all
    }
}

/// Samples of a thread that end in the same user stack, which is yet to be written.
struct Entry {
    thread: ThreadId,
    user: Vec<u64>,
    cookie: u64,
    open: bool,
    who: Who,
}

impl Timeline {
    /// The records of a profile; `deferred`: user stacks apart; `symbols`: where the names of code
    /// will be that no file has.
    pub(super) fn new(profile: &Profile, deferred: bool, symbols: Option<&str>) -> Self {
        let mut made = Self::default();
        let times = || profile.samples.iter().map(|sample| sample.time_ns);
        made.span = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        made.samples(profile, deferred);
        if made.kernel {
            let text = kernel_text_start(&profile.recording);
            let start = text.unwrap_or(KERNEL_START);
            let length = KERNEL_END.wrapping_sub(start);
            let map = encode::kernel_map(start, length, text.unwrap_or(0));
            made.records.push((0, Turn::Begin, map));
        }
        let begins = begins(profile);
        made.processes(profile, &begins, symbols);
        made.threads(profile, &begins);
        made.records.sort_by_key(|(time, turn, _)| (*time, *turn));
        made
    }

    /// In order.
    pub(super) fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(|(_, _, bytes)| bytes.as_slice())
    }

    fn put(&mut self, time_ns: u64, turn: Turn, record: Vec<u8>) {
        self.records.push((time_ns, turn, record));
    }

    fn samples(&mut self, profile: &Profile, deferred: bool) {
        let mut known: HashMap<(ProcessId, CallId), Chain> = HashMap::new();
        let mut entry: Option<Entry> = None;
        let mut cookies = 0;
        // A thread's samples are in the order of its entries. One that hit the handler can be older
        // than the stack that this was taking.
        let mut samples: Vec<&Sample> = profile.samples.iter().collect();
        samples.sort_by_key(|sample| (sample.thread, sample.time_ns));
        for sample in samples {
            let process = profile.process_of(sample.thread);
            let chain = known
                .entry((process, sample.stack))
                .or_insert_with(|| chain(profile, process, sample, &mut self.names));
            let in_kernel = !chain.kernel.is_empty();
            self.kernel |= in_kernel;
            let who = who(profile, sample.thread, sample.time_ns);
            let user = if deferred {
                if !entry.as_ref().is_some_and(|e| e.takes(sample, chain)) {
                    self.stack(entry.take());
                    cookies += 2;
                }
                let entry = entry.get_or_insert_with(|| Entry {
                    thread: sample.thread,
                    user: chain.user.clone(),
                    cookie: (cookies | 1) << 32 | 1,
                    open: true,
                    who,
                });
                entry.open = in_kernel;
                entry.who = who;
                vec![context::USER_DEFERRED, entry.cookie]
            } else {
                let mark = (!chain.user.is_empty()).then_some(context::USER);
                mark.into_iter().chain(chain.user.iter().copied()).collect()
            };
            let period = profile.time_ns(sample);
            let entries = chain.entries(&user);
            let bytes = encode::sample(who, chain.leaf(), period, &entries, in_kernel);
            self.put(sample.time_ns, Turn::Sample, bytes);
        }
        self.stack(entry);
    }

    fn stack(&mut self, entry: Option<Entry>) {
        if let Some(entry) = entry {
            let bytes = encode::deferred(entry.who, entry.cookie, &entry.user);
            self.put(entry.who.time_ns, Turn::Sample, bytes);
        }
    }

    fn processes(&mut self, profile: &Profile, begins: &[u64], symbols: Option<&str>) {
        let recording = &profile.recording;
        let used = first_uses(profile);
        let mut files = Files::default();
        for (index, process) in recording.processes.iter().enumerate() {
            let id = ProcessId::next_of(index);
            let who = Who {
                pid: process.pid,
                tid: process.pid,
                time_ns: begins[index],
            };
            let parent = process.parent.map(|id| &recording.processes[id.index()]);
            let forked = |parent: &&Process| parent.pid != process.pid;
            if let Some(parent) = parent.filter(forked) {
                let bytes = encode::fork(who, parent.pid, parent.pid);
                self.put(who.time_ns, Turn::Begin, bytes);
            }
            let exec = process.origin == Origin::Exec;
            let bytes = encode::name(who, process.name(), exec);
            self.put(who.time_ns, Turn::Begin, bytes);
            for mapping in self.names.mappings(id, symbols.unwrap_or(ANONYMOUS)) {
                self.put(who.time_ns, Turn::Map, encode::map(who, &mapping));
            }
        }
        let modules = recording.modules.iter().enumerate();
        for (index, module) in modules.filter(|(_, module)| module.code.is_none()) {
            let id = ModuleId::next_of(index);
            let first = used.get(&id).copied().unwrap_or(u64::MAX);
            let time_ns = first
                .min(module.time_ns)
                .max(begins[module.process.index()]);
            let pid = recording.processes[module.process.index()].pid;
            let who = Who {
                pid,
                tid: pid,
                time_ns,
            };
            for mapping in files.mappings(module) {
                self.put(time_ns, Turn::Map, encode::map(who, &mapping));
            }
        }
    }

    fn threads(&mut self, profile: &Profile, begins: &[u64]) {
        let recording = &profile.recording;
        let last = last_samples(profile);
        for (index, thread) in recording.threads.iter().enumerate() {
            let id = ThreadId::next_of(index);
            let process = &recording.processes[thread.process.index()];
            let mut who = who(profile, id, thread.key.max(begins[thread.process.index()]));
            if thread.tid != process.pid {
                let bytes = encode::fork(who, process.pid, process.pid);
                self.put(who.time_ns, Turn::Begin, bytes);
            }
            if !thread.name.is_empty() {
                let bytes = encode::name(who, &thread.name, false);
                self.put(who.time_ns, Turn::Begin, bytes);
            }
            let last = last.get(&id).copied().unwrap_or(0);
            if let Some(end) = thread.end.filter(|_| thread.tid != process.pid) {
                who.time_ns = end.time_ns.max(last);
                self.put(who.time_ns, Turn::End, encode::exit(who, process.pid));
            }
        }
    }
}

impl Entry {
    /// Whether a sample ends in this entry's stack too: the kernel's samples of an entry come
    /// before the user's.
    fn takes(&self, sample: &Sample, chain: &Chain) -> bool {
        self.open && self.thread == sample.thread && self.user == chain.user
    }
}

fn who(profile: &Profile, thread: ThreadId, time_ns: u64) -> Who {
    let thread = &profile.recording.threads[thread.index()];
    Who {
        pid: profile.recording.processes[thread.process.index()].pid,
        tid: thread.tid,
        time_ns,
    }
}

/// When each process begins: all that is known of it lies behind. It may be sampled before it has
/// said that it is there.
fn begins(profile: &Profile) -> Vec<u64> {
    let processes = profile.recording.processes.iter();
    let mut begins: Vec<u64> = processes
        .map(|process| process.time_ns.min(process.key))
        .collect();
    for sample in &profile.samples {
        let begin = &mut begins[profile.process_of(sample.thread).index()];
        *begin = sample.time_ns.min(*begin);
    }
    begins
}

fn chain(profile: &Profile, process: ProcessId, sample: &Sample, names: &mut NamedCode) -> Chain {
    let mut chain = Chain::default();
    for location in locations(profile, sample.stack) {
        let Some(outer) = location.outer() else {
            continue;
        };
        let function = profile.function(outer);
        let address = names.address(process, outer, function);
        match function.mode {
            Mode::Kernel => chain.kernel.push(address),
            Mode::User | Mode::Language(_) | Mode::Note => chain.user.push(address),
        }
    }
    chain
}

/// When each module first has a frame: it may have been noticed a moment later.
fn first_uses(profile: &Profile) -> HashMap<ModuleId, u64> {
    let recording = &profile.recording;
    let mut by_time: Vec<_> = recording.samples.iter().collect();
    by_time.sort_by_key(|sample| sample.time_ns);
    let mut seen = vec![false; recording.stacks.len()];
    let mut first = HashMap::new();
    for sample in by_time {
        let mut at = sample.stack;
        while let Some(id) = at.filter(|id| !seen[id.index()]) {
            seen[id.index()] = true;
            let node = recording.stacks[id.index()];
            if let RawFrame::Code {
                module: Some(module),
                ..
            } = recording.frames[node.frame.index()]
            {
                first.entry(module).or_insert(sample.time_ns);
            }
            at = node.parent;
        }
    }
    first
}

fn last_samples(profile: &Profile) -> HashMap<ThreadId, u64> {
    let mut last: HashMap<ThreadId, u64> = HashMap::new();
    for sample in &profile.samples {
        let time = last.entry(sample.thread).or_default();
        *time = (*time).max(sample.time_ns);
    }
    last
}
