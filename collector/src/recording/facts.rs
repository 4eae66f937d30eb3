//! The first pass: everything but the samples. Processes, threads, modules and events, each put to
//! whom it belongs.
//!
//! Not here: stacks, which need the modules known first (the second pass, `stacks`).

use super::error::Damages;
use super::ids::{CodeId, LabelsId, LanguageId, ModuleId, ProcessId, ThreadId};
use super::labels::labels;
use super::lineage::{find_parents, find_starts};
use super::model::{
    Arming, CodeObject, Event, EventSource, Process, Recording, SessionInfo, Thread, ThreadEnd,
    Totals,
};
use super::modules::{Module, ModuleMap, own, unmap};
use super::names::{self, StoredNames};
use crate::intern::{HashMap, HashSet, Interner};
use engine::address::RuntimeAddress;
use engine::wire::WireError;
use engine::wire::chunk::{ChunkInfo, FROM_SWITCHES};
use engine::wire::clocks::Clocks;
use engine::wire::label::LabelSet;
use engine::wire::record::{RawRecord, RecordKind};
use engine::wire::source::WALL;
use engine::wire::{charge, code, event, module, process, session, source, thread};
use std::collections::BTreeMap;

/// Names a thread: process, tid, thread key.
type ThreadName = (ProcessId, u32, u64);
/// Of a line table, by where they begin.
type Parts = BTreeMap<u32, Vec<u8>>;

/// What the first pass gathers.
#[derive(Debug, Default)]
pub(super) struct Facts {
    recording: Recording,
    processes: HashMap<(u32, u64), ProcessId>,
    threads: HashMap<ThreadName, ThreadId>,
    /// The sequence number of the chunk that each thread's totals are from.
    newest: HashMap<ThreadId, u64>,
    /// Samples that found a ring full which the collector emptied.
    lost_in_ring: HashMap<ThreadId, u64>,
    names: HashMap<ThreadId, (u64, String)>,
    /// Those that programs have for them.
    own_names: HashMap<ThreadId, (u64, String)>,
    gone: Vec<(ProcessId, module::ModuleGone)>,
    perf_maps: Vec<(ProcessId, u64, Vec<u8>)>,
    segments: HashMap<(u32, u64), session::SegmentTotals>,
    /// Process, start, end and bias of modules, once that is asked for.
    known_modules: HashSet<(ProcessId, u64, u64, u64)>,
    known_languages: Interner<LanguageId>,
    known_codes: Interner<CodeId>,
    /// Of line tables, what is not in the description: where it begins, by process and code object.
    more_lines: HashMap<(ProcessId, u64), Parts>,
    known_labels: Interner<LabelsId>,
    /// The file whose records are read.
    file: usize,
    /// Where code of JITs begins, by its process and number.
    made_code: HashMap<(ProcessId, u64), u64>,
}

impl Facts {
    /// The thread that a chunk belongs to, and its totals noted; `None` for the collector's own
    /// chunks.
    pub(super) fn chunk(&mut self, info: &ChunkInfo) -> Option<ThreadId> {
        if info.tid == 0 {
            return None;
        }
        let thread = self.thread(info, info.tid, info.thread_key);
        if info.is_from_switches() && (self.speaks(thread) || info.samples == 0) {
            return Some(thread);
        }
        if info.is_from_ring() || info.is_from_outside() {
            let lost = self.lost_in_ring.entry(thread).or_default();
            *lost = lost.saturating_add(info.lost_in_ring);
            return Some(thread);
        }
        let newest = self.newest.get(&thread);
        if newest.is_none_or(|newest| *newest <= info.sequence) {
            self.newest.insert(thread, info.sequence);
            self.recording.threads[thread.index()].totals = Totals {
                samples: info.samples,
                weight: info.weight,
                lost_samples: info.lost_samples,
                lost_weight: info.lost_weight,
                handler_ns: info.handler_ns,
                cpu_ns: info.cpu_ns,
                unarmed_cpu_ns: info.unarmed_cpu_ns,
                lost_in_ring: info.lost_in_ring,
                arming_ns: info.arming_ns,
                delivery_ns: info.delivery_ns,
            };
        }
        Some(thread)
    }

    /// Whether a thread has chunks of its own, and so says itself what CPU time it used.
    fn speaks(&self, thread: ThreadId) -> bool {
        let newest = self.newest.get(&thread);
        newest.is_some_and(|newest| newest & FROM_SWITCHES == 0)
    }

