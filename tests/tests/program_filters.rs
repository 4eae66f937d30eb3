//! Seccomp filters that a program puts on after its start, and that kill for what it does not do
//! itself: it lives, and its calls end as they would. Programs that have system calls handed over
//! to themselves: they get none of ours.

use engine::wire::sample::Trigger;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;
use std::path::Path;

fn run(program: &Path, arguments: &[&str]) -> Outcome {
    let run = Run::profiled("rate=10000,cost=1", program);
    run.args(arguments).outcome()
}

/// Samples of kernel and user mode, that is of calls that samples have ended, too.
fn samples(outcome: &Outcome) -> usize {
    let recordings = outcome.recordings();
    let threads = recordings
        .iter()
        .flat_map(|recording| recording.threads.values());
    threads
        .filter(|thread| thread.triggers.contains(&Trigger::PerfKernel))
        .map(|thread| thread.delivered() as usize)
        .sum()
}

#[test]
fn what_a_filter_kills_for_is_not_done() {
    let program = victim::c("late_filter.c");
    for arguments in [
        &["prctl", "return"][..],
        &["number", "return", "futex"],
        &["prctl", "return", "mask", "clock"],
        &["prctl", "return", "narrow"],
        &["number", "return", "twice"],
    ] {
        let plain = Run::plain(&program).args(arguments).outcome();
        assert_eq!(plain.quiet().text(), "");
        let outcome = run(&program, arguments).quiet();
        assert_eq!(outcome.text(), "", "{arguments:?}");
        assert!(samples(&outcome) > 100, "{arguments:?}");
    }
}

/// Its samples seem to cost too much at first, so that the thread's pace is to change when a filter
/// that forbids that is there already.
#[test]
fn a_thread_stays_armed_as_it_was_when_a_filter_came() {
    let program = victim::c("late_filter.c");
    for _ in 0..3 {
        let run = Run::profiled("rate=10000,cost=1,seen=1000000", &program);
        let outcome = run.args(["prctl", "return", "narrow"]).outcome().quiet();
        assert_eq!(outcome.text(), "");
        let recordings = outcome.recordings();
        let threads = recordings
            .iter()
            .flat_map(|recording| recording.threads.values());
        for thread in threads {
            assert!(!thread.triggers.contains(&Trigger::None), "{thread:?}");
        }
    }
}

#[test]
fn without_what_a_sample_needs_there_are_none() {
    let program = victim::c("late_filter.c");
    // No handler returns; none knows the time.
    for words in [&["prctl"][..], &["prctl", "return", "counter"]] {
        let outcome = run(&program, words).quiet();
        assert_eq!(outcome.text(), "", "{words:?}");
        let recordings = outcome.recordings();
        let events = recordings.iter().flat_map(|recording| &recording.events);
        let notes: Vec<_> = events.map(|event| &event.text).collect();
        let is_said = notes
            .iter()
            .any(|text| text.contains("not sampled from then on"));
        assert!(is_said, "{words:?}: {notes:?}");
    }
}

#[test]
fn programs_that_are_started_under_a_filter_live() {
    let program = victim::c("late_filter.c");
    for how in ["none", "prctl"] {
        let outcome = run(&program, &[how, "start"]).quiet();
        assert_eq!(outcome.text(), "started\n", "{how}");
    }
}

#[test]
fn a_filter_that_nobody_sees_kills() {
    // The control: put on by a system call of the program's own.
    let program = victim::c("late_filter.c");
    assert_eq!(
        run(&program, &["bare", "start"]).signal(),
        Some(libc::SIGSYS)
    );
    assert_eq!(run(&program, &["none", "return"]).quiet().text(), "");
    assert_eq!(
        run(&program, &["bare", "return"]).signal(),
        Some(libc::SIGSYS)
    );
}

/// What the program says of itself, and whether the recording says that a thread was left alone.
fn handed_over(way: &str) -> (String, bool) {
    let outcome = run(&victim::c("dispatched.c"), &[way]).quiet();
    let recordings = outcome.recordings();
    let mut events = recordings.iter().flat_map(|recording| &recording.events);
    let is_said = events.any(|event| event.text.contains("handed over"));
    (outcome.text(), is_said)
}

#[test]
fn who_has_system_calls_handed_over_gets_its_own() {
    for way in ["prctl", "number"] {
        assert_eq!(handed_over(way), ("0\n".to_owned(), true), "{way}");
    }
    // The control: by a system call of its own, which nobody is told of.
    let (count, is_said) = handed_over("raw");
    assert!(count != "0\n" && !is_said, "{count}");
}
