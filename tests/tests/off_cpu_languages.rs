//! Interpreters' functions on stacks of time off the CPU, which others read while the thread is
//! away: never those of another moment.

use collector::recording::{RawFrame, RawSample, Recording};
use engine::wire::sample::flags::PREEMPTED;
use engine::wire::source::OFF_CPU;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::interpreted::{Seen, names, stack};
use rsunwind_tests::nodes::all;
use rsunwind_tests::pythons::{script, two};
use rsunwind_tests::repository;
use rsunwind_tests::statistics::{judge, share};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Of a main thread in a call of the kernel: for how long, ns; by which native code; and the stack.
type Absence = (u64, Vec<u64>, Vec<Seen>);

fn absences(recording: &Recording) -> Vec<Absence> {
    let away = |sample: &&RawSample| {
        let thread = &recording.threads[sample.thread.index()];
        let is_main = thread.tid == recording.processes[thread.process.index()].pid;
        is_main && sample.event == OFF_CPU && sample.flags & PREEMPTED == 0
    };
    let found = recording.samples.iter().filter(away).map(|sample| {
        let natives = recording
            .walk(sample.stack)
            .filter_map(|frame| match frame {
                RawFrame::Code { frame, .. } => Some(frame.lookup().0),
                _ => None,
            });
        let call: Vec<u64> = natives.take(6).collect();
        (sample.value, call, stack(recording, sample))
    });
    found.collect()
}

/// Of two functions that wait by one call each: the part of the time in these calls that has its
/// function, from when the collector had read the interpreter's file, and saw the first.
fn told(absences: &[Absence], functions: [&str; 2]) -> f64 {
    let has = |stack: &[Seen], name| stack.iter().any(|seen| seen.name() == Some(name));
    // What it mostly waits by.
    let calls = functions.map(|function| {
        let mut calls = BTreeMap::<&[u64], u64>::new();
        for (ns, call, _) in absences.iter().filter(|(.., stack)| has(stack, function)) {
            *calls.entry(call).or_default() += ns;
        }
        let most = calls.iter().max_by_key(|(_, ns)| **ns);
        most.map(|(call, _)| *call)
    });
    assert_measured!(calls[0] != calls[1], "{functions:?} wait at {calls:x?}");
    let (mut named, mut all) = (0, 0);
    for (ns, by, stack) in absences {
        let Some(own) = calls.iter().position(|call| *call == Some(by)) else {
            continue;
        };
        assert!(!has(stack, functions[1 - own]), "{stack:?}");
        named += if has(stack, functions[own]) { *ns } else { 0 };
        all += if named > 0 { *ns } else { 0 };
    }
    share(named, all)
}

fn record(command: &mut Command, what: &[&Path]) -> String {
    let result = output(command.args(what));
    assert!(result.status.success(), "{}", text(&result.stderr));
    text(&result.stderr)
}

#[test]
fn pythons_functions_are_on_the_stacks_of_their_own_waits() {
    const WAYS: [&str; 2] = ["by_sleep", "by_select"];
    for (minor, python) in two() {
        judge(|| {
            let bench = Bench::new();
            record(
                &mut bench.record(&["--off-cpu"]),
                &[&python, &script("waits.py")],
            );
            let recording = bench.recording();
            let absences = absences(&recording);
            for name in WAYS {
                let line = line_of(name);
                let frames = absences.iter().flat_map(|(.., stack)| stack);
                for seen in frames.filter(|seen| seen.name() == Some(name)) {
                    let is_right = matches!(seen, Seen::Function { line: at, .. } if *at == line);
                    assert!(is_right, "3.{minor}: line {line}: {seen:?}");
                }
            }
            let part = told(&absences, WAYS);
            assert_measured!(part > 0.7, "3.{minor}: {part}");
            let samples = recording.samples.iter();
            let mut long = samples.filter(|sample| {
                sample.value > 1_000_000_000
                    && names(&stack(&recording, sample)).contains(&"waits_long")
            });
            let one = long.next().expect("the long wait");
            assert!(long.next().is_none(), "3.{minor}");
            // It is hardly ever on a CPU: the collector has read its name.
            let name = &*recording.threads[one.thread.index()].name;
            assert_eq!(name, "Thread-1 (waits_long)", "3.{minor}");
        });
    }
}

fn line_of(mark: &str) -> u32 {
    let text = std::fs::read_to_string(script("waits.py")).expect("the victim");
    let line = text
        .lines()
        .position(|line| line.ends_with(&format!("# at {mark}")));
    line.expect("a marked line") as u32 + 1
}

#[test]
fn javascripts_functions_are_on_the_stacks_of_their_own_waits() {
    let waits = repository().join("tests/victims/js/waits.js");
    // One will do: `javascript` has all of them.
    if let Some((major, node)) = all().pop() {
        judge(|| {
            let bench = Bench::new();
            record(&mut bench.record(&["--off-cpu"]), &[&node, &waits]);
            let part = told(&absences(&bench.recording()), ["byFutex", "byChild"]);
            assert_measured!(part > 0.7, "Node {major}: {part}");
        });
    }
}
