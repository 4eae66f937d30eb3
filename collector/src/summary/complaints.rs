//! What a reader of a profile must know: damage, missing symbols, what processes reported of
//! themselves, and why there is nothing.

use crate::charge::{Ledger, Reason};
use crate::numbers::{duration, plural, share};
use crate::profile::Profile;
use crate::visible::Shown;
use engine::wire::event::{ACCOUNT, EventKind};
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::flags;
use engine::wire::source::OFF_CPU;
use std::collections::BTreeMap;

/// More damages than this of one file are only counted.
const SHOWN: usize = 5;

/// One sentence each.
pub(crate) fn complaints(profile: &Profile) -> Vec<String> {
    let mut out = wrong(profile);
    out.extend(noted(profile));
    out
}

/// What is wrong.
pub(super) fn wrong(profile: &Profile) -> Vec<String> {
    let mut out = Vec::new();
    damages(profile, &mut out);
    out.extend(said_by_processes(profile, EventKind::Disarmed));
    languages(profile, &mut out);
    out.extend(profile.symbols.notes.iter().cloned());
    out
}

/// What processes noted of themselves.
pub(super) fn noted(profile: &Profile) -> Vec<String> {
    said_by_processes(profile, EventKind::Note)
}

fn damages(profile: &Profile, out: &mut Vec<String>) {
    for file in &profile.recording.files {
        let name = file.path.shown();
        let listed = file.damages.listed.iter().take(SHOWN);
        out.extend(listed.map(|damage| format!("{name}: damaged at {damage}")));
        let more = file.damages.count().saturating_sub(SHOWN as u64);
        if more > 0 {
            let places = plural(more, "place", "places");
            out.push(format!(
                "{name}: damaged at {more_places} more",
                more_places = places
            ));
        }
    }
    if profile.recording.damage_count() > 0 {
        let threads = &profile.recording.threads;
        let mut read = vec![0u64; threads.len()];
        for sample in &profile.recording.samples {
            read[sample.thread.index()] += 1;
        }
        let written = threads.iter().map(|thread| thread.totals.samples);
        let missing = written
            .zip(read)
            .map(|(written, read)| written.saturating_sub(read));
        let missing = missing.fold(0, u64::saturating_add);
        if missing > 0 {
            let samples = plural(missing, "sample", "samples");
            out.push(format!(
                "{samples} that had been written could not be read; all that is intact is shown"
            ));
        }
    }
    let bytes = profile.recording.damaged_bytes;
    if bytes > 0 {
        let bytes = plural(bytes, "byte", "bytes");
        out.push(format!(
            "{bytes} of the processes' own memory were damaged and left out"
        ));
    }
}

fn said_by_processes(profile: &Profile, kind: EventKind) -> Vec<String> {
    let mut said: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for process in &profile.recording.processes {
        for event in process.events.iter().filter(|event| event.kind == kind) {
            let text = match event.kind {
                EventKind::Disarmed => format!("stopped profiling itself: {}", event.text),
                EventKind::Note if event.value != ACCOUNT => event.text.clone(),
                _ => continue,
            };
            let who = format!("{} ({})", process.name(), process.pid);
            said.entry(text).or_insert((0, who)).0 += 1;
        }
    }
    let sentences = said.into_iter().map(|(text, (count, who))| {
        let others = match count {
            1 => String::new(),
            count => format!(" (and {} like it)", plural(count - 1, "other", "others")),
        };
        format!("{who}{others}: {text}")
    });
    sentences.collect()
}

/// Samples in which a language's unwinder was contained.
fn languages(profile: &Profile, out: &mut Vec<String>) {
    let samples = profile.recording.samples.iter();
    let troubled = samples.filter(|sample| sample.flags & flags::LANGUAGE_TROUBLE != 0);
    let count = troubled.count() as u64;
    if count > 0 {
        let samples = plural(count, "sample", "samples");
        out.push(format!(
            "{samples} may lack frames of an interpreter's language: its unwinder read what cannot be read, did not advance, took too \
             long, or missed its frames"
        ));
    }
    out.extend(copied(profile));
}

/// CPU time in copied stacks of programs that have an interpreter, if it is as much as that.
fn copied(profile: &Profile) -> Option<String> {
    const LEAST_PART: u64 = 100;
    let (mut all_ns, mut copied_ns) = (0u64, 0u64);
    for sample in &profile.recording.samples {
        if sample.event == CPU_EVENT {
            let ns = profile
                .period_ns(sample.thread)
                .saturating_mul(sample.weight);
            all_ns = all_ns.saturating_add(ns);
            if sample.flags & flags::LANGUAGES_UNREAD != 0 {
                copied_ns = copied_ns.saturating_add(ns);
            }
        }
    }
    (copied_ns > 0 && copied_ns.saturating_mul(LEAST_PART) >= all_ns).then(|| {
        format!(
            "{} of CPU time ({}) in stacks that the kernel copied have no functions of Python or JavaScript: of time in the kernel, or of what was not recorded from inside",
            duration(copied_ns),
            share(copied_ns, all_ns)
        )
    })
}

/// Why there are no samples.
pub(crate) fn why_empty(profile: &Profile) -> String {
    let recording = &profile.recording;
    if recording.processes.is_empty() {
        return "No process was profiled: the program may be statically linked or setuid, which no LD_PRELOAD reaches, or it ended \
                before its start-up was done."
            .to_owned();
    }
    let mut samples = recording.samples.iter();
    if samples.any(|sample| sample.event == CPU_EVENT) {
        return "No samples of the processes and threads that were asked for.".to_owned();
    }
    let ledger = Ledger::of(recording);
    let unsampled = ledger.of_reason(Reason::NotSampled);
    if unsampled > ledger.total_ns() / 2 {
        return format!(
            "No samples: {} of CPU time was of programs that have none (rsunwind record -v says of \
             which, and why).",
            duration(unsampled)
        );
    }
    let cpu = recording.threads.iter().map(|thread| thread.cpu_ns());
    let used = match cpu.max().unwrap_or(0) {
        0 => "no thread was seen to use CPU time".to_owned(),
        cpu => format!("the busiest thread used {} of CPU time", duration(cpu)),
    };
    let times = profile.other_events();
    let waits = match times.contains(&OFF_CPU) {
        true => "What was spent waiting is in --event off-cpu",
        false => "Time that is spent waiting is not sampled (record --off-cpu does)",
    };
    format!("No samples: {used}. {waits}; a higher rate (-F) gives samples of short programs.")
}
