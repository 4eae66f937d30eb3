//! CPython's frames, in programs of known work: which functions, in which order, at which lines,
//! among which native frames.

use collector::profile::{Mode, Profile, Show};
use collector::recording::Recording;
use collector::symbolize::Places;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::interpreted::{self, Seen, assert_right, names};
use rsunwind_tests::pythons::{DEBIANS, free_threaded, python, script, three, two};
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::judge;
use rsunwind_tests::victim;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

/// Records a script under a version.
fn record(python: &Path, name: &str, argument: &str) -> (Output, Recording) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    command
        .arg(python)
        .arg("-S")
        .arg(script(name))
        .arg(argument);
    let result = output(&mut command);
    (result, bench.recording())
}

/// The stacks in which a function is, with their weight; no other language is in the recording.
fn stacks_with(recording: &Recording, function: &str) -> Vec<(Vec<Seen>, u64)> {
    assert_is_python(recording);
    interpreted::stacks_with(recording, function)
}

fn assert_is_python(recording: &Recording) {
    for code in &recording.codes {
        assert_eq!(&*recording.languages[code.language.index()], "python");
    }
}

/// What a version calls a function: names are qualified from 3.11 on.
fn called(minor: u32, qualified: &str) -> &str {
    match qualified.rsplit_once('.') {
        Some((_, last)) if minor < 11 => last,
        _ => qualified,
    }
}

/// As in a container: the filter is there before the program, which may then be sampled by timers
/// alone.
#[test]
fn under_a_filter_from_before_functions_are_there_too() {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "250"]);
    command.arg(victim::c("filtered.c")).arg("kill");
    command.args([DEBIANS, "-S"]).arg(script("truth.py"));
    assert!(output(command.arg("0.012")).status.success());
    let recording = bench.recording();
    let all: u64 = recording.samples.iter().map(|one| one.weight).sum();
    let within = stacks_with(&recording, "spin")
        .iter()
        .map(|(_, w)| w)
        .sum::<u64>();
    assert!(within > 200 && within * 10 > all * 7, "{within} of {all}");
}

/// Native frames have their names around those of Python, and the interpreter's own are shown on
/// request alone.
#[test]
fn native_frames_stand_around_those_of_python() {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    command.args([DEBIANS, "-S"]).arg(script("work.py"));
    assert!(output(command.arg("0.04")).status.success());
    for interpreters in [false, true] {
        let show = Show {
            interpreters,
            ..Show::default()
        };
        let profile = Profile::with(bench.recording(), &Places::default(), show);
        let (mut from_start, mut from_thread, mut cut_short) = (0, 0, 0);
        for sample in &profile.samples {
            let frames = profile
                .walk(sample.stack)
                .map(|frame| profile.function(frame));
            let functions: Vec<_> = frames.filter(|one| one.mode != Mode::Kernel).collect();
            let Some(main) = functions.iter().position(|one| &*one.name == "main") else {
                continue;
            };
            assert!(matches!(functions[main].mode, Mode::Language(_)));
            let inside = &functions[..main];
            // While a generator is made, its frame is run by the loop that calls it. What
            // `generated` alone calls says that it has been resumed, by a loop of its own.
            let Some(both) = inside.iter().position(|one| &*one.name == "Töpfer.both") else {
                continue;
            };
            let own = inside[both..].iter();
            let own = own.filter(|one| one.name.contains("_PyEval_EvalFrameDefault"));
            let names = || inside.iter().map(|one| &*one.name).collect::<Vec<_>>();
            assert_eq!(own.count() > 0, interpreters, "{:?}", names());
            match functions.last().map(|one| &*one.name) {
                Some("_start") => from_start += sample.weight,
                Some("clone3" | "__clone3" | "__GI___clone3") => from_thread += sample.weight,
                _ => cut_short += sample.weight,
            }
        }
        let whole = from_start + from_thread;
        assert!(
            from_start > 50 && from_thread > 50 && cut_short * 50 < whole,
            "{from_start} {from_thread} {cut_short}"
        );
    }
}

#[test]
fn what_awaits_stands_around_what_is_awaited() {
    judge(|| {
        for (minor, python) in two() {
            let (_, recording) = record(&python, "features.py", "awaits");
            let stacks = stacks_with(&recording, "spin");
            let ends = [
                "awaits.<locals>.outer",
                "awaits.<locals>.middle",
                "awaits.<locals>.inner",
                "spin",
            ]
            .map(|name| called(minor, name));
            let is_right = |frames: &[Seen]| names(frames).ends_with(&ends);
            assert_right(&stacks, is_right, &format!("3.{minor}"));
        }
    });
}