    /// Whether it was said how a thread is sampled.
    pub(super) fn is_armed(&self, thread: ThreadId) -> bool {
        !self.recording.threads[thread.index()].armings.is_empty()
    }

    /// Pid and key of each program run.
    pub(super) fn process_names(&self) -> impl Iterator<Item = (u32, u64)> {
        self.processes.keys().copied()
    }

    /// Pid and key of its program run, tid and key of each thread.
    pub(super) fn thread_names(&self) -> impl Iterator<Item = (u32, u64, u32, u64)> {
        self.threads.keys().map(|(process, tid, key)| {
            let process = &self.recording.processes[process.index()];
            (process.pid, process.key, *tid, *key)
        })
    }

    /// Whether that very module of a process is known.
    pub(super) fn knows_module(&mut self, info: &ChunkInfo, record: &RawRecord<'_>) -> bool {
        let process = self.process(info);
        let Ok(found) = module::Module::decode(record.payload) else {
            return false;
        };
        if self.known_modules.is_empty() {
            let modules = self.recording.modules.iter();
            let names = modules.map(|m| (m.process, m.start.0, m.end.0, m.bias));
            self.known_modules = names.collect();
        }
        let name = (process, found.start, found.end, found.bias);
        !self.known_modules.insert(name)
    }

    fn process(&mut self, info: &ChunkInfo) -> ProcessId {
        let processes = &mut self.recording.processes;
        let name = (info.pid, info.process_key);
        *self.processes.entry(name).or_insert_with(|| {
            processes.push(Process {
                pid: info.pid,
                key: info.process_key,
                time_ns: info.process_key,
                ..Process::default()
            });
            ProcessId::next_of(processes.len() - 1)
        })
    }

    fn thread(&mut self, info: &ChunkInfo, tid: u32, key: u64) -> ThreadId {
        let process = self.process(info);
        let threads = &mut self.recording.threads;
        *self.threads.entry((process, tid, key)).or_insert_with(|| {
            threads.push(Thread {
                process,
                tid,
                key,
                name: String::new(),
                armings: Vec::new(),
                end: None,
                totals: Totals::default(),
                late_cpu_ns: 0,
            });
            ThreadId::next_of(threads.len() - 1)
        })
    }

    /// Takes in a record that is not a sample, of a chunk with that header. Unknown kinds are
    /// passed over, as the format asks.
    pub(super) fn record(
        &mut self,
        info: &ChunkInfo,
        record: &RawRecord<'_>,
        offset: u64,
        damages: &mut Damages,
    ) {
        if let Err(error) = self.try_record(info, record) {
            damages.add(offset, 0, error.to_string());
        }
    }

