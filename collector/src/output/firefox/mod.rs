//! The format of the Firefox Profiler (profiler.firefox.com): processed JSON, compressed with gzip.
//!
//! fxprof-processed-profile makes the profile: processes, threads, samples with CPU time, stacks.
//! It has no place for inlined functions, files and lines of its own, so each frame goes in as a
//! label that is its number, and `tables` then puts the functions, frames, symbols and libraries in
//! the place of the labels.

mod regions;
mod tables;

use super::{Format, Options, command, started_at, thread_name};
use crate::profile::{CallId, Frame, Kind, Kinds, Profile, SourceFrameId, Units, is_time};
use crate::recording::{ProcessId, ThreadId};
use engine::wire::offer::CPU_EVENT;
use flate2::Compression;
use flate2::write::GzEncoder;
use fxprof_processed_profile as fx;
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

pub(super) struct Firefox;

impl Format for Firefox {
    fn name(&self) -> &'static str {
        "firefox"
    }

    fn about(&self) -> &'static str {
        "for profiler.firefox.com"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".json.gz", ".json"]
    }

    fn write(&self, profile: &Profile, _: &Options, out: &mut dyn Write) -> io::Result<()> {
        let made = Maker::new(profile).make();
        let mut json = serde_json::to_value(&made)?;
        tables::fill(&mut json, profile)?;
        weigh(&mut json, profile);
        let mut gzip = GzEncoder::new(out, Compression::default());
        serde_json::to_writer(&mut gzip, &json)?;
        gzip.finish()?.flush()
    }
}

/// Whether weights are milliseconds, as the format has them; CPU time is counted in samples.
const fn is_in_ms(event: u32) -> bool {
    event != CPU_EVENT && is_time(event)
}

/// Puts milliseconds in the place of the numbers of the samples: the library has no room for
/// fractions, nor for long waits in nanoseconds.
fn weigh(json: &mut serde_json::Value, profile: &Profile) {
    if !is_in_ms(profile.shown_event) {
        return;
    }
    for thread in json["threads"].as_array_mut().into_iter().flatten() {
        let weights = thread["samples"]["weight"].as_array_mut();
        for weight in weights.into_iter().flatten() {
            let number = weight.as_u64().and_then(|it| usize::try_from(it).ok());
            let sample = number.and_then(|number| profile.samples.get(number));
            *weight = (sample.map_or(0, |it| it.weight) as f64 / 1e6).into();
        }
    }
}

/// The label that stands for a frame.
fn label(frame: SourceFrameId) -> String {
    format!("#{}", frame.number())
}

/// The frame that a label stands for.
fn frame_of(label: &str) -> Option<SourceFrameId> {
    Some(SourceFrameId::new(label.strip_prefix('#')?.parse().ok()?))
}

struct Maker<'a> {
    profile: &'a Profile,
    out: fx::Profile,
    start_ns: u64,
    processes: HashMap<ProcessId, fx::ProcessHandle>,
    threads: HashMap<ThreadId, fx::ThreadHandle>,
    stacks: HashMap<(ThreadId, CallId), fx::StackHandle>,
    categories: Categories,
}