/// From one task to the next, and by way of a future, within the event loop.
#[test]
fn tasks_that_await_stand_around_the_one_they_await() {
    judge(|| {
        for minor in [14, 15] {
            let Some(python) = python(minor) else {
                continue;
            };
            let (_, recording) = record(&python, "features.py", "tasks");
            for ends in [
                ["Handle._run", "first", "waits", "inner", "single", "spin"].as_slice(),
                &["Handle._run", "first", "gathers", "gathered", "spin"],
            ] {
                let is_right = |frames: &[Seen]| {
                    let names = names(frames).into_iter();
                    let names =
                        names.map(|name| name.strip_prefix("tasks.<locals>.").unwrap_or(name));
                    names.collect::<Vec<_>>().ends_with(ends)
                };
                let function = format!("tasks.<locals>.{}", ends[ends.len() - 2]);
                assert_right(
                    &stacks_with(&recording, &function),
                    is_right,
                    &format!("3.{minor}"),
                );
            }
        }
    });
}

/// Long ones, other letters, in dictionaries of several kinds, given while it runs; the first
/// thread keeps the kernel's.
#[test]
fn threads_have_the_names_that_the_program_gave_them() {
    for (minor, python) in two() {
        let (result, recording) = record(&python, "features.py", "thread_names");
        let given = text(&result.stdout);
        let given: BTreeSet<&str> = given.trim().split('|').collect();
        let main = recording.processes[0].pid;
        let threads = recording.threads.iter();
        let (first, others): (Vec<_>, Vec<_>) = threads.partition(|thread| thread.tid == main);
        assert!(first[0].name.starts_with("python3"), "{}", first[0].name);
        let found: BTreeSet<&str> = others.iter().map(|thread| &*thread.name).collect();
        assert_eq!(found, given, "3.{minor}");
    }
}

/// Each function is named after the line that it is on: a name that another object had at that
/// address would be on another one.
#[test]
fn a_code_object_at_the_place_of_another_has_its_own_name() {
    for (minor, python) in three() {
        let (_, recording) = record(&python, "features.py", "replaced");
        let (mut seen, mut long) = (BTreeSet::new(), 0);
        for (frames, _) in stacks_with(&recording, "spin") {
            for frame in frames {
                let Seen::Function { name, file, line } = frame else {
                    continue;
                };
                if name == "long" {
                    assert_eq!(line, 5002, "3.{minor}: its table is in several parts");
                    long += 1;
                }
                if let Some(number) = name.strip_prefix("on_line_") {
                    assert_eq!((&*file, number.parse()), ("made.py", Ok(line)), "3.{minor}");
                    seen.insert(name);
                }
            }
        }
        assert!(seen.len() > 20 && long > 0, "3.{minor}: {seen:?}, {long}");
    }
}

#[test]
fn a_killed_process_and_a_fork_child_have_their_names() {
    for (minor, python) in two() {
        let (_, recording) = record(&python, "features.py", "killed");
        let stacks = stacks_with(&recording, "spin");
        let is_right = |(frames, _): &&(Vec<Seen>, u64)| names(frames).contains(&"killed");
        let right = stacks.iter().filter(is_right).map(|(_, weight)| weight);
        assert!(right.sum::<u64>() > 50, "3.{minor}");
        let (_, recording) = record(&python, "features.py", "forked");
        assert_eq!(recording.processes.len(), 2);
        for name in ["in_parent", "in_child"] {
            let name = format!("forked.<locals>.{name}");
            let stacks = stacks_with(&recording, &name);
            let is_right = |(frames, _): &&(Vec<Seen>, u64)| names(frames).contains(&"spin");
            // On a machine that others use a sample may stand for several periods.
            let right = stacks.iter().filter(is_right).map(|(_, weight)| weight);
            let right: u64 = right.sum();
            assert!(right > 50, "3.{minor} {name}: {right}");
        }
    }
}

#[test]
fn another_interpreter_on_the_thread_has_its_own_frames() {
    judge(|| {
        for (minor, python) in two() {
            let (result, recording) = record(&python, "features.py", "another_interpreter");
            assert!(result.status.success(), "{}", text(&result.stderr));
            let stacks = stacks_with(&recording, "inside");
            let is_right = |frames: &[Seen]| names(frames).ends_with(&["<module>", "inside"]);
            assert_right(&stacks, is_right, &format!("3.{minor}"));
        }
    });
}

#[test]
fn a_version_that_is_not_known_is_said() {
    let Some(python) = python(8) else { return };
    let (result, recording) = record(&python, "work.py", "0.02");
    assert!(result.status.success());
    let summary = text(&result.stderr);
    assert!(summary.contains("no Python frames"), "{summary}");
    assert!(recording.codes.is_empty());
}

#[test]
fn programs_do_the_same_under_fire() {
    let free = [13, 14, 15].map(|minor| Some((minor, free_threaded(minor)?)));
    for (minor, python) in three().into_iter().chain(free.into_iter().flatten()) {
        let program = Run::profiled("rate=10000,cost=1", &python).arg("-S");
        let run = program.arg(script("features.py")).arg("storm");
        let outcome = run.outcome().quiet();
        assert_eq!(outcome.text(), "right\n", "3.{minor}");
    }
}
