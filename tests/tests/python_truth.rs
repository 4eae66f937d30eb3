//! CPython's frames beside what the interpreter itself says of its stacks, for all that programs
//! do, in each version, embedded, and with the JIT: stacks, lines, native frames and shares.

use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::interpreted::Seen;
use rsunwind_tests::pythons::{DEBIANS, free_threaded, pyenv, python, script};
use rsunwind_tests::statistics::judge;
use rsunwind_tests::truth::{Counted, Known, Name, count};
use rsunwind_tests::{assert_measured, victim};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A function and the line that it is at.
type Frame = (String, u32);
/// Of each thing that the program does: its weight, and its stacks.
type Said = BTreeMap<String, (u64, Vec<Vec<Frame>>)>;

/// Functions that C calls in every version, so that its frames stand around theirs.
const FROM_C: [&str; 4] = ["key", "compare", "called", "replacement"];

/// CPU time of a thing of weight 1, s: much more than it takes the program to ask for a stack of
/// 1,000 functions.
const UNIT: &str = "0.012";

fn is_from_c(name: &str) -> bool {
    FROM_C.contains(&name.rsplit('.').next().unwrap_or(name))
}

fn function(frame: &Seen) -> Option<(Name<'_>, u32)> {
    match frame {
        Seen::Function { name, line, .. } => Some(((name, ""), *line)),
        _ => None,
    }
}

/// Records the program, and compares.
fn assert_true(what: &str, program: &[PathBuf], is_jit: bool) {
    assert_true_of(what, program, is_jit, &[]);
}

fn assert_true_of(what: &str, program: &[PathBuf], is_jit: bool, threads: &[&str]) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    command.args(program).arg("-S").arg(script("truth.py"));
    command
        .arg(UNIT)
        .args(threads)
        .env("PYTHON_JIT", if is_jit { "1" } else { "0" });
    let result = output(&mut command);
    assert!(result.status.success(), "{what}: {}", text(&result.stderr));
    let said: Said = serde_json::from_slice(&result.stdout).expect("what the program says");

    let mut known = Known::of("");
    for (thing, (_, stacks)) in &said {
        for stack in stacks {
            known.add(
                thing,
                stack.iter().map(|(name, line)| ((&**name, ""), *line)),
            );
        }
    }
    let recording = bench.recording();
    let counted = count(&recording, &known, function, is_from_c);
    assert!(counted.wrong_pairs.is_empty(), "{what}: {counted:#?}");
    // The name that `threading` gives by default, in which is the function's from 3.10 on.
    let names = recording.threads.iter().map(|thread| &thread.name);
    let own = names.filter(|name| name.starts_with("Thread-")).count();
    assert!(own > 0, "{what}: {:?}", recording.threads);
    judge_counted(what, &said, &counted, is_jit);
}

fn judge_counted(what: &str, said: &Said, counted: &Counted, is_jit: bool) {
    let part = |of| counted.part(of);
    assert_measured!(part(counted.right) >= 0.97, "{what}: {counted:?}");
    assert_measured!(part(counted.with_lines) >= 0.95, "{what}: {counted:?}");
    // Code of a JIT has no tables: behind it is a gap that is shown, or nothing.
    let least = if is_jit { 0.0 } else { 0.9 };
    assert_measured!(part(counted.among_natives) >= least, "{what}: {counted:?}");
    let weights = said
        .iter()
        .map(|(thing, (weight, _))| (&**thing, *weight as f64));
    for (thing, off) in counted.off(weights) {
        assert_measured!(off.abs() < 0.02, "{what}, {thing}: {off} {counted:?}");
    }
}

fn assert_version(minor: u32) {
    judge(|| {
        if let Some(path) = python(minor) {
            assert_true(&format!("3.{minor}"), &[path], false);
        }
    });
}

#[test]
fn stacks_of_debians_python_are_those_that_it_says() {
    judge(|| assert_true("Debian's", &[DEBIANS.into()], false));
}

#[test]
fn stacks_of_3_9_are_those_that_it_says() {
    assert_version(9);
}

#[test]
fn stacks_of_3_10_are_those_that_it_says() {
    assert_version(10);
}

#[test]
fn stacks_of_3_12_are_those_that_it_says() {
    assert_version(12);
}

#[test]
fn stacks_of_3_13_are_those_that_it_says() {
    assert_version(13);
}

#[test]
fn stacks_of_3_14_are_those_that_it_says() {
    assert_version(14);
}

#[test]
fn stacks_of_3_15_are_those_that_it_says() {
    assert_version(15);
}

#[test]
fn stacks_among_code_of_the_jit_are_those_that_python_says() {
    judge(|| {
        for minor in [14, 15] {
            if let Some(path) = python(minor) {
                assert_true(&format!("the JIT of 3.{minor}"), &[path], true);
            }
        }
    });
}

/// Threads that run at the same time, each with its own copy of the instructions from 3.14 on.
#[test]
fn stacks_of_free_threaded_builds_are_those_that_they_say() {
    judge(|| {
        for minor in [13, 14, 15] {
            if let Some(path) = free_threaded(minor) {
                let what = format!("3.{minor}t");
                assert_true_of(&what, &[path], false, &["4"]);
            }
        }
    });
}

/// It is loaded late: the first sample in it has its frames, too, since the walk that meets an
/// interpreter is made again.
#[test]
fn stacks_of_an_embedded_python_are_those_that_it_says() {
    let program = victim::c("python_late.c");
    let found = (11..=13).find_map(|minor| pyenv(minor, &format!("lib/libpython3.{minor}.so.1.0")));
    let Some(library) = found else {
        eprintln!("no shared libpython in pyenv: not tested");
        return;
    };
    judge(|| {
        assert_true(
            "embedded",
            &[Path::new(&program).into(), library.clone()],
            false,
        )
    });
}
