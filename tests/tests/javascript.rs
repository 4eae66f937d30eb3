//! The functions of JavaScript, in programs of known work: which, in which order, at which lines,
//! among which native frames.
//!
//! For Node 20, 22 and 24: the `node` that is on the path if it is one of these, and those that
//! `tests/setup` has fetched. Which are missing is said.

use collector::profile::Profile;
use collector::recording::{RawFrame, Recording};
use collector::symbolize::Places;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::interpreted::{Seen, assert_right, names, stacks_with};
use rsunwind_tests::nodes::{all, node};
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::{judge, share};
use rsunwind_tests::{assert_measured, repository, victim};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Output;

fn script(name: &str) -> PathBuf {
    repository().join("tests/victims/js").join(name)
}

/// Records a script under a version.
fn record(node: &Path, name: &str, arguments: &[&str]) -> (Output, Recording, Bench) {
    record_with(node, &["--expose-gc"], name, arguments)
}

fn record_with(
    node: &Path,
    flags: &[&str],
    name: &str,
    arguments: &[&str],
) -> (Output, Recording, Bench) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    command.arg(node).args(flags).arg(script(name));
    let result = output(command.args(arguments));
    let recording = bench.recording();
    (result, recording, bench)
}

/// The line of a script at which a function stands.
fn line_of(file: &str, name: &str) -> u32 {
    let text = std::fs::read_to_string(script(file)).expect("the victim");
    let mark = format!("// at {name}");
    let line = text.lines().position(|line| line.ends_with(&mark));
    line.expect("a marked line") as u32 + 1
}

/// The functions of work.js from `main` to who calls `spin`, and the marks of their lines.
fn expected(which: usize) -> Vec<(&'static str, &'static str)> {
    let (each, last) = [
        ("each 1", ("one", "one")),
        ("each 3", ("get three", "get three")),
    ][which];
    vec![
        ("main", "main"),
        ("deep", "deep"),
        ("deep", "deep"),
        ("deep", "deep"),
        ("deep", "deepest"),
        ("next", ""),
        ("generated", "generated"),
        ("both", "both"),
        ("map", ""),
        ("each", each),
        last,
    ]
}

fn line(frame: &Seen) -> u32 {
    match frame {
        Seen::Function { line, .. } => *line,
        _ => 0,
    }
}

fn whole_stacks(node: &Path) {
    let (result, recording, _) = record(node, "work.js", &["20"]);
    assert!(result.status.success(), "{}", text(&result.stderr));
    assert_whole(&recording);
}

fn assert_whole(recording: &Recording) {
    let stacks = stacks_with(recording, "spin");
    let all: u64 = stacks.iter().map(|(_, weight)| weight).sum();
    assert_measured!(all > 500, "{all} samples in spin");
    let (mut right, mut right_lines, mut lines, mut of_one) = (0, 0, 0, 0);
    let mut threads = BTreeSet::new();
    let mut wrong = None;
    let own = script("work.js");
    for (frames, weight) in &stacks {
        let functions: Vec<&Seen> = frames.iter().filter(|one| one.name().is_some()).collect();
        let names = names(frames);
        let is_one = names.contains(&"one");
        let expected = expected(usize::from(!is_one));
        let main = names.iter().position(|name| *name == "main");
        let Some(main) = main.filter(|main| *main > 0) else {
            wrong = Some(names);
            continue;
        };
        let from_main: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
        let is_right = names[main..].split_last() == Some((&"spin", &from_main[..]))
            && names[main - 1] == "(anonymous)";
        if !is_right {
            wrong = Some(names);
            continue;
        }
        right += weight;
        of_one += if is_one { *weight } else { 0 };
        threads.insert(line(functions[main - 1]));
        for (frame, (name, mark)) in functions[main..].iter().zip(expected) {
            let Seen::Function { file, line, .. } = frame else {
                unreachable!("chosen so")
            };
            // V8's own have no file and no line.
            if mark.is_empty() {
                assert_eq!((&**file, *line), ("", 0), "{name}");
                continue;
            }
            assert_eq!(Path::new(file), own);
            lines += weight;
            right_lines += weight * u64::from(*line == line_of("work.js", mark));
        }
    }
    assert_measured!(
        share(right, all) > 0.97,
        "{right} of {all} are right: {wrong:?}"
    );
    assert_measured!(
        share(right_lines, lines) > 0.95,
        "{right_lines} of {lines} lines"
    );
    let of_one = share(of_one, right);
    assert_measured!((0.2..0.3).contains(&of_one), "{of_one} in one");
    let begun = ["(anonymous)", "(anonymous) of the worker"].map(|name| line_of("work.js", name));
    assert_measured!(
        threads.is_superset(&begun.into()),
        "the main thread and the worker: {threads:?}"
    );
}