impl<'a> Maker<'a> {
    fn new(profile: &'a Profile) -> Self {
        let name = match command(profile) {
            command if command.is_empty() => "rsunwind".to_owned(),
            command => command,
        };
        let start = Duration::from_nanos(started_at(profile));
        let start = fx::ReferenceTimestamp::from_duration_since_unix_epoch(start);
        let first = profile.samples.first();
        let period = first.map_or(1_000_000, |sample| match sample.event {
            CPU_EVENT => profile.unit(),
            _ => profile.period_ns(sample.thread),
        });
        let interval = fx::SamplingInterval::from_nanos(period);
        let mut out = fx::Profile::new(&name, start, interval);
        out.set_symbolicated(true);
        let kernel = profile
            .recording
            .session
            .as_ref()
            .map(|session| &session.kernel);
        out.set_os_name(&kernel.map_or("Linux".to_owned(), |kernel| format!("Linux {kernel}")));
        Self {
            profile,
            categories: Categories::new(profile, &mut out),
            out,
            start_ns: profile.start_ns(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    fn make(mut self) -> fx::Profile {
        let mut units = Units::of(self.profile.unit());
        for (number, sample) in self.profile.samples.iter().enumerate() {
            let thread = self.thread(sample.thread);
            let stack = self.stack(sample.thread, thread, sample.stack);
            let weight = match is_in_ms(sample.event) {
                true => number as u64,
                false => units.next(self.profile.time_ns(sample)),
            };
            let weight = i32::try_from(weight).unwrap_or(i32::MAX);
            let cpu = match sample.event {
                CPU_EVENT => fx::CpuDelta::from_nanos(self.profile.time_ns(sample)),
                _ => fx::CpuDelta::ZERO,
            };
            let time = self.time(sample.time_ns);
            self.out.add_sample(thread, time, Some(stack), cpu, weight);
        }
        self.mark_regions();
        self.out
    }

    fn mark_regions(&mut self) {
        let profile = self.profile;
        if !profile.recording.labels.any() {
            return;
        }
        for samples in profile.samples.chunk_by(|a, b| a.thread == b.thread) {
            let thread = self.thread(samples[0].thread);
            for region in regions::of_thread(profile, samples) {
                let (begin, end) = (self.time(region.begin_ns), self.time(region.end_ns));
                let key = self.out.intern_string(&region.key);
                let value = self.out.intern_string(&region.value);
                let timing = fx::MarkerTiming::Interval(begin, end);
                let marker = regions::Marker { key, value };
                self.out.add_marker(thread, timing, marker);
            }
        }
    }

    fn time(&self, ns: u64) -> fx::Timestamp {
        fx::Timestamp::from_nanos_since_reference(ns.saturating_sub(self.start_ns))
    }

    fn process(&mut self, id: ProcessId) -> fx::ProcessHandle {
        if let Some(known) = self.processes.get(&id) {
            return *known;
        }
        let process = &self.profile.recording.processes[id.index()];
        let start = self.time(process.time_ns);
        let handle = self.out.add_process(process.name(), process.pid, start);
        self.processes.insert(id, handle);
        handle
    }

    fn thread(&mut self, id: ThreadId) -> fx::ThreadHandle {
        if let Some(known) = self.threads.get(&id) {
            return *known;
        }
        let thread = &self.profile.recording.threads[id.index()];
        let process = self.process(thread.process);
        let pid = self.profile.recording.processes[thread.process.index()].pid;
        let start = self.time(
            thread
                .armings
                .first()
                .map_or(thread.key, |first| first.time_ns),
        );
        let handle = self
            .out
            .add_thread(process, thread.tid, start, thread.tid == pid);
        self.out
            .set_thread_name(handle, thread_name(self.profile, id));
        if is_in_ms(self.profile.shown_event) {
            let unit = fx::WeightType::TracingMs;
            self.out.set_thread_samples_weight_type(handle, unit);
        }
        if let Some(end) = thread.end {
            self.out.set_thread_end_time(handle, self.time(end.time_ns));
        }
        self.threads.insert(id, handle);
        handle
    }

    fn stack(&mut self, id: ThreadId, thread: fx::ThreadHandle, stack: CallId) -> fx::StackHandle {
        let mut todo = Vec::new();
        let mut at = Some(stack);
        let mut made = None;
        while let Some(call) = at {
            if let Some(known) = self.stacks.get(&(id, call)) {
                made = Some(*known);
                break;
            }
            todo.push(call);
            at = self.profile.stacks[call.index()].parent;
        }
        let mut last = made;
        for call in todo.into_iter().rev() {
            let frame = self.frame(thread, self.profile.stacks[call.index()].frame);
            let handle = self.out.intern_stack(thread, last, frame);
            self.stacks.insert((id, call), handle);
            last = Some(handle);
        }
        // There is a frame in every stack, so there is a handle by now.
        last.unwrap_or_else(|| {
            let frame = self.frame(thread, self.profile.stacks[stack.index()].frame);
            self.out.intern_stack(thread, None, frame)
        })
    }

    fn frame(&mut self, thread: fx::ThreadHandle, id: SourceFrameId) -> fx::FrameHandle {
        let string = self.out.intern_string(&label(id));
        let category = self
            .categories
            .of(self.profile, &self.profile.frames[id.index()]);
        let info = fx::FrameInfo {
            frame: fx::Frame::Label(string),
            category_pair: category.into(),
            flags: fx::FrameFlags::empty(),
        };
        self.out.intern_frame(thread, info)
    }
}

/// The kinds of code, by colour.
struct Categories {
    kinds: Kinds,
    program: fx::CategoryHandle,
    library: fx::CategoryHandle,
    anonymous: fx::CategoryHandle,
    kernel: fx::CategoryHandle,
    missing: fx::CategoryHandle,
    /// By language.
    languages: Vec<fx::CategoryHandle>,
}

/// Colours that no other kind of code has.
const OF_LANGUAGES: [fx::CategoryColor; 4] = [
    fx::CategoryColor::Yellow,
    fx::CategoryColor::Magenta,
    fx::CategoryColor::LightBlue,
    fx::CategoryColor::LightGreen,
];

impl Categories {
    fn new(profile: &Profile, out: &mut fx::Profile) -> Self {
        let names = profile.recording.languages.iter();
        let languages = names.zip(OF_LANGUAGES.into_iter().cycle());
        Self {
            kinds: Kinds::of(profile),
            languages: languages
                .map(|(name, colour)| out.add_category(name, colour))
                .collect(),
            program: out.add_category("Program", fx::CategoryColor::Blue),
            library: out.add_category("Library", fx::CategoryColor::Green),
            anonymous: out.add_category("JIT or unknown code", fx::CategoryColor::Purple),
            kernel: out.add_category("Kernel", fx::CategoryColor::Orange),
            missing: out.add_category("Missing frames", fx::CategoryColor::Gray),
        }
    }

    fn of(&self, profile: &Profile, frame: &Frame) -> fx::CategoryHandle {
        match self.kinds.kind(profile.function(frame)) {
            Kind::Missing => self.missing,
            Kind::Kernel => self.kernel,
            Kind::Language(id) => self.languages[id.index()],
            Kind::Anonymous => self.anonymous,
            Kind::Program => self.program,
            Kind::Library => self.library,
        }
    }
}
