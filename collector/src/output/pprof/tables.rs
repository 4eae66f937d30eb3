//! What pprof's message has of a profile: tables, and samples that refer to them. Whoever writes it
//! gets their entries one by one, as other formats have the same tables.

use super::super::{command, started_at, thread_name};
use super::proto;
use crate::intern::{HashMap, Strings};
use crate::profile::{CallId, Frame, FunctionId, Profile, Sample, SourceFrameId, is_time};
use crate::recording::{LabelsId, ThreadId};
use crate::symbolize::ImageId;
use engine::wire::source::WALL;
use std::borrow::Cow;

/// Takes the entries of the tables, each once, before what refers to it. Numbers of entries begin
/// with 1; 0 is none.
pub(crate) trait Sink {
    fn mapping(&mut self, mapping: &proto::Mapping, strings: &mut Strings);
    fn function(&mut self, function: &proto::Function);
    fn location(&mut self, location: &proto::Location);
    /// Those of a stack have the same locations.
    fn sample(&mut self, sample: &proto::Sample, stack: CallId, strings: &mut Strings);
}

/// From when to when something is, ns since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Span {
    fn of(profile: &Profile) -> Self {
        let session = profile.recording.session.as_ref();
        let samples = profile.samples.iter().map(|sample| sample.time_ns);
        let last = samples.chain(session.map(|s| s.end_ns)).max();
        let duration = last.unwrap_or(0).saturating_sub(profile.start_ns());
        let from_ns = started_at(profile);
        Self {
            from_ns,
            to_ns: from_ns.saturating_add(duration),
        }
    }
}

/// Hands over the tables of a profile, and gives the rest of the message. `span`: from when to when
/// it is, if that is not what the profile itself says.
pub(crate) fn hand_over(
    profile: &Profile,
    span: Option<Span>,
    sink: &mut impl Sink,
) -> proto::Profile {
    Builder::new(profile, sink).build(span)
}

struct Builder<'a, S> {
    profile: &'a Profile,
    sink: &'a mut S,
    /// All but the tables.
    out: proto::Profile,
    strings: Strings,
    /// Events beside CPU time, each with a column of its own behind those of CPU time.
    events: Vec<u32>,
    mappings: HashMap<ImageId, u64>,
    /// Where addresses of an image begin in the process that they are shown of.
    biases: HashMap<ImageId, u64>,
    /// Of each of the profile's frames that no other follows into which it was inlined; 0 for none.
    locations: Vec<u64>,
    /// By function and file: pprof knows a function's file, we a frame's.
    functions: HashMap<(u32, Option<&'a str>), u64>,
    labels: HashMap<(ThreadId, LabelsId), Vec<proto::Label>>,
    /// What is handed over next, and the frames that the location has.
    location: proto::Location,
    frames: Vec<&'a Frame>,
}

impl<'a, S: Sink> Builder<'a, S> {
    fn new(profile: &'a Profile, sink: &'a mut S) -> Self {
        Self {
            profile,
            sink,
            out: proto::Profile::default(),
            strings: Strings::default(),
            events: Vec::new(),
            mappings: HashMap::default(),
            biases: HashMap::default(),
            locations: vec![0; profile.frames.len()],
            functions: HashMap::default(),
            labels: HashMap::default(),
            location: proto::Location::default(),
            frames: Vec::new(),
        }
    }

    fn build(mut self, span: Option<Span>) -> proto::Profile {
        let samples = self.value_type("samples", "count");
        let cpu = self.value_type("cpu", "nanoseconds");
        self.out.sample_type = vec![samples, cpu];
        self.events = self.profile.other_events();
        for event in self.events.clone() {
            let name = self.profile.event_name(event);
            let unit = if is_time(event) {
                "nanoseconds"
            } else {
                "count"
            };
            let column = self.value_type(&name, unit);
            self.out.sample_type.push(column);
        }
        let shown = self
            .events
            .iter()
            .position(|event| *event == self.profile.shown_event);
        let shown = shown.map_or(1, |index| index + 2);
        self.out.default_sample_type = self.out.sample_type[shown].r#type;
        self.out.period_type = Some(cpu);
        let first = self.profile.samples.first();
        let period = first.map_or(0, |sample| self.profile.period_ns(sample.thread));
        self.out.period = signed(period);
        let span = span.unwrap_or_else(|| Span::of(self.profile));
        self.out.time_nanos = signed(span.from_ns);
        self.out.duration_nanos = signed(span.to_ns.saturating_sub(span.from_ns));
        let command = command(self.profile);
        if !command.is_empty() {
            self.out.comment = vec![self.string(&command)];
        }
        self.main_binary_first();
        self.samples();
        self.out.string_table = self.strings.list();
        self.out
    }