/// As in a container: the filter is there before the program.
#[test]
fn under_a_filter_from_before_functions_are_there_too() {
    const BURN: &str = "function burn(end) { while (Date.now() < end); } burn(Date.now() + 1500)";
    let Some((_, node)) = all().into_iter().next() else {
        return;
    };
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "250"]);
    command.arg(victim::c("filtered.c")).arg("kill");
    let result = output(command.arg(node).args(["-e", BURN]));
    assert!(result.status.success(), "{}", text(&result.stderr));
    let within = stacks_with(&bench.recording(), "burn");
    let within: u64 = within.iter().map(|(_, weight)| weight).sum();
    assert!(within > 100, "{within}");
}

#[test]
fn node_20_has_whole_stacks() {
    judge(|| node(20).iter().for_each(|node| whole_stacks(node)));
}

#[test]
fn node_22_has_whole_stacks() {
    judge(|| node(22).iter().for_each(|node| whole_stacks(node)));
}

#[test]
fn node_24_has_whole_stacks() {
    judge(|| node(24).iter().for_each(|node| whole_stacks(node)));
}

/// Code of the baseline compiler is at the lines of what it was made of: at its calls, and where it
/// is interrupted.
#[test]
fn baseline_code_has_lines() {
    const FLAGS: [&str; 3] = ["--always-sparkplug", "--no-opt", "--no-maglev"];
    let source = std::fs::read_to_string(script("work.js")).expect("the victim");
    let line_with = |text: &str| source.lines().position(|line| line.contains(text)).unwrap() + 1;
    let (first, last) = (
        line_with("for (let turn = 0; turn < turns * 20000"),
        line_with("return a + b"),
    );
    judge(|| {
        for (major, node) in all() {
            let (result, recording, _) = record_with(&node, &FLAGS, "work.js", &["2"]);
            assert!(result.status.success(), "{}", text(&result.stderr));
            assert_whole(&recording);
            let (mut made, mut calls, mut right, mut all) = (0, 0, 0, 0);
            for sample in &recording.samples {
                let frames: Vec<RawFrame> = recording.walk(sample.stack).collect();
                for pair in frames.windows(2) {
                    let RawFrame::Language { code, position } = pair[1] else {
                        continue;
                    };
                    let Some(code) = code.map(|code| &recording.codes[code.index()]) else {
                        continue;
                    };
                    match &*code.name {
                        "deep" => {
                            calls += sample.weight;
                            let is_made = matches!(pair[0], RawFrame::Code { module: None, .. });
                            made += sample.weight * u64::from(is_made);
                        }
                        "spin" => {
                            all += sample.weight;
                            let line = code.line(position) as usize;
                            right += sample.weight * u64::from((first..last).contains(&line));
                        }
                        _ => {}
                    }
                }
            }
            assert_measured!(
                share(made, calls) > 0.95,
                "Node {major}: {made} of {calls} compiled"
            );
            assert_measured!(
                share(right, all) > 0.95,
                "Node {major}: {right} of {all} lines"
            );
        }
    });
}

/// Calls in TurboFan's code are at their lines, those of functions that were made part of another
/// one at the line that this one calls them at.
#[test]
fn calls_in_optimised_code_have_lines() {
    let all = ["small", "outer", "run", "main"];
    assert_lines_of_calls(20, &["--no-maglev"], &all, false);
}

/// Of Maglev's likewise; what is made part of another one has none.
#[test]
fn calls_in_code_of_maglev_have_lines() {
    let flags = ["--maglev", "--no-opt", "--no-sparkplug"];
    assert_lines_of_calls(22, &flags, &["outer", "run", "main"], true);
    let alone = [&flags[..], &["--no-maglev-inlining"]].concat();
    assert_lines_of_calls(22, &alone, &["small", "outer", "run"], false);
}

