//! The format of pprof: a protocol buffer, compressed with gzip. `go tool pprof`, Pyroscope,
//! Grafana and speedscope read it.
//!
//! Fields and their numbers are those of `profile.proto` of github.com/google/pprof. Addresses are
//! those of the first process that had the binary mapped, so that pprof can find the binary's code;
//! names are complete, nothing needs to be looked up again.

pub(crate) mod proto;

use super::{Format, Holds, Options, command, started_at, thread_name};
use crate::intern::HashMap;
use crate::profile::{CallId, Frame, FunctionId, Profile, SourceFrameId, is_time};
use crate::recording::{LabelsId, ThreadId};
use crate::symbolize::ImageId;
use engine::wire::source::WALL;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use std::borrow::Cow;
use std::io::{self, Write};

/// Frames; most stacks have fewer.
const USUAL_DEPTH: usize = 64;

pub(super) struct Pprof;

impl Format for Pprof {
    fn name(&self) -> &'static str {
        "pprof"
    }

    fn about(&self) -> &'static str {
        "for go tool pprof, speedscope, Pyroscope"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".pb.gz", ".pprof", ".pb"]
    }

    fn holds(&self) -> Holds {
        Holds::EveryEvent
    }

    fn write(&self, profile: &Profile, _: &Options, out: &mut dyn Write) -> io::Result<()> {
        write_message(&message(profile), out)
    }
}

/// A profile as pprof's message.
pub(crate) fn message(profile: &Profile) -> proto::Profile {
    Builder::new(profile).build()
}

/// Writes it as files of the format are.
pub(crate) fn write_message(message: &proto::Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&message.encode_to_vec())?;
    gzip.finish()?.flush()
}

struct Builder<'a> {
    profile: &'a Profile,
    out: proto::Profile,
    strings: HashMap<String, i64>,
    /// Events beside CPU time, each with a column of its own behind those of CPU time.
    events: Vec<u32>,
    mappings: HashMap<ImageId, u64>,
    /// Where addresses of an image begin in the process that they are shown of.
    biases: HashMap<ImageId, u64>,
    /// Of each of the profile's frames that no other follows into which it was inlined; 0 for none.
    locations: Vec<u64>,
    /// By function and file: pprof knows a function's file, we a frame's.
    functions: HashMap<(u32, Option<&'a str>), u64>,
    /// Of each stack the first sample that has it.
    stacks: HashMap<CallId, usize>,
    labels: HashMap<(ThreadId, LabelsId), Vec<proto::Label>>,
}

impl<'a> Builder<'a> {
    fn new(profile: &'a Profile) -> Self {
        let mut builder = Self {
            profile,
            out: proto::Profile::default(),
            strings: HashMap::default(),
            events: Vec::new(),
            mappings: HashMap::default(),
            biases: HashMap::default(),
            locations: vec![0; profile.frames.len()],
            functions: HashMap::default(),
            stacks: HashMap::default(),
            labels: HashMap::default(),
        };
        builder.string("");
        builder
    }

    fn build(mut self) -> proto::Profile {
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
        self.out.time_nanos = signed(started_at(self.profile));
        let last = self
            .profile
            .samples
            .iter()
            .map(|sample| sample.time_ns)
            .max();
        let last = self
            .profile
            .recording
            .session
            .as_ref()
            .map_or(last, |s| last.max(Some(s.end_ns)));
        let duration = last.unwrap_or(0).saturating_sub(self.profile.start_ns());
        self.out.duration_nanos = signed(duration);
        let command = command(self.profile);
        if !command.is_empty() {
            self.out.comment = vec![self.string(&command)];
        }
        self.main_binary_first();
        self.samples();
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
        let mut merged: HashMap<_, usize> = HashMap::default();
        merged.reserve(self.profile.samples.len());
        let remainders = &self.profile.remainders;
        for sample in self.profile.all_samples().chain(remainders) {
            let values = self.values(sample);
            let key = (sample.thread, sample.stack, sample.labels);
            if let Some(index) = merged.get(&key) {
                let there: &mut proto::Sample = &mut self.out.sample[*index];
                for (there, more) in there.value.iter_mut().zip(values) {
                    *there = there.saturating_add(more);
                }
                continue;
            }
            let label = self.labels(sample);
            let location_id = self.stack(sample.stack);
            merged.insert(key, self.out.sample.len());
            self.out.sample.push(proto::Sample {
                location_id,
                value: values,
                label,
            });
        }
    }

    /// One value for each column.
    fn values(&self, sample: &crate::profile::Sample) -> Vec<i64> {
        let mut values = vec![0; 2 + self.events.len()];
        match self.events.iter().position(|event| *event == sample.event) {
            Some(index) => values[2 + index] = signed(sample.weight),
            None => {
                values[0] = signed(sample.weight);
                values[1] = signed(self.profile.time_ns(sample));
            }
        }
        // Has no samples of its own: those of CPU time and time off the CPU are.
        let wall = self.events.iter().position(|event| *event == WALL);
        if let Some(index) = wall.filter(|_| is_time(sample.event)) {
            values[2 + index] = signed(self.profile.time_ns(sample));
        }
        values
    }

    fn labels(&mut self, sample: &crate::profile::Sample) -> Vec<proto::Label> {
        let whose = (sample.thread, sample.labels);
        if let Some(known) = self.labels.get(&whose) {
            return known.clone();
        }
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
        self.labels.insert(whose, labels.clone());
        labels
    }

