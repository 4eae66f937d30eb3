//! CPython's frames, in programs of known work: which functions, in which order, at which lines,
//! among which native frames.

use collector::profile::{Mode, Profile, Show};
use collector::recording::Recording;
use collector::symbolize::Places;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::interpreted::{self, Seen, assert_right, names};
use rsunwind_tests::pythons::{
    DEBIANS, debians_minor, pyenv, python, script, share, three, two, unstable_that_says,
};
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::judge;
use rsunwind_tests::{assert_measured, victim};
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

/// The line of work.py at which a frame of that name stands.
fn line_of(name: &str) -> u32 {
    let text = std::fs::read_to_string(script("work.py")).expect("the victim");
    let mark = format!("# at {name}");
    let line = text.lines().position(|line| line.ends_with(&mark));
    line.expect("a marked line") as u32 + 1
}

/// What a version calls a function: names are qualified from 3.11 on.
fn called(minor: u32, qualified: &str) -> &str {
    match qualified.rsplit_once('.') {
        Some((_, last)) if minor < 11 => last,
        _ => qualified,
    }
}

/// The frames of work.py, from `main` to who calls `spin`.
fn expected(minor: u32, who: &str) -> Vec<(String, u32)> {
    let frame = |name: &str, at: &str| (called(minor, name).to_owned(), line_of(at));
    vec![
        frame("main", "main"),
        frame("deep", "deep"),
        frame("deep", "deep"),
        frame("deep", "deep"),
        frame("deep", "deepest"),
        frame("generated", "generated"),
        frame("Töpfer.both", "both"),
        frame("Töpfer.both.<locals>.each", "each"),
        frame(&format!("Töpfer.{who}"), who),
    ]
}

fn whole_stacks(minor: u32, python: &Path) {
    let (result, recording) = record(python, "work.py", "0.04");
    assert!(result.status.success(), "{}", text(&result.stderr));
    let stacks = stacks_with(&recording, "spin");
    let all: u64 = stacks.iter().map(|(_, weight)| weight).sum();
    assert_measured!(all > 300, "{all} samples in spin");
    let (mut right, mut threads, mut of_one) = (0, BTreeSet::new(), 0);
    let mut wrong = None;
    for (frames, weight) in &stacks {
        let names = names(frames);
        let who = if names.iter().any(|name| name.ends_with("one")) {
            of_one += weight;
            "one"
        } else {
            "three"
        };
        let found = is_whole(minor, frames, who);
        match found {
            Some(outermost) => {
                threads.insert(outermost);
                right += weight;
            }
            None => wrong = Some(frames),
        }
    }
    assert_measured!(
        share(right, all) > 0.98,
        "{right} of {all} are right: {wrong:?}"
    );
    let of_one = share(of_one, all);
    assert_measured!((0.2..0.3).contains(&of_one), "{of_one} in one");
    assert_eq!(threads.len(), 2, "{threads:?}");
    // The default name that `threading` gives.
    let name = if minor < 10 {
        "Thread-1"
    } else {
        "Thread-1 (main)"
    };
    let mut threads = recording.threads.iter();
    assert!(threads.any(|thread| thread.name == name), "{threads:?}");
}

/// Whether a stack is what it must be, from the first frame to `spin`; gives what it begins with.
fn is_whole(minor: u32, frames: &[Seen], who: &str) -> Option<&'static str> {
    let python: Vec<usize> = (0..frames.len())
        .filter(|index| frames[*index].name().is_some())
        .collect();
    let frame = |index: usize| match &frames[python[index]] {
        Seen::Function { name, line, .. } => (name.clone(), *line),
        _ => unreachable!("chosen so"),
    };
    let found: Vec<(String, u32)> = (0..python.len()).map(frame).collect();
    let main = found.iter().position(|(name, _)| name == "main")?;
    let spin = found.iter().position(|(name, _)| name == "spin")?;
    let outer: Vec<&str> = found[..main]
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let thread = ["Thread._bootstrap", "Thread._bootstrap_inner", "Thread.run"];
    let thread = thread.map(|name| called(minor, name));
    let begins = match outer.as_slice() {
        ["<module>"] if found[0].1 == line_of("<module>") => "<module>",
        outer if outer == thread => "thread",
        _ => return None,
    };
    // Native frames outside of all, and where C calls Python; none where one frame runs many
    // functions, from 3.11 on.
    let natives = |inner: usize| python[inner] - python[inner - 1] - 1;
    let is_between = (main + 2..main + 5).all(|deep| (natives(deep) == 0) == (minor > 10));
    let through_c = natives(main + 7) > 2 && python[0] > 2;
    let is_right = found[main..spin] == expected(minor, who) && found.len() == spin + 1;
    (is_right && is_between && through_c && !frames.contains(&Seen::Other)).then_some(begins)
}

