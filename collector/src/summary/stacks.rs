//! How far the stacks reach, and by what they were found.

use super::line;
use crate::correlate::KernelAccount;
use crate::numbers::{duration, plural, share};
use crate::profile::{CallId, Gil, Mode, Names, OWN_WORK, Profile, Sample};
use crate::symbolize::NOT_DESCRIBED;
use engine::wire::code::UNREADABLE;
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::{Method, StopReason, flags};
use engine::wire::source::OFF_CPU;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

/// Complete stacks in per cent of weight, and why the others are not. The profiler's own work has
/// no stack, and is no part of it.
pub(super) fn complete(out: &mut String, profile: &Profile) {
    let own = own_work(profile);
    let is_own = |sample: &Sample| own[sample.stack.index()];
    let weight = |keep: &dyn Fn(&Sample) -> bool| {
        let kept = profile.samples.iter().filter(|sample| keep(sample));
        kept.fold(0u64, |sum, sample| sum.saturating_add(sample.weight))
    };
    let all = weight(&|sample| !is_own(sample));
    let by_tables = |sample: &Sample| !sample.complete && sample.stop == StopReason::Root;
    let reach = weight(&|sample| !is_own(sample) && (sample.complete || by_tables(sample)));
    let mut text = format!(
        "{} of weight reach _start or a thread's entry",
        share(reach, all)
    );
    let by_tables = |sample: &Sample| !is_own(sample) && by_tables(sample);
    let unnamed = weight(&by_tables);
    if is_seen(unnamed, all) {
        let mut places: HashMap<String, u64> = HashMap::new();
        for sample in profile.samples.iter().filter(|sample| by_tables(sample)) {
            let place = places.entry(outermost(profile, sample.stack)).or_default();
            *place = place.saturating_add(sample.weight);
        }
        let _ = write!(
            text,
            "; {} by their unwind tables only, where no entry is known by its name{} (a coroutine's entry, or symbols are missing)",
            share(unnamed, all),
            most(places, unnamed)
        );
    }
    line(out, "complete", &text);
    let mut others: BTreeMap<u8, (StopReason, u64, HashMap<String, u64>)> = BTreeMap::new();
    let is_cut = |sample: &&Sample| !is_own(sample) && !sample.complete && !by_tables(sample);
    for sample in profile.samples.iter().filter(is_cut) {
        let empty = || (sample.stop, 0, HashMap::new());
        let (_, weight, places) = others.entry(sample.stop as u8).or_insert_with(empty);
        *weight = weight.saturating_add(sample.weight);
        let place = places.entry(outermost(profile, sample.stack)).or_default();
        *place = place.saturating_add(sample.weight);
    }
    let mut others: Vec<_> = others.into_values().collect();
    others.sort_by_key(|(_, weight, _)| std::cmp::Reverse(*weight));
    for (stop, weight, places) in others
        .into_iter()
        .filter(|(_, weight, _)| is_seen(*weight, all))
    {
        let top = most(places, weight);
        let text = format!("{} {}{top}", share(weight, all), stop.words());
        line(out, "", &text);
    }
}

/// Of each stack whether it is the profiler's own work.
fn own_work(profile: &Profile) -> Vec<bool> {
    let mut own: Vec<bool> = Vec::with_capacity(profile.stacks.len());
    for call in &profile.stacks {
        own.push(match call.parent {
            Some(parent) => own[parent.index()],
            None => {
                let function = profile.function(&profile.frames[call.frame.index()]);
                function.mode == Mode::Note && *function.name == *OWN_WORK
            }
        });
    }
    own
}

/// Where most of a weight is, and how much of it.
fn most(places: HashMap<String, u64>, weight: u64) -> String {
    let most = places
        .into_iter()
        .max_by_key(|(name, weight)| (*weight, std::cmp::Reverse(name.clone())));
    most.map_or(String::new(), |(name, part)| {
        format!(", {} of them in {name}", share(part, weight))
    })
}

/// What became of the kernel's samples: each is in one class, and the figures add up.
pub(super) fn kernel(out: &mut String, profile: &Profile) {
    let mut account = KernelAccount {
        lost: profile.recording.kernel_account().lost,
        ..KernelAccount::default()
    };
    profile
        .samples
        .iter()
        .for_each(|sample| account.add(sample.kernel));
    let all = account.recorded();
    if all == 0 && account.lost == 0 {
        return;
    }
    let text = format!(
        "{}, {} joined with the user's stack: {account}",
        plural(all, "sample", "samples"),
        share(account.joined(), all)
    );
    line(out, "kernel", &text);
    if account.lost > 0 {
        let samples = plural(account.lost, "sample", "samples");
        let text = format!(
            "{samples} found a perf ring full: their weight is kept, not their kernel stacks"
        );
        line(out, "", &text);
    }
}