    /// pprof takes the first mapping for the program.
    fn main_binary_first(&mut self) {
        let profile = self.profile;
        let Some(process) = profile.recording.processes.first() else {
            return;
        };
        let images = profile.symbols.images.iter();
        let main = images
            .enumerate()
            .find(|(_, image)| image.path == process.executable);
        if let Some((index, _)) = main {
            self.mapping(ImageId::next_of(index));
        }
    }

    fn samples(&mut self) {
        let width = self.out.sample_type.len();
        let mut places: HashMap<_, usize> = HashMap::default();
        let (mut samples, mut values) = (Vec::new(), Vec::new());
        let remainders = &self.profile.remainders;
        for sample in self.profile.all_samples().chain(remainders) {
            let whose = (sample.thread, sample.stack, sample.labels);
            let place = *places.entry(whose).or_insert_with(|| {
                samples.push(sample);
                values.resize(values.len() + width, 0);
                samples.len() - 1
            });
            self.add(sample, &mut values[place * width..][..width]);
        }
        let mut made = proto::Sample::default();
        for (sample, values) in samples.into_iter().zip(values.chunks(width)) {
            made.value.clear();
            made.value.extend(values);
            made.label.clear();
            made.label.extend(self.labels(sample));
            made.location_id.clear();
            self.stack(sample.stack, &mut made.location_id);
            self.sink.sample(&made, sample.stack, &mut self.strings);
        }
    }

    /// Adds to the value of each column.
    fn add(&self, sample: &Sample, values: &mut [i64]) {
        let mut add = |column: usize, value: u64| {
            let there = &mut values[column];
            *there = there.saturating_add(signed(value));
        };
        match self.events.iter().position(|event| *event == sample.event) {
            Some(index) => add(2 + index, sample.weight),
            None => {
                add(0, sample.weight);
                add(1, self.profile.time_ns(sample));
            }
        }
        // Has no samples of its own: those of CPU time and time off the CPU are.
        let wall = self.events.iter().position(|event| *event == WALL);
        if let Some(index) = wall.filter(|_| is_time(sample.event)) {
            add(2 + index, self.profile.time_ns(sample));
        }
    }

    fn labels(&mut self, sample: &Sample) -> &[proto::Label] {
        let whose = (sample.thread, sample.labels);
        if !self.labels.contains_key(&whose) {
            let labels = self.new_labels(sample);
            self.labels.insert(whose, labels);
        }
        self.labels.get(&whose).map_or(&[], Vec::as_slice)
    }

    fn new_labels(&mut self, sample: &Sample) -> Vec<proto::Label> {
        let thread = &self.profile.recording.threads[sample.thread.index()];
        let process = &self.profile.recording.processes[thread.process.index()];
        let text = [
            ("process", process.name()),
            ("thread", thread_name(self.profile, sample.thread)),
        ];
        let numbers = [("pid", process.pid), ("tid", thread.tid)];
        let profile = self.profile;
        let own = profile.recording.labels.get(sample.labels).iter();
        // Each key is there once: what is said of the thread keeps its own.
        let own = own.map(|(key, value)| match is_ours(key) {
            true => (Cow::Owned(format!("label.{key}")), &**value),
            false => (Cow::Borrowed(&**key), &**value),
        });
        let text = text.map(|(key, value)| (Cow::Borrowed(key), value));
        let mut labels = Vec::with_capacity(4);
        for (key, value) in text.into_iter().chain(own) {
            labels.push(proto::Label {
                key: self.string(&key),
                str: self.string(value),
                num: 0,
            });
        }
        for (key, value) in numbers {
            labels.push(proto::Label {
                key: self.string(key),
                str: 0,
                num: i64::from(value),
            });
        }
        labels
    }