    fn try_record(&mut self, info: &ChunkInfo, record: &RawRecord<'_>) -> Result<(), WireError> {
        match RecordKind::from_number(record.kind) {
            Some(RecordKind::Process) => {
                let process = self.process(info);
                let found = process::Process::decode(record.payload)?;
                identify(&mut self.recording.processes[process.index()], &found);
            }
            Some(RecordKind::Event) => {
                let process = self.process(info);
                let found = event::Event::decode(record.payload)?;
                self.recording.processes[process.index()]
                    .events
                    .push(Event {
                        kind: found.kind,
                        time_ns: found.time_ns,
                        value: found.value,
                        text: text(found.text),
                    });
            }
            Some(RecordKind::Module) => {
                let process = self.process(info);
                self.module(process, &module::Module::decode(record.payload)?);
            }
            Some(RecordKind::ModuleGone) => {
                let process = self.process(info);
                let found = module::ModuleGone::decode(record.payload)?;
                self.gone.push((process, found));
            }
            Some(RecordKind::Code) => {
                let process = self.process(info);
                self.code(process, &code::Code::decode(record.payload)?);
            }
            Some(RecordKind::MoreLines) => {
                let process = self.process(info);
                let found = code::MoreLines::decode(record.payload)?;
                let parts = self.more_lines.entry((process, found.number)).or_default();
                parts.insert(found.offset, found.lines.to_vec());
            }
            Some(RecordKind::Labels) => {
                let process = self.process(info);
                let found = LabelSet::decode(record.payload)?;
                let (labels, recording) = (labels(&found), &mut self.recording);
                let all = recording.labels.list();
                let id = match labels.is_empty() {
                    true => LabelsId::NONE,
                    false => self.known_labels.place(all, labels),
                };
                let known = &mut recording.processes[process.index()].labels;
                known.insert(found.number, id);
            }
            Some(RecordKind::CodeGone) => {
                let process = self.process(info);
                let found = code::CodeGone::decode(record.payload)?;
                if let Some(start) = self.made_code.remove(&(process, found.number)) {
                    let time_ns = found.time_ns;
                    self.gone
                        .push((process, module::ModuleGone { time_ns, start }));
                }
            }
            Some(RecordKind::Thread) => {
                let found = thread::Thread::decode(record.payload)?;
                let thread = self.thread(info, info.tid, info.thread_key);
                self.arming(thread, &found);
            }
            Some(RecordKind::ThreadName) => {
                let found = thread::ThreadName::decode(record.payload)?;
                let thread = self.thread(info, info.tid, info.thread_key);
                newer(&mut self.own_names, thread, found.time_ns, found.name);
            }
            Some(RecordKind::ThreadEnd) => {
                let found = thread::ThreadEnd::decode(record.payload)?;
                self.thread_end(info, &found);
            }
            Some(RecordKind::ThreadAccount) => {
                let found = thread::ThreadAccount::decode(record.payload)?;
                let thread = self.thread_end(info, &found.end);
                self.arming(thread, &found.thread);
                if found.entry != 0 {
                    self.recording.entries.insert(thread, found.entry);
                }
                if !self.newest.contains_key(&thread) {
                    self.recording.threads[thread.index()].totals.arming_ns = found.arming_ns;
                }
            }
            Some(RecordKind::ProcessEnd) => {
                let process = self.process(info);
                let found = charge::ProcessEnd::decode(record.payload)?;
                let known = &mut self.recording.processes[process.index()].end;
                // An exec that failed is not the end.
                if known.is_none_or(|known| known.time_ns <= found.time_ns) {
                    *known = Some(found);
                }
            }
            Some(RecordKind::ChildEnd) => {
                let process = self.process(info);
                let found = charge::ChildEnd::decode(record.payload)?;
                let ended = &mut self.recording.processes[process.index()].children;
                ended.push(found);
            }
            Some(RecordKind::Session) => {
                self.session(account(&session::Session::decode(record.payload)?));
            }
            Some(RecordKind::Source) => {
                self.source(&source::Source::decode(record.payload)?);
            }
            Some(RecordKind::Clocks) => {
                let found = Clocks::decode(record.payload)?;
                self.recording.clocks.push(found);
            }
            Some(RecordKind::PerfMap) => {
                let process = self.process(info);
                let found = session::PerfMap::decode(record.payload)?;
                self.perf_maps
                    .push((process, info.sequence, found.lines.to_vec()));
            }
            Some(RecordKind::SegmentTotals) => {
                let found = session::SegmentTotals::decode(record.payload)?;
                self.segment_totals((info.pid, info.process_key), &found);
            }
            _ => {}
        }
        Ok(())
    }

    /// Records are of that file from now on.
    pub(super) fn begin_file(&mut self, index: usize) {
        self.file = index;
    }

    /// A session may be told of several times; the last one stands for all.
    fn session(&mut self, found: SessionInfo) {
        let is_same = |one: &SessionInfo| (one.pid, one.start_ns) == (found.pid, found.start_ns);
        let others = &mut self.recording.other_sessions;
        others.retain(|one| !is_same(one));
        others.extend(self.recording.session.take().filter(|one| !is_same(one)));
        self.recording.session = Some(found);
    }

    /// An event of this file, which may have another number in others.
    fn source(&mut self, found: &source::Source<'_>) {
        let numbers = &mut self.recording.event_numbers;
        if numbers.contains_key(&(self.file, found.event)) {
            return;
        }
        let of_file = numbers.range((self.file, 0)..=(self.file, u32::MAX));
        let taken: HashSet<u32> = of_file.map(|(_, number)| *number).collect();
        let (name, sources) = (text(found.name), &mut self.recording.sources);
        let is_it = |one: &&mut EventSource| one.name == name && !taken.contains(&one.event);
        let number = if let Some(known) = sources.iter_mut().find(is_it) {
            known.lost = known.lost.saturating_add(found.lost);
            known.rest = known.rest.saturating_add(found.rest);
            known.event
        } else {
            let last = sources.iter().map(|known| known.event).max();
            let is_free = sources.iter().all(|known| known.event != found.event);
            let event = match is_free {
                true => found.event,
                false => last.map_or(WALL, |last| last.max(WALL)) + 1,
            };
            sources.push(EventSource {
                event,
                name,
                period: found.period,
                lost: found.lost,
                rest: found.rest,
            });
            sources.sort();
            event
        };
        numbers.insert((self.file, found.event), number);
    }

