//! How well a recording went: samples, what else became of the CPU time that the kernel charged,
//! what was lost, how many stacks are complete and why the others are not, which triggers were
//! granted, what it cost. Printed at the end of a recording, in three lines or with `-v` as a
//! whole, and by `rsunwind report --summary`.
//!
//! Start at [`print()`]. A stack is complete if its outermost frame is by its *name* where threads
//! begin ([`crate::profile::is_root`]), or if its unwind tables say that nothing called it; where
//! only they do, that is said.

mod brief;
mod cgroups;
mod charged;
mod complaints;
mod cost;
mod fitted;
mod hints;
mod stacks;
#[cfg(test)]
mod tests;
mod threads;

use crate::visible::{say, show};
pub(crate) use complaints::{complaints, why_empty};
pub(crate) use fitted::fitted;
use fitted::width_of_stderr;

use crate::charge::{Ledger, Reason};
use crate::numbers::{duration, plural};
use crate::profile::Profile;
use engine::wire::event::{ACCOUNT, EventKind};
use engine::wire::source::{OFF_CPU, WALL};
use std::fmt::Write as _;

/// Prints the summary in three lines on standard error, the first of which begins with what is
/// given, and ends with how to see more; `recording` is where it is, if it stays.
pub fn print_brief(profile: &Profile, begin: &str, recording: Option<&str>) {
    let more = |option: &str| recording.map(|name| format!("rsunwind report {option}{name}"));
    let shows = more("").map_or_else(String::new, |more| format!("; {more} shows it"));
    say(format_args!("{begin}, {}{shows}", brief::what(profile)));
    say(brief::most(profile));
    if let Some(rate) = threads::rate_said(profile) {
        say(rate);
    }
    let problems = brief::problems(profile);
    let Some(first) = problems.first() else {
        // Without samples, the line before says why there are none.
        if !profile.samples.is_empty() {
            say("nothing is missing");
        }
        return;
    };
    let others = match problems.len() - 1 {
        0 => String::new(),
        others => {
            let how = more("--summary ").unwrap_or_else(|| "rsunwind record -v".to_owned());
            format!(" (and {others} more: {how})")
        }
    };
    say(format_args!("{first}{others}"));
}

/// Prints the whole summary of a recording on standard error, with what could not be read or named.
pub fn print(profile: &Profile) {
    show(&fitted(&text(profile), width_of_stderr()));
    for line in complaints(profile) {
        say(format_args!("{line}"));
    }
}

/// The summary, a fact a line.
#[must_use]
pub fn text(profile: &Profile) -> String {
    let mut out = String::new();
    let accounts = threads::accounts(profile);
    let ledger = Ledger::of(&profile.recording);
    samples(&mut out, profile, &accounts, &ledger);
    if profile.samples.is_empty() {
        let _ = writeln!(out, "{}", why_empty(profile));
    } else {
        stacks::complete(&mut out, profile);
        hints::lines(&mut out, profile);
        stacks::methods(&mut out, profile);
        stacks::nameless(&mut out, profile);
        stacks::kernel(&mut out, profile);
        stacks::gil(&mut out, profile);
    }
    events(&mut out, profile);
    copies(&mut out, profile);
    threads::rate(&mut out, profile, &accounts);
    threads::triggers(&mut out, profile);
    cgroups::shares(&mut out, profile);
    charged::rows(&mut out, &profile.recording, &ledger);
    threads::worst(&mut out, profile, &accounts);
    cost::cost(&mut out, profile, &accounts, &ledger);
    out
}

/// A line of the summary: its subject in a column of its own.
fn line(out: &mut String, subject: &str, text: &str) {
    let _ = writeln!(out, "{subject:>10}  {text}");
}

fn samples(out: &mut String, profile: &Profile, accounts: &[threads::Account], ledger: &Ledger) {
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
    let chunkless = (recording.chunkless_samples, recording.chunkless_weight);
    let mut text = match lost.0.saturating_add(chunkless.0) {
        0 => match ledger.of_reason(Reason::NotSampled) {
            unsampled if unsampled.saturating_mul(100) < ledger.total_ns() => "none".to_owned(),
            unsampled => format!(
                "no sample; but {} of CPU time was not sampled at all",
                duration(unsampled)
            ),
        },
        samples => format!(
            "{samples} with weight {}",
            lost.1.saturating_add(chunkless.1)
        ),
    };
    if chunkless.0 > 0 {
        let _ = write!(text, "; {} found no room: raise --size", chunkless.0);
    } else if lost.0 > 0 {
        text.push_str(": lower the rate (-F) or raise --size");
    }
    line(out, "lost", &text);
}

/// What was copied of stacks from outside, where that went well; where it did not, it is a
/// complaint.
fn copies(out: &mut String, profile: &Profile) {
    for process in &profile.recording.processes {
        let events = process.events.iter();
        let notes = events.filter(|it| it.kind == EventKind::Note && it.value == ACCOUNT);
        for note in notes {
            line(out, "copied", &note.text);
        }
    }
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
            text.push_str(&stacks::unread(profile));
        }
        if alone > 0 {
            let _ = write!(text, ", {alone} of them without a user stack");
        }
        let sources = profile.recording.sources.iter();
        let sources = sources.filter(|source| source.event == event);
        let (lost, rest) = sources.fold((0u64, 0u64), |(lost, rest), source| {
            let lost = lost.saturating_add(source.lost);
            (lost, rest.saturating_add(source.rest))
        });
        if lost > 0 {
            let lost = plural(lost, "more sample", "more samples");
            let _ = write!(
                text,
                "; {lost} found a perf ring full: what they stand for is with the samples behind them"
            );
        }
        // A fiftieth is what weights may be off by.
        if rest > counted / 50 {
            let rest = profile.amount_of(event, rest);
            let _ = write!(
                text,
                "; {rest} more behind the last samples of threads, in none"
            );
        }
        line(out, "event", &text);
    }
}