    /// Adds the locations of a stack.
    fn stack(&mut self, stack: CallId, ids: &mut Vec<u64>) {
        let profile = self.profile;
        let mut next = Some(stack);
        while let Some(call) = next.and_then(|next| profile.stacks.get(next.index())) {
            let frame = &profile.frames[call.frame.index()];
            self.frames.push(frame);
            if !frame.inlined() {
                ids.push(self.location(Some(call.frame)));
            }
            next = call.parent;
        }
        if !self.frames.is_empty() {
            ids.push(self.location(None));
        }
    }

    /// The location of a frame, which is the last of those that wait for one: the others were
    /// inlined into it.
    fn location(&mut self, key: Option<SourceFrameId>) -> u64 {
        let mut frames = std::mem::take(&mut self.frames);
        let known = key.and_then(|key| self.locations.get(key.index()).copied());
        let id = known.filter(|known| *known != 0).unwrap_or_else(|| {
            let id = self.new_location(&frames);
            if let Some(known) = key.and_then(|key| self.locations.get_mut(key.index())) {
                *known = id;
            }
            id
        });
        frames.clear();
        self.frames = frames;
        id
    }

    fn new_location(&mut self, frames: &[&'a Frame]) -> u64 {
        let outer = frames.last().copied();
        let image = outer.and_then(|outer| self.profile.function(outer).image);
        let mapping_id = image.map_or(0, |image| self.mapping(image));
        let bias = image.map_or(0, |image| self.biases.get(&image).copied().unwrap_or(0));
        let mut location = std::mem::take(&mut self.location);
        location.id += 1;
        location.mapping_id = mapping_id;
        location.address = outer.map_or(0, |outer| outer.file_address.wrapping_add(bias));
        location.line.clear();
        location.line.extend(frames.iter().map(|frame| proto::Line {
            function_id: self.function(frame.function, frame.file.as_deref()),
            line: i64::from(frame.line),
        }));
        self.sink.location(&location);
        let id = location.id;
        self.location = location;
        id
    }

    fn function(&mut self, id: FunctionId, file: Option<&'a str>) -> u64 {
        let function = &self.profile.functions[id.index()];
        let id = id.number();
        if let Some(known) = self.functions.get(&(id, file)) {
            return *known;
        }
        let number = self.functions.len() as u64 + 1;
        let name = self.string(&function.name);
        let filename = self.string(file.unwrap_or(""));
        self.sink.function(&proto::Function {
            id: number,
            name,
            system_name: name,
            filename,
            start_line: i64::from(function.begins),
        });
        self.functions.insert((id, file), number);
        number
    }

    fn mapping(&mut self, id: ImageId) -> u64 {
        if let Some(known) = self.mappings.get(&id) {
            return *known;
        }
        let image = &self.profile.symbols.images[id.index()];
        let mut modules = self.profile.recording.modules.iter();
        let module = modules.find(|m| m.path == image.path && m.build_id == image.build_id);
        let (start, end, bias) = module.map_or((0, 0, 0), |m| (m.start.0, m.end.0, m.bias));
        let number = self.mappings.len() as u64 + 1;
        let filename = self.string(&image.path);
        let build_id = self.string(&image.build_id_text());
        let mapping = proto::Mapping {
            id: number,
            memory_start: start,
            memory_limit: end,
            file_offset: 0,
            filename,
            build_id,
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        };
        self.sink.mapping(&mapping, &mut self.strings);
        self.mappings.insert(id, number);
        self.biases.insert(id, bias);
        number
    }

    fn value_type(&mut self, name: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            r#type: self.string(name),
            unit: self.string(unit),
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        i64::from(self.strings.place(text))
    }
}

/// What is said of the thread and process of each sample.
fn is_ours(key: &str) -> bool {
    matches!(key, "process" | "thread" | "pid" | "tid")
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
