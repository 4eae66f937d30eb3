//! Counts self and total time per function, line, binary, thread or process.
//!
//! Weights are summed per distinct stack first; then the tree of the stacks is gone through once.
//! What occurs in a stack several times (recursion) gets its weight once.

use super::{By, Sort, own};
use crate::intern::{HashMap, Interner, index};
use crate::profile::{CallId, Frame, FunctionId, Mode, Names, OWN_WORK, Profile, Sample};
use crate::recording::{LabelsId, ThreadId};
use std::sync::Arc;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Time in itself, ns.
    pub(crate) own_ns: u64,
    /// Time with what it called, ns.
    pub(crate) total_ns: u64,
    /// What it is.
    pub(crate) name: String,
    /// Where it is from.
    pub(crate) origin: String,
}

/// Names a row while counting.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key<'a> {
    Function(u32),
    Own(own::Pair),
    Line(u32, &'a str, u32),
    Module(Option<u32>, Mode),
    Thread(u32),
    Process(u32),
    Cgroup(&'a str, &'a str),
    Labels(&'a [(Arc<str>, Arc<str>)], bool),
}

/// The rows, in no order.
pub(crate) fn rows(profile: &Profile, by: By, names: Names) -> Vec<Row> {
    weighed(profile, by, names, |sample| profile.time_ns(sample))
}

/// Likewise with each sample as heavy as `weigh` says.
pub(crate) fn weighed(
    profile: &Profile,
    by: By,
    names: Names,
    weigh: impl Fn(&Sample) -> u64,
) -> Vec<Row> {
    let counted = match by {
        By::Function | By::Line | By::Module => {
            count_frames(profile, by, &profile.alike(names), weigh)
        }
        By::Own => count_own(profile, &profile.alike(names), weigh),
        By::Thread | By::Process | By::Cgroup => count_samples(profile, weigh, |sample| {
            key_of_thread(profile, by, sample.thread)
        }),
        By::Label => count_samples(profile, weigh, |sample| {
            let is_known = sample.labels != LabelsId::UNKNOWN;
            Key::Labels(profile.recording.labels.get(sample.labels), is_known)
        }),
    };
    let row = |(key, (own_ns, total_ns))| {
        let (name, origin) = words(profile, key, names);
        Row {
            own_ns,
            total_ns,
            name,
            origin,
        }
    };
    counted.into_iter().map(row).collect()
}

/// Sorts rows; equal ones by name, so that the order never varies.
pub(crate) fn sort(rows: &mut [Row], by: Sort) {
    rows.sort_by(|a, b| {
        let names = || (&a.name, &a.origin).cmp(&(&b.name, &b.origin));
        match by {
            Sort::Own => (b.own_ns, b.total_ns).cmp(&(a.own_ns, a.total_ns)),
            Sort::Total => (b.total_ns, b.own_ns).cmp(&(a.total_ns, a.own_ns)),
            Sort::Name => std::cmp::Ordering::Equal,
        }
        .then_with(names)
    });
}

fn count_frames<'a>(
    profile: &'a Profile,
    by: By,
    alike: &[FunctionId],
    weigh: impl Fn(&Sample) -> u64,
) -> HashMap<Key<'a>, (u64, u64)> {
    let mut own = vec![0_u64; profile.stacks.len()];
    for sample in profile.weighed() {
        let sum = &mut own[sample.stack.index()];
        *sum = sum.saturating_add(weigh(sample));
    }
    let mut total = own.clone();
    // A parent comes before its children.
    for (index, call) in profile.stacks.iter().enumerate().rev() {
        if let Some(parent) = call.parent {
            total[parent.index()] = total[parent.index()].saturating_add(total[index]);
        }
    }
    let (mut keys, mut places) = (Vec::new(), Interner::<KeyId>::default());
    let of_frame = profile.frames.iter();
    let of_frame = of_frame.map(|frame| places.place(&mut keys, key(profile, by, alike, frame)));
    let of_frame: Vec<KeyId> = of_frame.collect();
    let mut counts = vec![(0_u64, 0_u64); keys.len()];
    let mut depths = vec![0_u32; keys.len()];
    let calls = Calls::of(profile);
    calls.visit(|call, step| {
        let key = of_frame[profile.stacks[call.index()].frame.index()].index();
        if step == Step::Leave {
            depths[key] -= 1;
            return;
        }
        counts[key].0 = counts[key].0.saturating_add(own[call.index()]);
        // What it called itself for is in the outermost call.
        if depths[key] == 0 {
            counts[key].1 = counts[key].1.saturating_add(total[call.index()]);
        }
        depths[key] += 1;
    });
    let counted = keys.into_iter().zip(counts);
    counted.filter(|(_, (_, total))| *total > 0).collect()
}

index!(
    /// Of the keys that there are.
    KeyId
);

/// Who calls whom.
struct Calls {
    /// For each stack the first of those that it is the parent of, and for each of these the next.
    first: Vec<Option<CallId>>,
    next: Vec<Option<CallId>>,
    outermost: Vec<CallId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Enter,
    Leave,
}

impl Calls {
    fn of(profile: &Profile) -> Self {
        let count = profile.stacks.len();
        let (mut first, mut next) = (vec![None; count], vec![None; count]);
        let mut outermost = Vec::new();
        for (index, call) in profile.stacks.iter().enumerate() {
            let id = CallId::next_of(index);
            match call.parent {
                Some(parent) => next[index] = first[parent.index()].replace(id),
                None => outermost.push(id),
            }
        }
        Self {
            first,
            next,
            outermost,
        }
    }