/// Who had Python's GIL and who waited for it, where anybody did.
pub(super) fn gil(out: &mut String, profile: &Profile) {
    let weight = |event: u32, is_meant: &dyn Fn(&Sample) -> bool| {
        let samples = profile.all_samples();
        let meant = samples.filter(|sample| sample.event == event && is_meant(sample));
        meant.fold(0u64, |sum, sample| sum.saturating_add(sample.weight))
    };
    let held = weight(CPU_EVENT, &|sample| sample.gil == Gil::Held);
    let awaited = weight(OFF_CPU, &|sample| sample.gil == Gil::Awaited);
    let mut parts = Vec::new();
    if held > 0 {
        let all = weight(CPU_EVENT, &|_| true);
        parts.push(format!("held in {} of weight", share(held, all)));
    }
    if awaited > 0 {
        let awaited = duration(awaited);
        parts.push(format!("waited for in {awaited} off the CPU"));
    }
    if !parts.is_empty() {
        line(out, "GIL", &parts.join(", "));
    }
}

/// Time for which threads were off the CPU although they could have run, ns.
pub(super) fn preempted(profile: &Profile) -> u64 {
    let samples = profile.recording.samples.iter();
    let preempted = samples.filter(|sample| sample.flags & flags::PREEMPTED != 0);
    preempted.fold(0, |sum, sample| sum.saturating_add(sample.value))
}

/// Absences that were over before an interpreter could be asked about them, as the end of a line.
pub(super) fn unread(profile: &Profile) -> String {
    let samples = profile.recording.samples.iter();
    let unread = samples
        .filter(|sample| sample.event == OFF_CPU && sample.flags & flags::LANGUAGES_UNREAD != 0);
    let (mut count, mut sum) = (0, 0u64);
    for sample in unread {
        count += 1;
        sum = sum.saturating_add(sample.value);
    }
    if count == 0 || profile.recording.languages.is_empty() {
        return String::new();
    }
    let languages = profile.recording.languages.join(" and ");
    let (sum, times) = (duration(sum), plural(count, "time", "times"));
    format!(", {sum} of it ({times}) over before the frames of {languages} could be read")
}

/// Whether a part is more than the 0.0 per cent that would be printed.
fn is_seen(part: u64, whole: u64) -> bool {
    part.saturating_mul(2000) >= whole
}

/// The outermost frame that is no note: `symbol (module)`.
fn outermost(profile: &Profile, stack: CallId) -> String {
    let frames = profile.walk(stack);
    let last = frames
        .filter(|frame| profile.function(frame).mode != Mode::Note)
        .last();
    last.map_or_else(
        || "no frame at all".to_owned(),
        |frame| {
            let function = profile.function(frame);
            format!(
                "{} ({})",
                function.called(Names::Short),
                profile.image_name(function)
            )
        },
    )
}

/// How many samples each call is in.
fn samples_through(profile: &Profile) -> Vec<u64> {
    let mut through = vec![0u64; profile.stacks.len()];
    for sample in &profile.samples {
        through[sample.stack.index()] += 1;
    }
    // A parent comes before its children, so from the end each stack has all its samples when it
    // hands them up.
    for index in (0..profile.stacks.len()).rev() {
        if let Some(parent) = profile.stacks[index].parent {
            through[parent.index()] += through[index];
        }
    }
    through
}

/// Frames of languages that have no name, in per cent of the languages' frames of all samples.
pub(super) fn nameless(out: &mut String, profile: &Profile) {
    let (mut all, mut nameless) = (0u64, 0u64);
    for (call, count) in profile.stacks.iter().zip(samples_through(profile)) {
        let function = profile.function(&profile.frames[call.frame.index()]);
        if matches!(function.mode, Mode::Language(_)) {
            all += count;
            let is_nameless = [NOT_DESCRIBED, UNREADABLE].contains(&&*function.name);
            nameless += if is_nameless { count } else { 0 };
        }
    }
    if nameless > 0 {
        let frames = plural(nameless, "frame", "frames");
        let text = format!(
            "{frames} of languages ({} of theirs) without a name, which could not be read at that moment",
            share(nameless, all)
        );
        line(out, "", &text);
    }
}

/// By which method frames were found, in per cent of the frames of all samples.
pub(super) fn methods(out: &mut String, profile: &Profile) {
    let through = samples_through(profile);
    let mut counts: BTreeMap<u8, (Method, u64)> = BTreeMap::new();
    for (call, count) in profile.stacks.iter().zip(through) {
        let frame = &profile.frames[call.frame.index()];
        if let Some(method) = frame.method.filter(|_| !frame.inlined()) {
            counts.entry(method as u8).or_insert((method, 0)).1 += count;
        }
    }
    let mut counts: Vec<_> = counts
        .into_values()
        .filter(|(method, _)| *method != Method::Registers)
        .collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let all = counts.iter().map(|(_, count)| count).sum();
    let words: Vec<_> = counts
        .iter()
        .map(|(method, count)| format!("{} {}", share(*count, all), name(*method)))
        .collect();
    if !words.is_empty() {
        line(out, "callers", &format!("found by {}", words.join(", ")));
    }
}

fn name(method: Method) -> &'static str {
    match method {
        Method::Registers => "registers",
        Method::Sframe => "SFrame",
        Method::EhFrame => "eh_frame",
        Method::FramePointer => "frame pointer",
        Method::SignalFrame => "signal frame",
        Method::Leaf => "return address of a leaf",
        Method::Language => "language",
        Method::StackCopy => "copied stack",
        Method::Told => "a language's word",
    }
}
