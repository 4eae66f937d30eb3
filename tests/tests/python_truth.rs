//! CPython's frames beside what the interpreter itself says of its stacks, for all that programs
//! do, in each version, embedded, and with the JIT: stacks, lines, native frames and shares.

use engine::wire::sample::StopReason;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::interpreted::{Seen, stack};
use rsunwind_tests::pythons::{DEBIANS, pyenv, python, script, share};
use rsunwind_tests::statistics::judge;
use rsunwind_tests::{assert_measured, victim};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A function and the line that it is at.
type Frame = (String, u32);
/// Of each thing that the program does: its weight, and its stacks.
type Said = BTreeMap<String, (u64, Vec<Vec<Frame>>)>;

/// Functions that C calls in every version, so that its frames stand around theirs.
const FROM_C: [&str; 4] = ["key", "compare", "called", "replacement"];

/// CPU time of a thing of weight 1, s.
const UNIT: &str = "0.004";

/// What is held against what the program says, ns.
#[derive(Debug, Default)]
struct Counted {
    all: u64,
    right: u64,
    with_lines: u64,
    among_natives: u64,
    of_thing: BTreeMap<String, u64>,
    not_said: Option<Vec<String>>,
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Records the program, and compares.
fn assert_true(what: &str, program: &[PathBuf], is_jit: bool) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    command.args(program).arg("-S").arg(script("truth.py"));
    command
        .arg(UNIT)
        .env("PYTHON_JIT", if is_jit { "1" } else { "0" });
    let result = output(&mut command);
    assert!(result.status.success(), "{what}: {}", text(&result.stderr));
    let said: Said = serde_json::from_slice(&result.stdout).expect("what the program says");

    // Stacks that differ by lines alone are one.
    let mut known: HashMap<Vec<&str>, (&str, Vec<Vec<u32>>)> = HashMap::new();
    let mut pairs = HashSet::new();
    for (thing, (_, stacks)) in &said {
        for stack in stacks {
            let mut names: Vec<&str> = stack.iter().map(|(name, _)| name.as_str()).collect();
            let lines = stack.iter().map(|(_, line)| *line).collect();
            names.push("spin");
            pairs.extend(names.windows(2).map(|pair| (pair[0], pair[1])));
            let of_names = known.entry(names).or_insert((thing, Vec::new()));
            of_names.1.push(lines);
        }
    }
    let recording = bench.recording();
    let mut counted = Counted::default();
    for sample in &recording.samples {
        let frames = stack(&recording, sample);
        let functions: Vec<(usize, &str, u32)> = (0..frames.len())
            .filter_map(|at| match &frames[at] {
                Seen::Function { name, line, .. } => Some((at, name.as_str(), *line)),
                _ => None,
            })
            .collect();
        if functions.last().is_none_or(|(_, name, _)| *name != "spin") {
            continue;
        }
        let names: Vec<&str> = functions.iter().map(|(_, name, _)| *name).collect();
        for pair in names.windows(2) {
            let is_said = pairs.contains(&(pair[0], pair[1]));
            assert!(is_said, "{what}: {pair:?}");
        }
        counted.all += sample.weight;
        let Some((thing, said)) = known.get(&names) else {
            let mut shown: Vec<String> = names.into_iter().map(str::to_owned).collect();
            shown.dedup();
            counted.not_said = Some(shown);
            continue;
        };
        counted.right += sample.weight;
        *counted.of_thing.entry((*thing).to_owned()).or_default() += sample.weight;
        let (_, above) = functions.split_last().expect("it is there");
        let lines: Vec<u32> = above.iter().map(|(_, _, line)| *line).collect();
        counted.with_lines += sample.weight * u64::from(said.contains(&lines));
        let mut inner = functions.windows(2);
        let is_among = inner.all(|pair| {
            let natives = pair[1].0 - pair[0].0 - 1;
            natives > 0 || !FROM_C.contains(&last(pair[1].1))
        });
        let is_whole = sample.stop == StopReason::Root && functions[0].0 > 2;
        let is_right = is_among && is_whole && !frames.contains(&Seen::Other);
        counted.among_natives += sample.weight * u64::from(is_right);
    }
    // The name that `threading` gives by default, in which is the function's from 3.10 on.
    let names = recording.threads.iter().map(|thread| &thread.name);
    let own = names.filter(|name| name.starts_with("Thread-")).count();
    assert!(own > 0, "{what}: {:?}", recording.threads);
    judge_counted(what, &said, &counted, is_jit);
}

fn judge_counted(what: &str, said: &Said, counted: &Counted, is_jit: bool) {
    let part = |of| share(of, counted.all);
    assert_measured!(part(counted.right) >= 0.97, "{what}: {counted:?}");
    assert_measured!(part(counted.with_lines) >= 0.95, "{what}: {counted:?}");
    // Code of a JIT has no tables: behind it is a gap that is shown, or nothing.
    let least = if is_jit { 0.0 } else { 0.9 };
    assert_measured!(part(counted.among_natives) >= least, "{what}: {counted:?}");
    let weights: u64 = said.values().map(|(weight, _)| weight).sum();
    for (thing, (weight, _)) in said {
        let seen = counted.of_thing.get(thing).copied().unwrap_or(0);
        let off = share(seen, counted.right) - share(*weight, weights);
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
