//! JavaScript's frames beside what V8 itself says of its stacks, for all that programs do, in Node
//! 20, 22 and 24: stacks, scripts, lines, native frames and shares.

use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::interpreted::Seen;
use rsunwind_tests::nodes::node;
use rsunwind_tests::statistics::judge;
use rsunwind_tests::truth::{Known, Name, count};
use rsunwind_tests::{assert_measured, repository};
use std::collections::BTreeMap;
use std::path::Path;

/// A function, its script, and the line that it is at.
type Frame = (String, String, u32);
/// Of each thing that the program does: its CPU time, µs, and its stacks.
type Said = BTreeMap<String, (f64, Vec<Vec<Frame>>)>;

/// Functions that V8's own code calls, so that its frames stand around theirs.
const FROM_V8: [&str; 5] = ["compare", "add", "replacement", "toJSON", "reviver"];
/// What may become part of its caller, which is then named in its place; the innermost first.
const INLINED: [&str; 2] = ["inlined", "hot"];
/// Work of each thing: some milliseconds.
const UNITS: &str = "24";

fn known<'a>(said: &'a Said, script: &'a str) -> Known<'a> {
    let mut known = Known::of(script);
    for (thing, (_, stacks)) in said {
        for stack in stacks {
            let mut frames: Vec<&Frame> = stack.iter().collect();
            let mut add = |frames: &[&'a Frame]| {
                let frames = frames.iter();
                known.add(
                    thing,
                    frames.map(|(name, file, line)| ((&**name, &**file), *line)),
                );
            };
            add(&frames);
            for inlined in INLINED {
                if frames.pop_if(|last| last.0 == inlined).is_some() {
                    add(&frames);
                }
            }
        }
    }
    known
}

/// What has neither a script nor a line is V8's own.
fn function(frame: &Seen) -> Option<(Name<'_>, u32)> {
    match frame {
        Seen::Function { name, file, line } if !file.is_empty() || *line > 0 => {
            Some(((name, file), *line))
        }
        _ => None,
    }
}

fn assert_true(major: u32, node: &Path) {
    let what = format!("Node {major}");
    let script = repository().join("tests/victims/js/truth.js");
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "1000"]);
    command.arg(node).arg("--expose-gc").arg(&script).arg(UNITS);
    let result = output(&mut command);
    assert!(result.status.success(), "{what}: {}", text(&result.stderr));
    let said: Said = serde_json::from_slice(&result.stdout).expect("what the program says");
    let known = known(&said, script.to_str().expect("a path of text"));
    let is_from_v8 = |name: &str| FROM_V8.contains(&name);
    let counted = count(&bench.recording(), &known, function, is_from_v8);
    assert!(counted.wrong_pairs.is_empty(), "{what}: {counted:#?}");

    let part = |of| counted.part(of);
    assert_measured!(part(counted.right) >= 0.97, "{what}: {counted:?}");
    // Some of Maglev's code has no lines: what is known is right.
    let lines = counted.with_lines + counted.without_lines;
    assert_measured!(part(lines) >= 0.99, "{what}: {counted:?}");
    assert_measured!(part(counted.with_lines) >= 0.9, "{what}: {counted:?}");
    assert_measured!(part(counted.among_natives) >= 0.9, "{what}: {counted:?}");
    // V8 compiles and collects within these, and beside them on other threads: the program cannot
    // tell that time from its own.
    let is_even = |thing: &str| !["warm", "inlining", "moved"].contains(&thing);
    let times = said.iter().map(|(thing, (time, _))| (&**thing, *time));
    for (thing, off) in counted.off(times.filter(|(thing, _)| is_even(thing))) {
        assert_measured!(off.abs() < 0.02, "{what}, {thing}: {off} {counted:?}");
    }
}

fn assert_version(major: u32) {
    judge(|| node(major).iter().for_each(|node| assert_true(major, node)));
}

#[test]
fn stacks_of_node_20_are_those_that_it_says() {
    assert_version(20);
}

#[test]
fn stacks_of_node_22_are_those_that_it_says() {
    assert_version(22);
}

#[test]
fn stacks_of_node_24_are_those_that_it_says() {
    assert_version(24);
}
