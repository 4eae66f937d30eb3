//! What the profiler took of the CPU, in three lines:
//!
//! - what clocks of ours show in the programs: the handler with the kernel's delivery of its
//!   signals, functions that stand in front of libc's, the preparation of programs, and the arming
//!   of threads and its end;
//! - what the kernel's events cost where the programs cannot see it, and loading the library and
//!   its end, which is in nobody's clock alone. So it is an estimate: what a sample, a context
//!   switch, a thread's beginning and end, and a program's cost more on this machine when recording
//!   ended, as often as there was one;
//! - the collector's own CPU time, which the programs are not charged with.
//!
//! `tests/costs` compares the sum with what is measured.

use super::line;
use super::threads::Account;
use crate::charge::{Ledger, Reason};
use crate::numbers::{duration, plural};
use crate::profile::Profile;
use crate::recording::{Arming, Process, SessionInfo, Thread};
use engine::wire::process::Origin;

/// The line, and what it is made of.
pub(super) fn cost(out: &mut String, profile: &Profile, accounts: &[Account], ledger: &Ledger) {
    let sum = |value: fn(&Account) -> u64| {
        let all = accounts.iter().map(value);
        all.fold(0, u64::saturating_add)
    };
    let prepared = ledger
        .by_reason()
        .filter(|(reason, _)| *reason == Reason::SetUp);
    let prepared = prepared.fold(0, |sum: u64, (_, ns)| sum.saturating_add(ns));
    let handler = sum(|account| account.handler_ns);
    let (signals, events) = counts(&profile.recording.threads);
    let session = profile.recording.session.as_ref();
    let signal_ns = session.map_or(0, |session| session.signal_ns);
    // As seen in the programs; recordings of before that was looked at have a price alone.
    let delivery = match sum(|account| account.delivery_ns) {
        0 => signals.saturating_mul(signal_ns),
        seen => seen,
    };
    let parts = [
        (handler, "in the handler"),
        (delivery, "delivering its signals"),
        (profile.own_calls_ns, "in front of libc"),
        (prepared, "preparing programs"),
        (sum(|account| account.arming_ns), "arming threads"),
    ];
    let all = parts
        .iter()
        .fold(0, |sum: u64, (ns, _)| sum.saturating_add(*ns));
    if all == 0 {
        return;
    }
    let mut text = duration(all);
    // What was charged, if that is known: short programs are prepared for longer than they are
    // armed.
    let cpu = sum(|account| account.armed_ns.unwrap_or(0)).max(ledger.total_ns());
    if cpu > 0 {
        text += &format!(", {:.2} % of CPU time", 100.0 * all as f64 / cpu as f64);
    }
    let samples = profile.samples.len() as u64;
    let shown = parts.iter().filter(|(ns, _)| *ns > 0);
    let shown = shown.map(|(ns, what)| match handler.checked_div(samples) {
        Some(each) if *what == parts[0].1 => {
            format!("{} {what} ({} a sample)", duration(*ns), duration(each))
        }
        _ => format!("{} {what}", duration(*ns)),
    });
    text += ": ";
    text += &shown.collect::<Vec<_>>().join(", ");
    line(out, "cost", &text);
    let Some(session) = session else {
        return;
    };
    let programs = loads(&profile.recording.processes);
    let estimate = of_kernel(session, events, &profile.recording.threads);
    let of_events = estimate.as_ref().map_or(0, |(ns, _)| *ns);
    if let (Some((ns, text)), true) = (and_loading(estimate, session, programs), cpu > 0) {
        let share = 100.0 * ns as f64 / cpu as f64;
        let text = format!(
            "besides, some {}, {share:.2} % of CPU time: {text}",
            duration(ns)
        );
        line(out, "", &text);
    }
    if session.collector_ns > 0 {
        let own = duration(session.collector_ns);
        line(
            out,
            "",
            &format!("besides, {own}: rsunwind itself, which recorded it"),
        );
    }
    if of_events > 0 && is_dear(of_events.saturating_add(delivery), cpu) {
        line(out, "", CHEAPER);
    }
}

/// What is said where it is.
const CHEAPER: &str = "events and their signals are dear on this machine: a lower rate (-F) takes less of them, \
    and --trigger timer none of the events, without kernel stacks";

/// Whether what the kernel does for samples is worth a word: a twentieth of a program's CPU time,
/// where that is long enough for somebody to care.
fn is_dear(kernel_ns: u64, cpu_ns: u64) -> bool {
    const LONG_NS: u64 = 1_000_000_000;
    cpu_ns >= LONG_NS && kernel_ns >= cpu_ns / 20
}