    /// Takes in names that a file has.
    pub(super) fn names(&mut self, names: StoredNames) {
        names::merge(&mut self.recording.names, names);
    }

    /// Notes what a segment counted; the same segment may be met as itself and in a recording.
    pub(super) fn segment_totals(&mut self, owner: (u32, u64), found: &session::SegmentTotals) {
        let known = self.segments.entry(owner).or_default();
        known.chunkless_samples = known.chunkless_samples.max(found.chunkless_samples);
        known.chunkless_weight = known.chunkless_weight.max(found.chunkless_weight);
        known.unarmed_threads = known.unarmed_threads.max(found.unarmed_threads);
        known.damaged_bytes = known.damaged_bytes.max(found.damaged_bytes);
    }

    fn add_segment_totals(&mut self) {
        // A thread that had room again has counted those of its own among all that it lost.
        let mut told: HashMap<ProcessId, (u64, u64)> = HashMap::default();
        for thread in &self.recording.threads {
            let (samples, weight) = told.entry(thread.process).or_default();
            *samples = samples.saturating_add(thread.totals.lost_samples);
            *weight = weight.saturating_add(thread.totals.lost_weight);
        }
        for (owner, found) in &self.segments {
            let process = self.processes.get(owner);
            let told = process.and_then(|process| told.get(process));
            let (samples, weight) = told.copied().unwrap_or_default();
            let add = |sum: &mut u64, part: u64| *sum = sum.saturating_add(part);
            add(
                &mut self.recording.chunkless_samples,
                found.chunkless_samples.saturating_sub(samples),
            );
            add(
                &mut self.recording.chunkless_weight,
                found.chunkless_weight.saturating_sub(weight),
            );
            add(&mut self.recording.unarmed_threads, found.unarmed_threads);
            add(&mut self.recording.damaged_bytes, found.damaged_bytes);
        }
    }

    fn code(&mut self, process: ProcessId, found: &code::Code<'_>) {
        let recording = &mut self.recording;
        let language = text(found.language);
        let language = (self.known_languages).place(&mut recording.languages, language);
        let object = CodeObject::new(language, found);
        let id = self.known_codes.place(&mut recording.codes, object);
        recording.processes[process.index()]
            .codes
            .insert(found.number, id);
        if found.size > 0 {
            self.made_code.insert((process, found.number), found.start);
            self.recording.modules.push(Module {
                process,
                time_ns: found.time_ns,
                gone_ns: u64::MAX,
                start: RuntimeAddress(found.start),
                end: RuntimeAddress(found.start.saturating_add(found.size)),
                bias: found.start,
                build_id: Vec::new(),
                path: String::new(),
                ours: false,
                code: Some(id),
            });
        }
    }

    /// Puts line tables together; what is behind a part that is lost has no lines.
    fn join_lines(&mut self) {
        for ((process, number), parts) in std::mem::take(&mut self.more_lines) {
            let codes = &mut self.recording.processes[process.index()].codes;
            let Some(id) = codes.get_mut(&number) else {
                continue;
            };
            let mut object = self.recording.codes[id.index()].clone();
            for (offset, lines) in parts {
                let length = object.lines.len();
                if offset as usize == length && length < code::LONGEST_TABLE {
                    object.lines.extend(lines);
                }
            }
            *id = (self.known_codes).place(&mut self.recording.codes, object);
        }
    }

    fn module(&mut self, process: ProcessId, found: &module::Module<'_>) {
        self.recording.modules.push(Module {
            process,
            time_ns: found.time_ns,
            gone_ns: u64::MAX,
            start: RuntimeAddress(found.start),
            end: RuntimeAddress(found.end),
            bias: found.bias,
            build_id: found.build_id.to_vec(),
            path: text(found.path),
            ours: found.ours,
            code: None,
        });
    }

    fn thread_end(&mut self, info: &ChunkInfo, found: &thread::ThreadEnd) -> ThreadId {
        let thread = self.thread(info, found.tid, found.thread_key);
        self.recording.threads[thread.index()].end = Some(ThreadEnd {
            time_ns: found.time_ns,
            cpu_ns: found.cpu_ns,
            reason: found.reason,
        });
        thread
    }

