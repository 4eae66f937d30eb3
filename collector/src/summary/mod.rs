//! How well a recording went: samples, weight against CPU time, what was lost, how many stacks are complete and why the others are not,
//! which triggers were granted, what it cost. Printed at the end of a recording and by `rsunwind report --summary`.
//!
//! Start at [`print`]. A stack is complete if its outermost frame is by its *name* where threads begin ([`crate::profile::is_root`]);
//! what the walk itself believed (its StopReason) is shown where it disagrees.

mod complaints;
mod stacks;
#[cfg(test)]
mod tests;
mod threads;

pub(crate) use complaints::{complaints, why_empty};

use crate::profile::Profile;
use crate::report::duration;
use engine::wire::source::{OFF_CPU, WALL};
use std::fmt::Write as _;

/// Prints the summary of a recording on standard error, with what could not be read or named.
pub fn print(profile: &Profile) {
    eprint!("{}", text(profile));
    for line in complaints(profile) {
        eprintln!("rsunwind: {line}");
    }
}

/// The summary, a fact a line.
#[must_use]
pub fn text(profile: &Profile) -> String {
    let mut out = String::new();
    let accounts = threads::accounts(profile);
    samples(&mut out, profile, &accounts);
    if profile.samples.is_empty() {
        let _ = writeln!(out, "{}", why_empty(profile));
    } else {
        stacks::complete(&mut out, profile);
        stacks::methods(&mut out, profile);
        stacks::kernel(&mut out, profile);
    }
    events(&mut out, profile);
    threads::triggers(&mut out, profile);
    threads::coverage(&mut out, profile, &accounts);
    threads::cost(&mut out, profile, &accounts);
    out
}

/// A line of the summary: its subject in a column of its own.
fn line(out: &mut String, subject: &str, text: &str) {
    let _ = writeln!(out, "{subject:>10}  {text}");
}

fn samples(out: &mut String, profile: &Profile, accounts: &[threads::Account]) {
    let recording = &profile.recording;
    let weight = profile
        .samples
        .iter()
        .fold(0, |sum: u64, sample| sum.saturating_add(sample.weight));
    let time = accounts.iter().fold(0, |sum: u64, account| {
        sum.saturating_add(account.sampled_ns)
    });
    let text = format!(
        "{} with weight {weight}: {} of CPU time, {}, {}",
        plural(profile.samples.len() as u64, "sample", "samples"),
        duration(time),
        plural(recording.processes.len() as u64, "process", "processes"),
        plural(recording.threads.len() as u64, "thread", "threads"),
    );
    line(out, "samples", &text);
    let lost = accounts
        .iter()
        .fold((0u64, 0u64), |(samples, weight), account| {
            (
                samples.saturating_add(account.lost_samples),
                weight.saturating_add(account.lost_weight),
            )
        });
    let homeless = (recording.homeless_samples, recording.homeless_weight);
    let mut text = match lost.0.saturating_add(homeless.0) {
        0 => "none".to_owned(),
        samples => format!(
            "{samples} with weight {}",
            lost.1.saturating_add(homeless.1)
        ),
    };
    if homeless.0 > 0 {
        let _ = write!(text, "; {} found no room: raise --size", homeless.0);
    } else if lost.0 > 0 {
        text.push_str(": lower the rate (-F) or raise --size");
    }
    line(out, "lost", &text);
}

/// A line for each event beside CPU time.
fn events(out: &mut String, profile: &Profile) {
    let events = profile.other_events().into_iter();
    for event in events.filter(|event| *event != WALL) {
        let samples = || profile.all_samples().filter(|sample| sample.event == event);
        let counted = samples().fold(0, |sum: u64, sample| sum.saturating_add(sample.weight));
        let count = samples().count() as u64;
        let alone = samples().filter(|sample| sample.kernel.is_alone()).count();
        let mut text = format!(
            "{}: {} in {}",
            profile.event_name(event),
            profile.amount_of(event, counted),
            plural(count, "sample", "samples")
        );
        if event == OFF_CPU {
            let preempted = stacks::preempted(profile);
            let _ = write!(text, ", {} of it preempted", duration(preempted));
        }
        if alone > 0 {
            let _ = write!(text, ", {alone} of them without a user stack");
        }
        let sources = profile.recording.sources.iter();
        let lost = sources.filter(|source| source.event == event);
        let lost: u64 = lost.map(|source| source.lost).sum();
        if lost > 0 {
            let lost = plural(lost, "more sample", "more samples");
            let _ = write!(
                text,
                "; {lost} found a perf ring full: not in these figures"
            );
        }
        line(out, "event", &text);
    }
}

pub(crate) fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 {
        format!("1 {one}")
    } else {
        format!("{count} {many}")
    }
}
