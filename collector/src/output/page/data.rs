//! What is in the page: a head in JSON, and columns of numbers behind it.
//!
//! ```text
//! u32    length of the head, little-endian
//! head   JSON: what there is, names of functions, threads (`head`)
//! nodes  how much less deep than the one before each is, less one; then the function of each
//! samples, by thread and time: µs since the one before (the first of a thread: since the start),
//!        what it is (an index of the head's events), node, amount (ns, or what the event counts);
//!        where anything is labelled its set of labels (an index of the head's labels)
//! ```
//!
//! Columns are numbers in LEB128, one column after the other.

use super::tree::Tree;
use crate::intern::HashMap;
use crate::output::{Options, command, started_at, thread_name};
use crate::profile::{Kinds, Profile, Sample, is_time};
use crate::recording::{LabelsId, ThreadId};
use crate::summary;
use engine::wire::offer::CPU_EVENT;
use engine::wire::source::{OFF_CPU, WALL};
use serde_json::{Value, json};
use std::io;

/// The events of which the page knows more than a name, by their place in the head.
const CPU: u32 = 0;
/// CPU time that is in no sample, which has no place on the timeline.
const UNSAMPLED: u32 = 1;
const OFF: u32 = 2;
/// Others follow.
const OTHERS: u32 = 3;

/// The most that a number of JavaScript holds exactly.
const MOST: u64 = (1 << 53) - 1;

/// The data of a page.
pub(super) fn encode(profile: &Profile, options: &Options) -> io::Result<Vec<u8>> {
    let others: Vec<u32> = profile
        .other_events()
        .into_iter()
        .filter(|event| !matches!(*event, OFF_CPU | WALL))
        .collect();
    let remainders = profile.remainders.iter().map(|one| (one, UNSAMPLED));
    let samples = profile.all_samples().map(|sample| {
        let place = |event| others.iter().zip(OTHERS..).find(|(one, _)| **one == event);
        let what = match sample.event {
            CPU_EVENT => CPU,
            OFF_CPU => OFF,
            event => place(event).map_or(OTHERS, |(_, place)| place),
        };
        (sample, what)
    });
    let mut samples: Vec<(&Sample, u32)> = samples.chain(remainders).collect();
    samples.sort_by_key(|(sample, _)| (sample.thread, sample.time_ns));
    let tree = Tree::of(profile, samples.iter().map(|(sample, _)| *sample));
    let head = head(profile, options, &tree, &samples, &others);
    let head = serde_json::to_vec(&head)?;
    let mut out = Vec::new();
    let length = u32::try_from(head.len()).map_err(io::Error::other)?;
    out.extend(length.to_le_bytes());
    out.extend(head);
    columns(profile, &tree, &samples, &mut out);
    Ok(out)
}

fn columns(profile: &Profile, tree: &Tree, samples: &[(&Sample, u32)], out: &mut Vec<u8>) {
    let mut before = 0;
    for (depth, _) in &tree.nodes {
        number(out, (before - *depth).into());
        before = *depth + 1;
    }
    for (_, function) in &tree.nodes {
        number(out, function.number().into());
    }
    let start = profile.start_ns();
    let (mut thread, mut before) = (None, 0);
    for (sample, _) in samples {
        if thread.replace(sample.thread) != Some(sample.thread) {
            before = 0;
        }
        let time = sample.time_ns.saturating_sub(start) / 1000;
        number(out, time.saturating_sub(before));
        before = time;
    }
    for (_, what) in samples {
        number(out, (*what).into());
    }
    for (sample, _) in samples {
        number(out, tree.end(sample.stack).into());
    }
    for (sample, _) in samples {
        number(out, profile.time_ns(sample).min(MOST));
    }
    if profile.recording.labels.any() {
        for (sample, _) in samples {
            number(out, sample.labels.number().into());
        }
    }
}

fn number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn head(
    profile: &Profile,
    options: &Options,
    tree: &Tree,
    samples: &[(&Sample, u32)],
    others: &[u32],
) -> Value {
    let session = profile.recording.session.as_ref();
    let events = [
        (CPU_EVENT, "CPU time"),
        (CPU_EVENT, ""),
        (OFF_CPU, "time off the CPU"),
    ];
    let events = events.map(|(event, name)| (event, name.to_owned()));
    let others = others
        .iter()
        .map(|event| (*event, profile.event_name(*event)));
    let events = events.into_iter().chain(others);
    let events = events.map(|(event, name)| json!({"name": name, "time": is_time(event)}));
    json!({
        "command": command(profile),
        "host": session.map_or("", |session| &session.host),
        "kernel": session.map_or("", |session| &session.kernel),
        "started_ms": started_at(profile) / 1_000_000,
        "events": events.collect::<Vec<_>>(),
        "shown": match profile.shown_event {
            CPU_EVENT => json!("cpu"),
            OFF_CPU => json!("off-cpu"),
            WALL => json!("wall"),
            event => json!(profile.event_name(event)),
        },
        "nodes": tree.nodes.len(),
        "functions": functions(profile, options),
        "labels": labels(profile),
        "languages": profile.recording.languages,
        "processes": processes(profile),
        "threads": threads(profile, samples),
        "notes": summary::complaints(profile),
    })
}

/// By column; the texts are in one list, each once.
fn functions(profile: &Profile, options: &Options) -> Value {
    let origins = profile.functions.iter().map(|one| profile.origin(one));
    let origins: Vec<String> = origins.collect();
    let mut texts: Vec<&str> = vec![""];
    let mut places: HashMap<&str, usize> = HashMap::default();
    let mut text = |text| {
        *places.entry(text).or_insert_with(|| {
            texts.push(text);
            texts.len() - 1
        })
    };
    let kinds = Kinds::of(profile);
    let (mut names, mut wholes) = (Vec::new(), Vec::new());
    let (mut images, mut of_kinds) = (Vec::new(), Vec::new());
    for (function, origin) in profile.functions.iter().zip(&origins) {
        let called = function.called(options.names);
        names.push(text(called));
        let is_whole = *called == *function.name;
        wholes.push(if is_whole { 0 } else { text(&function.name) });
        images.push(text(origin));
        of_kinds.push(kinds.kind(function).number());
    }
    json!({"texts": texts, "name": names, "whole": wholes, "image": images, "kind": of_kinds})
}

/// The labels of each set; none at all if nothing is labelled.
fn labels(profile: &Profile) -> Value {
    let labels = &profile.recording.labels;
    let sets = (0..).map(LabelsId::new).zip(labels.iter());
    let texts = sets.filter(|_| labels.any()).map(|(id, set)| match id {
        LabelsId::UNKNOWN => json!(["[not known]"]),
        _ => set
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect(),
    });
    texts.collect()
}

fn processes(profile: &Profile) -> Value {
    let processes = profile.recording.processes.iter();
    let processes = processes.map(|one| json!({"name": one.name(), "pid": one.pid}));
    processes.collect()
}

/// Those that have samples, in the order of these.
fn threads(profile: &Profile, samples: &[(&Sample, u32)]) -> Value {
    let threads = samples.chunk_by(|(a, _), (b, _)| a.thread == b.thread);
    let thread = |id: ThreadId, samples: usize| {
        let thread = &profile.recording.threads[id.index()];
        let (process, tid, name) = (
            thread.process.number(),
            thread.tid,
            thread_name(profile, id),
        );
        json!({"process": process, "tid": tid, "name": name, "samples": samples})
    };
    threads
        .filter_map(|all| Some(thread(all.first()?.0.thread, all.len())))
        .collect()
}
