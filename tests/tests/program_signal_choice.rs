//! The choice of the signal: programs that use either themselves, in every way, see what they would
//! see without us, and are sampled.

use collector::correlate;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;

const SIGNALS: [i32; 2] = [libc::SIGPROF, libc::SIGURG];
const WAYS: [&str; 5] = ["file", "wait", "handler", "jump", "swap"];
const SETTINGS: [&str; 4] = [
    "rate=4000,cost=1",
    "rate=4000,cost=1,signal=prof",
    "rate=4000,cost=1,signal=urg",
    "rate=1000,trigger=timer",
];

fn run(run: Run, way: &str, signal: i32) -> Outcome {
    run.args([way, &signal.to_string()]).outcome()
}

/// The signals by which the threads of a program were asked at their end, and the weight of their
/// samples.
fn asked_by(outcome: &Outcome) -> (Vec<u32>, u64) {
    let recording = correlate::read(&outcome.files()).expect("a recording");
    let armings = recording.threads.iter().map(|thread| &thread.armings);
    let mut signals: Vec<_> = armings.filter_map(|all| Some(all.last()?.signal)).collect();
    signals.sort_unstable();
    signals.dedup();
    let weight = recording.samples.iter().map(|sample| sample.weight).sum();
    (signals, weight)
}

#[test]
fn a_program_has_both_signals_to_itself() {
    let program = victim::c("signal_uses.c");
    for way in WAYS {
        for signal in SIGNALS {
            let plain = run(Run::plain(&program), way, signal).quiet();
            for settings in SETTINGS {
                let what = format!("{way} {signal} {settings}");
                let profiled = run(Run::profiled(settings, &program), way, signal);
                assert_eq!(
                    (profiled.status, profiled.text(), profiled.errors()),
                    (plain.status, plain.text(), plain.errors()),
                    "{what}"
                );
                let (_, weight) = asked_by(&profiled);
                assert!(weight > 50, "{what}: {weight}");
            }
        }
    }
}

#[test]
fn a_file_of_signals_that_nobody_told_us_of_is_never_readable() {
    // The control: by system calls of its own, while samples are raised by the same signal, the
    // program reads samples as its own.
    let program = victim::c("signal_uses.c");
    let plain = run(Run::plain(&program), "file-raw", libc::SIGPROF).quiet();
    let settings = "rate=4000,cost=1,signal=prof";
    let profiled = run(Run::profiled(settings, &program), "file-raw", libc::SIGPROF);
    assert_ne!(profiled.text(), plain.text());
}

#[test]
fn by_default_the_signal_is_the_one_that_the_program_leaves_to_us() {
    let program = victim::c("signal_uses.c");
    let (prof, urg) = (libc::SIGPROF.cast_unsigned(), libc::SIGURG.cast_unsigned());
    for (way, signal, expected) in [
        ("handler", libc::SIGPROF, urg),
        ("file", libc::SIGPROF, urg),
        ("handler", libc::SIGURG, prof),
        ("file", libc::SIGURG, prof),
    ] {
        let outcome = run(Run::profiled(SETTINGS[0], &program), way, signal).quiet();
        let (signals, _) = asked_by(&outcome);
        assert_eq!(signals, [expected], "{way} {signal}");
    }
    // Insisting goes as far as both can have it.
    for (way, expected) in [("handler", prof), ("file", urg)] {
        let outcome = run(Run::profiled(SETTINGS[1], &program), way, libc::SIGPROF).quiet();
        assert_eq!(asked_by(&outcome).0, [expected], "{way}");
    }
}

#[test]
fn an_exec_that_nobody_saw_survives_a_late_signal() {
    let program = victim::c("signal_uses.c");
    let died = |settings| run(Run::profiled(settings, &program), "exec", 0).text();
    assert_eq!(died("rate=10000,cost=1"), "died 0\n");
    // The control: by the other signal.
    assert_ne!(died("rate=10000,cost=1,signal=prof"), "died 0\n");
}