    /// Enters each stack, then those that it called, and leaves it.
    fn visit(&self, mut visit: impl FnMut(CallId, Step)) {
        for root in &self.outermost {
            let mut path = vec![*root];
            visit(*root, Step::Enter);
            let mut below = self.first[root.index()];
            while let Some(at) = path.last().copied() {
                if let Some(call) = below {
                    visit(call, Step::Enter);
                    path.push(call);
                    below = self.first[call.index()];
                } else {
                    visit(at, Step::Leave);
                    path.pop();
                    below = self.next[at.index()];
                }
            }
        }
    }
}

fn key<'a>(profile: &'a Profile, by: By, alike: &[FunctionId], frame: &'a Frame) -> Key<'a> {
    let function = profile.function(frame);
    let id = alike[frame.function.index()].number();
    match by {
        // Not the program's, and not missing either.
        By::Module if &*function.name == OWN_WORK => Key::Function(id),
        By::Module => Key::Module(function.image.map(|image| image.number()), function.mode),
        By::Line => match &frame.file {
            Some(file) => Key::Line(id, file, frame.line),
            None => Key::Line(id, "", 0),
        },
        _ => Key::Function(id),
    }
}

fn count_samples<'a>(
    profile: &'a Profile,
    weigh: impl Fn(&Sample) -> u64,
    key: impl Fn(&Sample) -> Key<'a>,
) -> HashMap<Key<'a>, (u64, u64)> {
    let mut counts: HashMap<Key<'_>, (u64, u64)> = HashMap::default();
    for sample in profile.weighed() {
        let time = weigh(sample);
        let (own, total) = counts.entry(key(sample)).or_default();
        *own = own.saturating_add(time);
        *total = total.saturating_add(time);
    }
    counts
}

fn key_of_thread(profile: &Profile, by: By, thread: ThreadId) -> Key<'_> {
    let process = profile.process_of(thread);
    match by {
        By::Thread => Key::Thread(thread.number()),
        By::Cgroup => {
            let (name, path) = profile.recording.processes[process.index()].group();
            Key::Cgroup(name, path)
        }
        _ => Key::Process(process.number()),
    }
}

/// Name and origin of the row that a thread is in.
pub(crate) fn row_of_thread(profile: &Profile, by: By, thread: ThreadId) -> (String, String) {
    words(profile, key_of_thread(profile, by, thread), Names::Short)
}

fn count_own<'a>(
    profile: &'a Profile,
    alike: &[FunctionId],
    weigh: impl Fn(&Sample) -> u64,
) -> HashMap<Key<'a>, (u64, u64)> {
    let shown = |id: u32| alike[id as usize].number();
    let own = own::Own::of(profile);
    let mut of_stack: HashMap<CallId, own::Pair> = HashMap::default();
    let mut counts: HashMap<Key<'_>, (u64, u64)> = HashMap::default();
    for sample in profile.weighed() {
        let pair = of_stack.entry(sample.stack);
        let pair = *pair.or_insert_with(|| {
            let (function, called) = own.find(sample.stack);
            (shown(function), called.map(shown))
        });
        let (own, total) = counts.entry(Key::Own(pair)).or_default();
        *own = own.saturating_add(weigh(sample));
        *total = *own;
    }
    counts
}

fn words(profile: &Profile, key: Key<'_>, names: Names) -> (String, String) {
    let recording = &profile.recording;
    match key {
        Key::Function(id) => {
            let function = &profile.functions[id as usize];
            (function.called(names).to_owned(), profile.origin(function))
        }
        Key::Own((id, called)) => {
            let called = called.map_or_else(String::new, |called| {
                let called = &profile.functions[called as usize];
                let (name, origin) = (called.called(names), profile.origin(called));
                match called.mode {
                    Mode::Note => name.to_owned(),
                    _ => format!("{name} ({origin})"),
                }
            });
            let name = profile.functions[id as usize].called(names);
            (name.to_owned(), called)
        }
        Key::Line(id, file, line) => {
            let function = &profile.functions[id as usize];
            let origin = match (file, line, function.begins) {
                ("", ..) => profile.image_name(function).to_owned(),
                (_, 0, begins) if begins > 0 => format!("{file}, function at {begins}"),
                _ => format!("{file}:{line}"),
            };
            (function.called(names).to_owned(), origin)
        }
        Key::Module(Some(id), _) => {
            let image = &profile.symbols.images[id as usize];
            (image.name().to_owned(), image.path.clone())
        }
        Key::Module(None, Mode::Kernel) => ("[kernel]".to_owned(), String::new()),
        Key::Module(None, Mode::Language(id)) => {
            let name = profile.recording.languages[id.index()].clone();
            (name, "interpreted".to_owned())
        }
        Key::Module(None, Mode::User) => ("[anonymous]".to_owned(), "code of no module".to_owned()),
        Key::Module(None, Mode::Note) => ("-".to_owned(), "missing frames".to_owned()),
        Key::Thread(id) => {
            let thread = &recording.threads[id as usize];
            let process = &recording.processes[thread.process.index()];
            let name = format!("{} ({})", thread.name, thread.tid);
            (name, format!("{} ({})", process.name(), process.pid))
        }
        Key::Cgroup(name, path) => (name.to_owned(), path.to_owned()),
        Key::Labels(_, false) => ("[not known]".to_owned(), String::new()),
        Key::Labels([], true) => ("[no label]".to_owned(), String::new()),
        Key::Labels(labels, true) => {
            let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
            (labels.collect::<Vec<_>>().join(" "), String::new())
        }
        Key::Process(id) => {
            let process = &recording.processes[id as usize];
            let name = format!("{} ({})", process.name(), process.pid);
            (name, process.command.join(" "))
        }
    }
}
