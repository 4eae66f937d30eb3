//! Counts self and total time per function, line, binary, thread or process.
//!
//! Weights are summed per distinct stack first; then each stack is gone through once. What occurs in a stack several times (recursion)
//! gets its weight once.

use super::{By, Sort};
use crate::profile::{CallId, Frame, Mode, Profile};
use std::collections::HashMap;

/// One row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Time in itself, ns.
    pub(super) own_ns: u64,
    /// Time with what it called, ns.
    pub(super) total_ns: u64,
    /// What it is.
    pub(super) name: String,
    /// Where it is from.
    pub(super) origin: String,
}

/// Names a row while counting.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key<'a> {
    Function(u32),
    Line(u32, &'a str, u32),
    Module(Option<u32>, Mode),
    Thread(u32),
    Process(u32),
}

/// Time of all samples, ns.
pub(super) fn whole(profile: &Profile) -> u64 {
    let times = profile.samples.iter().map(|sample| profile.time_ns(sample));
    times.fold(0, u64::saturating_add)
}

/// The rows, in no order.
pub(super) fn rows(profile: &Profile, by: By) -> Vec<Row> {
    let counted = match by {
        By::Function | By::Line | By::Module => count_frames(profile, by),
        By::Thread | By::Process => count_threads(profile, by),
    };
    let row = |(key, (own_ns, total_ns))| {
        let (name, origin) = words(profile, key);
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
pub(super) fn sort(rows: &mut [Row], by: Sort) {
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

fn count_frames(profile: &Profile, by: By) -> HashMap<Key<'_>, (u64, u64)> {
    let mut stacks: HashMap<CallId, u64> = HashMap::new();
    for sample in &profile.samples {
        let sum = stacks.entry(sample.stack).or_default();
        *sum = sum.saturating_add(profile.time_ns(sample));
    }
    let mut counts: HashMap<Key<'_>, (u64, u64)> = HashMap::new();
    let mut seen = Vec::new();
    for (stack, time) in stacks {
        seen.clear();
        for (depth, frame) in profile.walk(stack).enumerate() {
            let key = key(profile, by, frame);
            if depth == 0 {
                let own = &mut counts.entry(key).or_default().0;
                *own = own.saturating_add(time);
            }
            seen.push(key);
        }
        for key in without_repetition(&mut seen) {
            let total = &mut counts.entry(*key).or_default().1;
            *total = total.saturating_add(time);
        }
    }
    counts
}

/// Each key once. Most stacks are shallow; deep ones are sorted out by a set.
fn without_repetition<'a, 'k>(keys: &'a mut Vec<Key<'k>>) -> &'a [Key<'k>] {
    let mut set = std::collections::HashSet::with_capacity(keys.len());
    keys.retain(|key| set.insert(*key));
    keys
}

fn key<'a>(profile: &'a Profile, by: By, frame: &'a Frame) -> Key<'a> {
    let function = profile.function(frame);
    match by {
        By::Module => Key::Module(function.image.map(|image| image.0), function.mode),
        By::Line => match &frame.file {
            Some(file) => Key::Line(frame.function.0, file, frame.line),
            None => Key::Line(frame.function.0, "", 0),
        },
        _ => Key::Function(frame.function.0),
    }
}

fn count_threads(profile: &Profile, by: By) -> HashMap<Key<'_>, (u64, u64)> {
    let mut counts: HashMap<Key<'_>, (u64, u64)> = HashMap::new();
    for sample in &profile.samples {
        let key = match by {
            By::Thread => Key::Thread(sample.thread.0),
            _ => Key::Process(profile.process_of(sample.thread).0),
        };
        let time = profile.time_ns(sample);
        let (own, total) = counts.entry(key).or_default();
        *own = own.saturating_add(time);
        *total = total.saturating_add(time);
    }
    counts
}

fn words(profile: &Profile, key: Key<'_>) -> (String, String) {
    let recording = &profile.recording;
    match key {
        Key::Function(id) => {
            let function = &profile.functions[id as usize];
            let origin = profile.image_name(function).to_owned();
            (function.name.to_string(), origin)
        }
        Key::Line(id, file, line) => {
            let function = &profile.functions[id as usize];
            let origin = if file.is_empty() {
                profile.image_name(function).to_owned()
            } else {
                format!("{file}:{line}")
            };
            (function.name.to_string(), origin)
        }
        Key::Module(Some(id), _) => {
            let image = &profile.symbols.images[id as usize];
            (image.name().to_owned(), image.path.clone())
        }
        Key::Module(None, Mode::Kernel) => ("[kernel]".to_owned(), String::new()),
        Key::Module(None, Mode::User) => ("[anonymous]".to_owned(), "code of no module".to_owned()),
        Key::Module(None, Mode::Note) => ("-".to_owned(), "missing frames".to_owned()),
        Key::Thread(id) => {
            let thread = &recording.threads[id as usize];
            let process = &recording.processes[thread.process.index()];
            let name = format!("{} ({})", thread.name, thread.tid);
            (name, format!("{} ({})", process.name(), process.pid))
        }
        Key::Process(id) => {
            let process = &recording.processes[id as usize];
            let name = format!("{} ({})", process.name(), process.pid);
            (name, process.command.join(" "))
        }
    }
}
