//! Makes a profile of rows.

use super::answer;
use super::calls::Calls;
use super::rows::{KERNEL, NATIVE, NONE};
use crate::intern::{HashMap, Index};
use crate::profile::{
    CallId, Frame, Function, FunctionId, Gil, Mode, Profile, Sample, SourceFrameId,
};
use crate::recording::{
    Arming, KernelHalf, LabelsId, LanguageId, Process, ProcessId, Recording, SessionInfo, Thread,
    ThreadId, Totals,
};
use crate::symbolize::{Image, ImageId, Symbols};
use crate::visible::visible;
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::{StopReason, Trigger};
use std::hash::Hash;
use std::mem;
use std::sync::Arc;

/// A stack whose frames are not in the tables.
pub(super) const NO_STACK: &str = "[its stack is not in the tables]";
/// The function and the frame that stand for that.
const UNKNOWN: FunctionId = FunctionId::new(0);
const UNKNOWN_FRAME: SourceFrameId = SourceFrameId::new(0);

/// A profile that is being made.
#[derive(Default)]
pub(super) struct Builder {
    recording: Recording,
    symbols: Symbols,
    functions: Vec<Function>,
    frames: Vec<Frame>,
    calls: Calls,
    /// Weights of stacks, by thread.
    sums: Vec<Vec<(CallId, u64)>>,
    images: HashMap<(String, String), ImageId>,
    languages: HashMap<String, LanguageId>,
    of_function: HashMap<Function, FunctionId>,
    /// Frames that are on stacks, by their hashes.
    of_hash: HashMap<u64, SourceFrameId>,
    /// Those of them that have no names yet.
    unnamed: Vec<u64>,
    /// Of samples that come next.
    of_stack: HashMap<u64, CallId>,
    unknown: Option<CallId>,
    processes: HashMap<String, ProcessId>,
    /// By process, name and period.
    threads: HashMap<(ProcessId, String, u64), ThreadId>,
}

impl Builder {
    pub(super) fn new() -> Self {
        let mut made = Self::default();
        let unknown = made.function(Function {
            name: NO_STACK.into(),
            short: None,
            image: None,
            mode: Mode::Note,
            source: None,
            begins: 0,
        });
        made.frames.push(Frame::bare(unknown));
        made
    }