/// The lines of these functions are right, from that version on; or those that are known.
fn assert_lines_of_calls(first: u32, flags: &[&str], names: &[&'static str], may_lack: bool) {
    let source = std::fs::read_to_string(script("calls.js")).expect("the victim");
    let marks = |name: &str| {
        let mark = format!("// in {name}");
        let lines = source.lines().zip(1u32..);
        let marked = lines.filter(|(line, _)| line.ends_with(&mark));
        marked.map(|(_, number)| number).collect::<BTreeSet<u32>>()
    };
    let known: Vec<_> = names.iter().map(|name| (*name, marks(name))).collect();
    judge(|| {
        for (major, node) in all().into_iter().filter(|(major, _)| *major >= first) {
            let (result, recording, _) = record_with(&node, flags, "calls.js", &[]);
            assert!(result.status.success(), "{}", text(&result.stderr));
            let (mut right, mut all) = (0, 0);
            for (frames, weight) in stacks_with(&recording, "spin") {
                for frame in &frames {
                    let name = frame.name();
                    let Some((_, lines)) = known.iter().find(|(own, _)| name == Some(own)) else {
                        continue;
                    };
                    let line = line(frame);
                    all += weight * u64::from(line != 0 || !may_lack);
                    right += weight * u64::from(lines.contains(&line));
                }
            }
            assert_measured!(all > 100, "Node {major}: {all} calls");
            let share = right as f64 / all as f64;
            assert_measured!(share > 0.95, "Node {major}: {right} of {all} lines");
        }
    });
}

/// Asserts the ends of stacks with a leaf, the same of all, in a feature, in each version.
#[track_caller]
fn assert_feature(file: &str, feature: &str, ends: &[&[&str]]) {
    judge(|| {
        for (major, node) in all() {
            let (result, recording, _) = record(&node, file, &[feature]);
            assert!(result.status.success(), "{}", text(&result.stderr));
            let leaf = ends[0].last().expect("a leaf");
            let stacks = stacks_with(&recording, leaf);
            let is_right = |frames: &[Seen]| {
                let names = names(frames);
                ends.iter().any(|end| names.ends_with(end))
            };
            assert_right(&stacks, is_right, &format!("{feature} in Node {major}"));
            for end in ends {
                let is_it = |(frames, _): &&(Vec<Seen>, u64)| names(frames).ends_with(end);
                assert!(stacks.iter().any(|one| is_it(&one)), "{end:?} in {major}");
            }
        }
    });
}

#[test]
fn a_comparator_is_called_by_sort() {
    assert_feature(
        "features.js",
        "sorted",
        &[&["sorted", "sort", "compare", "spin"]],
    );
}

#[test]
fn what_serializes_itself_is_called_through_native_code() {
    assert_feature("features.js", "json", &[&["json", "toJSON", "spin"]]);
}

#[test]
fn a_regular_expression_is_below_who_looks_for_it() {
    let end = ["searched", "test", "(regular expression)"];
    assert_feature("features.js", "searched", &[&end]);
}

#[test]
fn an_awaited_function_goes_on_alone() {
    assert_feature("features.js", "awaits", &[&["inner", "spin"]]);
}

#[test]
fn code_made_of_text_has_names() {
    let ends = [
        &["made", "(anonymous)", "spin"][..],
        &["made", "(anonymous)", "evaluated", "spin"],
    ];
    assert_feature("features.js", "made", &ends);
}

#[test]
fn a_module_has_its_file_and_line() {
    assert_feature("module.mjs", "", &[&["(anonymous)", "spin"]]);
    judge(|| {
        for (major, node) in all() {
            let (_, recording, _) = record(&node, "module.mjs", &[]);
            let is_right =
                |frames: &[Seen]| match frames.iter().rev().filter(|f| f.name().is_some()).nth(1) {
                    Some(Seen::Function { file, line, .. }) => {
                        Path::new(file) == script("module.mjs")
                            && *line == line_of("module.mjs", "the module")
                    }
                    _ => false,
                };
            let stacks = stacks_with(&recording, "spin");
            assert_right(&stacks, is_right, &format!("Node {major}"));
        }
    });
}

#[test]
fn a_thousand_levels_of_recursion_are_there() {
    judge(|| {
        for (major, node) in all() {
            let (_, recording, _) = record(&node, "features.js", &["recursion"]);
            let stacks = stacks_with(&recording, "spin");
            let is_right = |frames: &[Seen]| {
                let names = names(frames);
                names.iter().filter(|name| **name == "down").count() == 1000
            };
            assert_right(&stacks, is_right, &format!("Node {major}"));
        }
    });
}

/// Each function is named after the line that it is on: a name that another object had at that
/// address would be on another one.
#[test]
fn a_function_at_the_place_of_another_has_its_own_name() {
    for (major, node) in all() {
        let (_, recording, _) = record(&node, "features.js", &["replaced"]);
        let mut seen = BTreeSet::new();
        for (frames, _) in stacks_with(&recording, "spin") {
            for frame in frames {
                let Seen::Function { name, line, .. } = frame else {
                    continue;
                };
                if let Some(number) = name.strip_prefix("on_line_") {
                    // One that was not to be found is none.
                    let is_right = line == 0 || number.parse() == Ok(line);
                    assert!(is_right, "Node {major}: {name} at {line}");
                    seen.insert(name);
                }
            }
        }
        assert!(seen.len() > 10, "Node {major}: {seen:?}");
    }
}

/// What is remembered of a function is not taken for one that has come to its place since: each of
/// a row has its own time.
#[test]
fn functions_that_follow_each_other_have_their_own_time() {
    for (major, node) in all() {
        let (_, recording, _) = record(&node, "features.js", &["renewed"]);
        let mut weights = BTreeMap::<String, u64>::new();
        for (frames, weight) in stacks_with(&recording, "spin") {
            let turns = names(&frames).into_iter();
            let turns: Vec<&str> = turns.filter(|name| name.starts_with("turn_")).collect();
            assert!(turns.len() < 2, "Node {major}: {turns:?}");
            for turn in turns {
                *weights.entry(turn.to_owned()).or_default() += weight;
            }
        }
        assert_eq!(weights.len(), 40, "Node {major}: {weights:?}");
    }
}

/// Frames that are not looked at again, since the words that tell them have not changed, are those
/// that a full walk finds: where lines change, functions come and go, and objects move.
#[test]
fn frames_that_are_not_looked_at_again_are_right() {
    for (major, node) in all() {
        for what in ["recursion", "renewed", "moved"] {
            let program = Run::profiled("rate=5000,cost=1,reuse=check", &node).arg("--expose-gc");
            let outcome = program.arg(script("features.js")).arg(what).outcome();
            assert!(outcome.status.success(), "{}", outcome.errors());
            let recordings = outcome.recordings();
            let events = recordings.iter().flat_map(|recording| &recording.events);
            let told: Vec<&str> = events.map(|event| event.text.as_str()).collect();
            let about = |what: &str| told.iter().any(|text| text.contains(what));
            let is_right = !about("is not what a full one finds");
            assert!(is_right, "Node {major}, {what}: {told:?}");
            assert!(about("are checked against full ones"), "{what}: {told:?}");
        }
    }
}

#[test]
fn a_killed_process_has_its_names() {
    for (major, node) in all() {
        let (_, recording, _) = record(&node, "features.js", &["killed"]);
        let stacks = stacks_with(&recording, "spin");
        let is_right =
            |(frames, _): &&(Vec<Seen>, u64)| names(frames).ends_with(&["killed", "spin"]);
        let right = stacks.iter().filter(is_right).count();
        assert!(right > 50, "Node {major}: {right} of {}", stacks.len());
    }
}

/// While the collector moves what names are read from, no name is made up: all are of functions
/// that there are.
#[test]
fn objects_may_move_at_any_time() {
    for (major, node) in all() {
        let program = Run::profiled("rate=10000,cost=1", &node).arg("--expose-gc");
        let run = program.arg(script("features.js")).arg("moved");
        let outcome = run.outcome();
        assert!(outcome.status.success(), "{}", outcome.errors());
        assert_eq!(outcome.text(), "right\n", "Node {major}");
        let (_, recording, _) = record(&node, "features.js", &["moved"]);
        let own = script("features.js");
        let own = own.to_string_lossy();
        let of_script = recording.codes.iter().filter(|code| *code.file == *own);
        let found: BTreeSet<String> = of_script.map(|code| code.name.to_string()).collect();
        let known = [
            "(anonymous)",
            "(unreadable)",
            "made",
            "moving",
            "moved",
            "spin",
        ];
        let known = known.map(str::to_owned);
        assert!(found.is_subset(&known.into()), "Node {major}: {found:?}");
        assert!(found.contains("moved"), "Node {major}: {found:?}");
    }
}

/// Native frames have their names around those of JavaScript.
#[test]
fn native_frames_stand_around_those_of_javascript() {
    for (major, node) in all() {
        let (_, _, bench) = record(&node, "features.js", &["sorted"]);
        let profile = Profile::new(bench.recording(), &Places::default());
        let mut whole = 0;
        for sample in &profile.samples {
            let frames = profile.walk(sample.stack);
            let names: Vec<_> = frames.map(|one| &*profile.function(one).name).collect();
            let place = |wanted: &str| names.iter().position(|name| *name == wanted);
            let places = ["compare", "sort", "sorted", "_start"].map(place);
            whole += u64::from(places.is_sorted() && places[0].is_some()) * sample.weight;
        }
        assert!(whole > 50, "Node {major}: {whole}");
    }
}