#[test]
fn debians_python_has_whole_stacks() {
    judge(|| whole_stacks(debians_minor(), Path::new(DEBIANS)));
}

#[test]
fn python_3_9_has_whole_stacks() {
    judge(|| {
        python(9)
            .into_iter()
            .for_each(|path| whole_stacks(9, &path))
    });
}

#[test]
fn python_3_10_has_whole_stacks() {
    judge(|| {
        python(10)
            .into_iter()
            .for_each(|path| whole_stacks(10, &path))
    });
}

#[test]
fn python_3_11_has_whole_stacks() {
    judge(|| {
        python(11)
            .into_iter()
            .for_each(|path| whole_stacks(11, &path))
    });
}

#[test]
fn python_3_12_has_whole_stacks() {
    judge(|| {
        python(12)
            .into_iter()
            .for_each(|path| whole_stacks(12, &path))
    });
}

#[test]
fn python_3_13_has_whole_stacks() {
    judge(|| {
        python(13)
            .into_iter()
            .for_each(|path| whole_stacks(13, &path))
    });
}

#[test]
fn python_3_14_has_whole_stacks() {
    judge(|| {
        python(14)
            .into_iter()
            .for_each(|path| whole_stacks(14, &path))
    });
}

#[test]
fn python_3_15_has_whole_stacks() {
    judge(|| {
        python(15)
            .into_iter()
            .for_each(|path| whole_stacks(15, &path))
    });
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
            let Some(generated) = inside.iter().position(|one| &*one.name == "generated") else {
                continue;
            };
            let own = inside[generated..].iter();
            let own = own.filter(|one| one.name.contains("_PyEval_EvalFrameDefault"));
            assert_eq!(own.count() > 0, interpreters);
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
fn a_thousand_levels_of_recursion_are_there() {
    judge(|| {
        let (_, recording) = record(Path::new(DEBIANS), "features.py", "recursion");
        let stacks = stacks_with(&recording, "spin");
        let is_right = |frames: &[Seen]| {
            let names = names(frames);
            let levels = names.iter().filter(|name| **name == "recursion");
            levels.count() == 1000 && names.len() == 1002
        };
        assert_right(&stacks, is_right, DEBIANS);
    });
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

/// The first sample in it has its frames, too: the walk that meets an interpreter is made again.
#[test]
fn an_interpreter_may_be_loaded_late() {
    let program = victim::c("python_late.c");
    let found = (11..=13).find_map(|minor| pyenv(minor, &format!("lib/libpython3.{minor}.so.1.0")));
    let Some(library) = found else {
        eprintln!("no shared libpython in pyenv: not tested");
        return;
    };
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    command
        .arg(program)
        .arg(library)
        .args(["-S".as_ref(), script("work.py").as_os_str()]);
    let result = output(command.arg("0.04"));
    assert!(result.status.success(), "{}", text(&result.stderr));
    let stacks = stacks_with(&bench.recording(), "spin");
    assert!(stacks.len() > 50, "{}", stacks.len());
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

/// No such build is in Debian: one that says to be one.
#[test]
fn a_build_without_a_gil_is_declined_and_that_is_said() {
    const FREE_THREADED: usize = 2;
    let bench = Bench::new();
    let changed = unstable_that_says(14, &bench.path(""), FREE_THREADED, 1);
    let Some(python) = changed else { return };
    let (result, recording) = record(&python, "work.py", "0.02");
    let summary = text(&result.stderr);
    assert!(result.status.success(), "{summary}");
    assert!(
        summary.contains("no Python frames: this is a free-threaded build of CPython"),
        "{summary}"
    );
    assert!(recording.codes.is_empty() && !recording.samples.is_empty());
}

#[test]
fn programs_do_the_same_under_fire() {
    for (minor, python) in three() {
        let program = Run::profiled("rate=10000,cost=1", &python).arg("-S");
        let run = program.arg(script("features.py")).arg("storm");
        let outcome = run.outcome().quiet();
        assert_eq!(outcome.text(), "right\n", "3.{minor}");
    }
}