    /// Knows stacks.
    pub(super) fn stacks(&mut self, rows: &[answer::Stack<'_>]) {
        let frame = |hash| {
            placed(&mut self.of_hash, &mut self.frames, hash, |hash| {
                self.unnamed.push(*hash);
                Frame::bare(UNKNOWN)
            })
        };
        let stacks: Vec<_> = rows.iter().map(|row| row.frames).collect();
        let calls = rows.iter().zip(self.calls.add(&stacks, frame));
        let calls = calls.filter_map(|(row, call)| Some((row.hash, call?)));
        self.of_stack.extend(calls);
    }

    /// Hashes of frames on stacks that have no names yet, each once.
    pub(super) fn unnamed(&mut self) -> impl Iterator<Item = u64> + use<> {
        mem::take(&mut self.unnamed).into_iter()
    }

    /// Knows a frame that is on stacks. What it is called goes to terminals and files.
    pub(super) fn frame(&mut self, row: &answer::Frame) {
        let Some(id) = self.of_hash.get(&row.hash).copied() else {
            return;
        };
        let shared = |text: &str| Arc::<str>::from(visible(text));
        let image = !row.binary.is_empty();
        let image = image.then(|| self.image(&visible(&row.binary), &row.build_id));
        let mode = match &*row.language {
            NATIVE => Mode::User,
            KERNEL => Mode::Kernel,
            NONE => Mode::Note,
            language => {
                let languages = &mut self.recording.languages;
                let name = visible(language).into_owned();
                Mode::Language(placed(&mut self.languages, languages, name, String::clone))
            }
        };
        let file = Some(&*row.file).filter(|file| !file.is_empty());
        let short = Some(&*row.short).filter(|short| !short.is_empty());
        let function = self.function(Function {
            name: shared(&row.function),
            short: short.map(shared),
            image,
            mode,
            source: file
                .map(shared)
                .filter(|_| matches!(mode, Mode::Language(_))),
            begins: 0,
        });
        self.frames[id.index()] = Frame {
            file: file.map(shared),
            line: row.line,
            inline_depth: row.inlined,
            ..Frame::bare(function)
        };
    }

    fn function(&mut self, function: Function) -> FunctionId {
        let functions = &mut self.functions;
        placed(&mut self.of_function, functions, function, Clone::clone)
    }

    fn image(&mut self, path: &str, build_id: &str) -> ImageId {
        let name = (path.to_owned(), build_id.to_owned());
        placed(
            &mut self.images,
            &mut self.symbols.images,
            name,
            |(path, build_id)| Image {
                path: path.clone(),
                build_id: bytes_of(build_id),
            },
        )
    }

    /// Adds the samples of threads whose stacks were told of; gives whether all are of one.
    pub(super) fn samples(
        &mut self,
        mut threads: Vec<answer::Thread>,
        sums: Vec<answer::Sums>,
    ) -> bool {
        // What is asked for twice is the same twice.
        threads.sort_unstable_by(|one, other| one.name().cmp(&other.name()));
        let rows = sums.len();
        let mut sums: HashMap<u64, _> = sums.into_iter().map(|row| (row.key, row)).collect();
        let is_each_once = sums.len() == rows;
        for thread in &threads {
            let Some(sums) = sums.remove(&thread.key) else {
                continue;
            };
            if thread.period_ns == 0 {
                continue; // remainders of less than a period, which weigh nothing
            }
            let thread = self.thread(thread).index();
            self.sums
                .resize_with(self.recording.threads.len(), Vec::new);
            let all = &mut self.sums[thread];
            let before = all.len();
            for (hash, weight) in sums.stacks.iter().zip(sums.weights) {
                let known = self.of_stack.get(hash).copied();
                let unknown = || self.calls.alone(UNKNOWN_FRAME);
                let stack = known.unwrap_or_else(|| *self.unknown.get_or_insert_with(unknown));
                all.push((stack, weight));
            }
            all[before..].sort_unstable();
        }
        self.of_stack.clear();
        is_each_once && sums.is_empty()
    }

    fn thread(&mut self, row: &answer::Thread) -> ThreadId {
        let [process, thread] = [&row.process, &row.thread].map(|name| visible(name).into_owned());
        let processes = &mut self.recording.processes;
        let id = placed(&mut self.processes, processes, process, |name| Process {
            identified: true,
            executable: name.clone(),
            command: vec![name.clone()],
            ..Process::default()
        });
        let threads = &mut self.recording.threads;
        let thread = (id, thread, row.period_ns);
        placed(
            &mut self.threads,
            threads,
            thread,
            |(process, name, period)| thread_of(*process, name, *period),
        )
    }

    /// All of it. `command` is what stands above reports; the first and the last sample were then,
    /// ms since 1970.
    pub(super) fn finish(mut self, command: Vec<String>, [first_ms, last_ms]: [u64; 2]) -> Profile {
        self.recording.session = Some(SessionInfo {
            start_ns: ns(first_ms),
            end_ns: ns(last_ms),
            command,
            ..SessionInfo::default()
        });
        let sample = |thread, stack, weight| Sample {
            thread,
            time_ns: ns(first_ms),
            weight,
            event: CPU_EVENT,
            stack,
            stop: StopReason::Root,
            complete: true,
            gil: Gil::Nothing,
            kernel: KernelHalf::None,
            labels: LabelsId::NONE,
        };
        let mut samples: Vec<Sample> = Vec::new();
        for (thread, mut sums) in self.sums.into_iter().enumerate() {
            let thread = ThreadId::next_of(thread);
            // What is sorted in parts, as they came, is merged.
            sums.sort();
            for (stack, weight) in sums {
                match samples.last_mut() {
                    // Threads of that name of several services have it.
                    Some(last) if (last.thread, last.stack) == (thread, stack) => {
                        last.weight = last.weight.saturating_add(weight);
                    }
                    _ => samples.push(sample(thread, stack, weight)),
                }
            }
        }
        Profile {
            recording: self.recording,
            symbols: self.symbols,
            functions: self.functions,
            frames: self.frames,
            stacks: self.calls.list(),
            samples,
            aside: Vec::new(),
            remainders: Vec::new(),
            own_calls_ns: 0,
            shown_event: CPU_EVENT,
            unfiltered: None,
            are_sums: true,
        }
    }
}

fn thread_of(process: ProcessId, name: &str, period_ns: u64) -> Thread {
    Thread {
        process,
        tid: 0,
        key: 0,
        name: name.to_owned(),
        armings: vec![Arming {
            time_ns: 0,
            trigger: Trigger::PerfKernel,
            period_ns,
            periods: 1,
            refused: 0,
            signal: 0,
            unarmed_cpu_ns: 0,
        }],
        end: None,
        totals: Totals::default(),
        late_cpu_ns: 0,
    }
}

/// Where something is in a list, to which it is added if it is new.
fn placed<K: Eq + Hash, V, I: Index>(
    known: &mut HashMap<K, I>,
    list: &mut Vec<V>,
    key: K,
    make: impl FnOnce(&K) -> V,
) -> I {
    *known.entry(key).or_insert_with_key(|key| {
        list.push(make(key));
        I::next_of(list.len() - 1)
    })
}

const fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

fn bytes_of(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.filter_map(byte).collect()
}