/// What the kernel took for that many events, and what it is made of; `None` where there were none,
/// or nothing is known of them.
fn of_kernel(session: &SessionInfo, events: u64, threads: &[Thread]) -> Option<(u64, String)> {
    if events == 0 {
        return None;
    }
    let parts = [
        (events, "sample", "samples", session.event_ns),
        (
            part(session.switches, switched_with_event(threads)),
            "context switch",
            "context switches",
            session.switch_ns,
        ),
        (threads.len() as u64, "thread", "threads", session.thread_ns),
    ];
    let parts = parts
        .iter()
        .filter(|(count, _, _, ns)| *count > 0 && *ns > 0);
    let text = parts.clone().map(|(count, one, many, ns)| {
        format!("{} at {}", plural(*count, one, many), duration(*ns))
    });
    let text = text.collect::<Vec<_>>().join(", ");
    let all = parts.fold(0, |sum: u64, (count, _, _, ns)| {
        sum.saturating_add(count.saturating_mul(*ns))
    });
    (all > 0).then(|| (all, format!("the kernel's perf events ({text})")))
}

/// With what the library took where no clock of its own runs, in that many programs.
fn and_loading(
    estimate: Option<(u64, String)>,
    session: &SessionInfo,
    programs: u64,
) -> Option<(u64, String)> {
    let all = programs.saturating_mul(session.load_ns);
    if all == 0 {
        return estimate;
    }
    let text = format!(
        "loading the library and its end ({} at {})",
        plural(programs, "program", "programs"),
        duration(session.load_ns)
    );
    Some(match estimate {
        Some((ns, events)) => (ns.saturating_add(all), format!("{events}, {text}")),
        None => (all, text),
    })
}

/// How many programs loaded the library: those that said what their clock showed when it began.
fn loads(processes: &[Process]) -> u64 {
    let began = |process: &&Process| process.origin == Origin::Exec && process.cpu_ns > 0;
    processes.iter().filter(began).count() as u64
}

/// Samples of threads with events, and events. Those of other threads are not among them, nor, as
/// the time it had it for has it, those of a thread while it had a timer instead.
fn counts(threads: &[Thread]) -> (u64, u64) {
    threads.iter().fold((0, 0), |(signals, events), thread| {
        let totals = &thread.totals;
        let share = with_event(thread);
        let periods = totals.weight.saturating_add(totals.lost_weight);
        let pace = thread.armings.last().map_or(1, |arming| arming.periods);
        let samples = totals.samples.saturating_add(totals.lost_samples);
        (
            part(samples, share).saturating_add(signals),
            part(periods / pace.max(1), share).saturating_add(events),
        )
    })
}

/// For which part of the time since it was armed a thread had an event, 0 to 1.
fn with_event(thread: &Thread) -> f64 {
    let Some(last) = thread.armings.last() else {
        return 0.0;
    };
    let is_same = |arming: &Arming| arming.has_event() == last.has_event();
    if thread.armings.iter().all(is_same) {
        return f64::from(u8::from(last.has_event()));
    }
    let end_ns = thread.end.map_or(last.time_ns, |end| end.time_ns);
    let begins = thread.armings.iter().map(|arming| arming.time_ns);
    let ends = begins.skip(1).chain([end_ns.max(last.time_ns)]);
    let spans = thread.armings.iter().zip(ends);
    let (mut with, mut all) = (0, 0);
    for (arming, end_ns) in spans {
        let span_ns = end_ns.saturating_sub(arming.time_ns);
        all += span_ns;
        with += if arming.has_event() { span_ns } else { 0 };
    }
    if all == 0 {
        0.0
    } else {
        with as f64 / all as f64
    }
}

/// Which part of the context switches had events in them, by the CPU time of threads: all, but for
/// threads that had a timer instead for a while.
fn switched_with_event(threads: &[Thread]) -> f64 {
    let (mut with, mut all) = (0.0, 0.0);
    for thread in threads {
        let (cpu, share) = (thread.cpu_ns() as f64, with_event(thread));
        all += cpu;
        with += cpu * if share > 0.0 { share } else { 1.0 };
    }
    if all > 0.0 { with / all } else { 1.0 }
}

fn part(of: u64, share: f64) -> u64 {
    (of as f64 * share).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dear_is_said_of_programs_that_take_a_while() {
        const SECOND: u64 = 1_000_000_000;
        assert!(is_dear(SECOND / 20, SECOND) && is_dear(SECOND, 2 * SECOND));
        assert!(!is_dear(SECOND / 20 - 1, SECOND) && !is_dear(SECOND / 2, SECOND - 1));
    }
}