    fn arming(&mut self, thread: ThreadId, found: &thread::Thread<'_>) {
        newer(&mut self.names, thread, found.time_ns, found.name);
        self.recording.threads[thread.index()].armings.push(Arming {
            time_ns: found.time_ns,
            trigger: found.trigger,
            period_ns: found.period_ns,
            periods: found.periods,
            refused: found.refused,
            signal: found.signal,
            unarmed_cpu_ns: found.unarmed_cpu_ns,
        });
    }

    /// Puts everything where it belongs, once all files have been read.
    pub(super) fn finish(mut self) -> Recording {
        self.add_segment_totals();
        self.join_lines();
        self.recording.clocks.sort_by_key(|c| c.monotonic_ns);
        let names = std::mem::take(&mut self.names).into_iter();
        for (thread, (_, name)) in names.chain(std::mem::take(&mut self.own_names)) {
            self.recording.threads[thread.index()].name = name;
        }
        for (thread, lost) in std::mem::take(&mut self.lost_in_ring) {
            let totals = &mut self.recording.threads[thread.index()].totals;
            totals.lost_in_ring = totals.lost_in_ring.saturating_add(lost);
        }
        for thread in &mut self.recording.threads {
            thread.armings.sort_by_key(|arming| arming.time_ns);
            thread.armings.dedup();
        }
        self.perf_maps
            .sort_by_key(|(process, sequence, _)| (*process, *sequence));
        for (process, _, lines) in &self.perf_maps {
            self.recording.processes[process.index()]
                .perf_map
                .extend_from_slice(lines);
        }
        for process in &mut self.recording.processes {
            process.events.sort_by_key(|event| event.time_ns);
            process.events.dedup();
            process.children.sort_by_key(|child| child.time_ns);
            process.children.dedup();
        }
        unmap(&mut self.recording.modules, self.gone);
        own(&mut self.recording.modules);
        let modules = &self.recording.modules;
        let mut by_process: Vec<Vec<ModuleId>> = vec![Vec::new(); self.recording.processes.len()];
        for (index, module) in modules.iter().enumerate() {
            by_process[module.process.index()].push(ModuleId::next_of(index));
        }
        for (process, ids) in self.recording.processes.iter_mut().zip(by_process) {
            process.map = ModuleMap::new(ids.into_iter(), modules);
        }
        find_starts(&mut self.recording.processes);
        find_parents(&mut self.recording.processes);
        self.recording
    }
}

/// Takes a name for a thread that is newer than the one it has.
fn newer(names: &mut HashMap<ThreadId, (u64, String)>, of: ThreadId, time_ns: u64, name: &[u8]) {
    if name.is_empty() {
        return;
    }
    let known = names.entry(of).or_default();
    if time_ns >= known.0 {
        *known = (time_ns, text(name));
    }
}

fn identify(process: &mut Process, found: &process::Process<'_>) {
    process.identified = true;
    process.origin = found.origin;
    process.parent_pid = found.parent_pid;
    process.parent_key = found.parent_key;
    process.time_ns = found.time_ns;
    process.realtime_offset_ns = found.realtime_offset_ns;
    process.start_ticks = found.start_ticks;
    process.asked_period_ns = found.asked_period_ns;
    process.period_ns = found.period_ns;
    process.max_depth = found.max_depth;
    process.ns_pids = text(found.ns_pids)
        .split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect();
    process.pid_namespace = found.pid_namespace;
    process.executable = text(found.executable);
    process.command = arguments(found.command);
    process.cpu_ns = found.cpu_ns;
    process.thread_cpu_ns = found.thread_cpu_ns;
    process.called = text(found.called);
    process.cgroup = text(found.cgroup);
    process.container = text(found.container);
}

fn account(found: &session::Session<'_>) -> SessionInfo {
    SessionInfo {
        start_ns: found.start_ns,
        end_ns: found.end_ns,
        realtime_offset_ns: found.realtime_offset_ns,
        wait_status: found.wait_status,
        processors: found.processors,
        asked_millihertz: found.asked_millihertz,
        period_ns: found.period_ns,
        kernel: text(found.kernel),
        host: text(found.host),
        command: arguments(found.command),
        pid: found.pid,
        charged_ns: found.charged_ns,
        event_ns: found.event_ns,
        signal_ns: found.signal_ns,
        switches: found.switches,
        switch_ns: found.switch_ns,
        thread_ns: found.thread_ns,
        collector_ns: found.collector_ns,
        load_ns: found.load_ns,
        stolen_ns: found.stolen_ns,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn arguments(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(text).collect()
}