    /// Locations, for the next sample.
    fn stack(&mut self, stack: CallId) -> Vec<u64> {
        if let Some(known) = self.stacks.get(&stack) {
            return self.out.sample[*known].location_id.clone();
        }
        let profile = self.profile;
        let mut ids = Vec::with_capacity(USUAL_DEPTH);
        let (mut inlined, mut next) = (Vec::new(), Some(stack));
        while let Some(call) = next.and_then(|next| profile.stacks.get(next.index())) {
            let frame = &profile.frames[call.frame.index()];
            inlined.push(frame);
            if !frame.inlined() {
                ids.push(self.location(Some(call.frame), &inlined));
                inlined.clear();
            }
            next = call.parent;
        }
        if !inlined.is_empty() {
            ids.push(self.location(None, &inlined));
        }
        self.stacks.insert(stack, self.out.sample.len());
        ids
    }

    /// The location of a frame; `functions`: it is the last of them, into which the others were
    /// inlined.
    fn location(&mut self, key: Option<SourceFrameId>, functions: &[&'a Frame]) -> u64 {
        let known = key.and_then(|key| self.locations.get(key.index()));
        if let Some(known) = known.filter(|known| **known != 0) {
            return *known;
        }
        let outer = functions.last().copied();
        let image = outer.and_then(|outer| self.profile.function(outer).image);
        let mapping_id = image.map_or(0, |image| self.mapping(image));
        let bias = image.map_or(0, |image| self.biases.get(&image).copied().unwrap_or(0));
        let address = outer.map_or(0, |outer| outer.file_address.wrapping_add(bias));
        let line = functions
            .iter()
            .map(|frame| proto::Line {
                function_id: self.function(frame.function, frame.file.as_deref()),
                line: i64::from(frame.line),
            })
            .collect();
        let id = self.out.location.len() as u64 + 1;
        self.out.location.push(proto::Location {
            id,
            mapping_id,
            address,
            line,
        });
        if let Some(known) = key.and_then(|key| self.locations.get_mut(key.index())) {
            *known = id;
        }
        id
    }

    fn function(&mut self, id: FunctionId, file: Option<&'a str>) -> u64 {
        let function = &self.profile.functions[id.index()];
        let id = id.number();
        if let Some(known) = self.functions.get(&(id, file)) {
            return *known;
        }
        let number = self.out.function.len() as u64 + 1;
        let name = self.string(&function.name);
        let filename = self.string(file.unwrap_or(""));
        self.out.function.push(proto::Function {
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
        let number = self.out.mapping.len() as u64 + 1;
        let filename = self.string(&image.path);
        let build_id = self.string(&image.build_id_text());
        self.out.mapping.push(proto::Mapping {
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
        });
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
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let index = signed(self.out.string_table.len() as u64);
        self.out.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }
}

/// What is said of the thread and process of each sample.
fn is_ours(key: &str) -> bool {
    matches!(key, "process" | "thread" | "pid" | "tid")
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;
    use crate::recording::LabelsId;

    #[test]
    fn samples_of_a_stack_with_other_labels_are_other_samples() {
        let mut profile = example();
        let plain = Builder::new(&profile).build();
        let labels = [("route", "/a"), ("thread", "mine")];
        let labels = labels.map(|(key, value)| (key.into(), value.into()));
        profile.recording.labels.list().push(labels.to_vec());
        let mut more = profile.samples[0];
        more.labels = LabelsId::new(2);
        profile.samples.push(more);
        let made = Builder::new(&profile).build();
        assert_eq!(made.sample.len(), plain.sample.len() + 1);
        let text = |index: i64| &made.string_table[usize::try_from(index).unwrap()][..];
        let labelled = made.sample.iter().find(|sample| sample.label.len() > 4);
        let labels = labelled.unwrap().label.iter();
        let labels: Vec<_> = labels.map(|l| (text(l.key), text(l.str))).collect();
        assert_eq!(labels[2..4], [("route", "/a"), ("label.thread", "mine")]);
    }

    #[test]
    fn what_is_written_is_read_back_with_the_same_weights() {
        let profile = example();
        let made = Builder::new(&profile).build();
        let read = proto::Profile::decode(&made.encode_to_vec()[..]).unwrap();
        assert_eq!(read, made);
        let sum = |column: usize| {
            read.sample
                .iter()
                .map(|sample| sample.value[column])
                .sum::<i64>()
        };
        assert_eq!((sum(0), sum(1)), (7, 7_000_000));
        assert_eq!(read.string_table[0], "");
        let text = |index: i64| &read.string_table[usize::try_from(index).unwrap()][..];
        let name = |location: u64| {
            let location = read.location.iter().find(|l| l.id == location).unwrap();
            let function = location.line[0].function_id;
            text(
                read.function
                    .iter()
                    .find(|f| f.id == function)
                    .unwrap()
                    .name,
            )
        };
        let first: Vec<&str> = read.sample[0]
            .location_id
            .iter()
            .map(|id| name(*id))
            .collect();
        assert_eq!(first, ["leaf", "work; more", "main", "_start"]);
        let labels: Vec<_> = read.sample[3]
            .label
            .iter()
            .map(|label| (text(label.key), text(label.str), label.num))
            .collect();
        assert_eq!(
            labels,
            [
                ("process", "prog", 0),
                ("thread", "worker", 0),
                ("pid", "", 10),
                ("tid", "", 11)
            ]
        );
        assert_eq!(read.time_nanos, 1_700_000_000_001_000_000);
    }
}
