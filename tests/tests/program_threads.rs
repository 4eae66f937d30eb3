//! Threads in every way of being made and of ending: they do what they do without us, each is
//! sampled, each account is closed.

use engine::wire::thread::ThreadEndReason;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;

const FAST: &str = "rate=10000,cost=1";

#[track_caller]
fn same(way: &str, settings: &str) -> Outcome {
    let program = victim::c("threads.c");
    let plain = Run::plain(&program).arg(way).outcome().quiet();
    let profiled = Run::profiled(settings, &program).arg(way).outcome().quiet();
    assert_eq!(profiled.text(), plain.text(), "{way}");
    profiled
}

/// Accounts of threads other than the main one that were closed by their end, and have samples that
/// stand for so many periods.
fn closed_with(outcome: &Outcome, weight: u64) -> usize {
    let recording = outcome.recording();
    let threads = recording
        .threads
        .iter()
        .filter(|((_, tid, _), _)| *tid != recording.header.pid);
    threads
        .filter(|(_, thread)| {
            thread.delivered() >= weight
                && thread
                    .end
                    .is_some_and(|(_, reason)| reason == ThreadEndReason::ThreadExit)
        })
        .count()
}

fn closed(outcome: &Outcome) -> usize {
    closed_with(outcome, 1)
}

#[test]
fn threads_return() {
    assert_eq!(closed(&same("returns", FAST)), 50);
}

#[test]
fn threads_leave_by_pthread_exit() {
    assert_eq!(closed(&same("leaves", FAST)), 50);
}

#[test]
fn threads_are_cancelled_in_every_kind_of_wait() {
    assert_eq!(closed(&same("cancelled", FAST)), 30);
}

#[test]
fn destructors_run_and_exceptions_cross_frames() {
    let program = victim::cpp("cancelled.cpp");
    let plain = Run::plain(&program).outcome().quiet();
    let profiled = Run::profiled(FAST, &program).outcome().quiet();
    assert_eq!(profiled.text(), plain.text());
    assert!(closed(&profiled) >= 24, "{}", closed(&profiled));
}

#[test]
fn threads_of_the_c_standard_are_sampled() {
    assert_eq!(closed(&same("c11", FAST)), 20);
}

#[test]
fn detached_threads_are_sampled() {
    assert_eq!(closed(&same("detached", FAST)), 200);
}

#[test]
fn threads_with_stacks_of_16_kilobytes_are_sampled() {
    let full = closed_with(&same("small-stacks", FAST), 100);
    assert_eq!(full, 20, "threads with 20 ms each at 10 kHz");
}

#[test]
fn a_thousand_threads_run() {
    let recording = same("thousand", FAST).recording();
    assert_eq!(recording.threads.len(), 1001);
    let recording = same("alive", "rate=1000").recording();
    assert_eq!(recording.threads.len(), 1001);
}

#[test]
fn little_locked_memory_costs_the_program_nothing() {
    // As an ordinary user every perf ring counts against this limit, and hundreds of threads
    // exhaust it.
    let program = victim::c("threads.c");
    let plain = Run::plain(&program).arg("alive").outcome().quiet();
    let limited = Run::profiled("rate=1000", "sh")
        .args(["-c", "ulimit -l 64; exec \"$0\" alive"])
        .arg(&program)
        .outcome()
        .quiet();
    assert_eq!(limited.text(), plain.text());
}
