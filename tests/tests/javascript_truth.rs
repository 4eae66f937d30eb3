//! JavaScript's frames beside what V8 itself says of its stacks, for all that programs do, in Node
//! 20, 22 and 24: stacks, scripts, lines, native frames and shares.

use collector::recording::Recording;
use engine::wire::sample::StopReason;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::interpreted::{Seen, stack};
use rsunwind_tests::nodes::node;
use rsunwind_tests::pythons::share;
use rsunwind_tests::statistics::judge;
use rsunwind_tests::{assert_measured, repository};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

/// A function, its script, and the line that it is at.
type Frame = (String, String, u32);
/// Of each thing that the program does: its CPU time, µs, and its stacks.
type Said = BTreeMap<String, (f64, Vec<Vec<Frame>>)>;
/// A function and its script.
type Name<'a> = (&'a str, &'a str);
/// Those of a stack, outermost first.
type Names<'a> = Vec<Name<'a>>;

/// Functions that V8's own code calls, so that its frames stand around theirs.
const FROM_V8: [&str; 5] = ["compare", "add", "replacement", "toJSON", "reviver"];
/// What may become part of its caller, which is then named in its place; the innermost first.
const INLINED: [&str; 2] = ["inlined", "hot"];
/// Work of each thing: some milliseconds.
const UNITS: &str = "24";

/// What is held against what the program says, ns.
#[derive(Debug, Default)]
struct Counted {
    all: u64,
    right: u64,
    with_lines: u64,
    /// All lines that are known are right, but not all are known.
    without_lines: u64,
    among_natives: u64,
    of_thing: BTreeMap<String, u64>,
    wrong_pairs: BTreeSet<String>,
    not_said: Option<Vec<String>>,
    wrong_lines: Option<String>,
}

/// Stacks as V8 says them, by their functions: those that differ by lines alone are one.
#[derive(Default)]
struct Known<'a> {
    stacks: HashMap<Names<'a>, (&'a str, Vec<Vec<u32>>)>,
    pairs: HashSet<(Name<'a>, Name<'a>)>,
}

impl<'a> Known<'a> {
    fn add(&mut self, thing: &'a str, stack: &[&'a Frame], script: &'a str) {
        let mut names: Names = stack.iter().map(|frame| (&*frame.0, &*frame.1)).collect();
        let lines = stack.iter().map(|frame| frame.2).collect();
        names.push(("spin", script));
        self.pairs
            .extend(names.windows(2).map(|pair| (pair[0], pair[1])));
        let of_names = self.stacks.entry(names).or_insert((thing, Vec::new()));
        of_names.1.push(lines);
    }

    fn new(said: &'a Said, script: &'a str) -> Self {
        let mut known = Self::default();
        for (thing, (_, stacks)) in said {
            for stack in stacks {
                let mut frames: Vec<&Frame> = stack.iter().collect();
                known.add(thing, &frames, script);
                for inlined in INLINED {
                    if frames.pop_if(|last| last.0 == inlined).is_some() {
                        known.add(thing, &frames, script);
                    }
                }
            }
        }
        known
    }
}

fn count(recording: &Recording, known: &Known) -> Counted {
    let mut counted = Counted::default();
    for sample in &recording.samples {
        let frames = stack(recording, sample);
        // What has neither a script nor a line is V8's own.
        let functions: Vec<(usize, (&str, &str), u32)> = (0..frames.len())
            .filter_map(|at| match &frames[at] {
                Seen::Function { name, file, line } if !file.is_empty() || *line > 0 => {
                    Some((at, (name.as_str(), file.as_str()), *line))
                }
                _ => None,
            })
            .collect();
        let names: Names = functions.iter().map(|(_, name, _)| *name).collect();
        if names.last().is_none_or(|(name, _)| *name != "spin") {
            continue;
        }
        let pairs = names.windows(2).map(|pair| (pair[0], pair[1]));
        let wrong = pairs.filter(|pair| !known.pairs.contains(pair));
        counted
            .wrong_pairs
            .extend(wrong.map(|pair| format!("{pair:?}")));
        counted.all += sample.weight;
        let Some((thing, said)) = known.stacks.get(&names) else {
            let mut shown: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            shown.dedup();
            counted.not_said = Some(shown);
            continue;
        };
        counted.right += sample.weight;
        *counted.of_thing.entry((*thing).to_owned()).or_default() += sample.weight;
        let (_, above) = functions.split_last().expect("it is there");
        let lines: Vec<u32> = above.iter().map(|(_, _, line)| *line).collect();
        let is_known = |said: &Vec<u32>| {
            let mut both = lines.iter().zip(said);
            both.all(|(line, said)| line == said || *line == 0)
        };
        if said.contains(&lines) {
            counted.with_lines += sample.weight;
        } else if said.iter().any(is_known) {
            counted.without_lines += sample.weight;
        } else {
            counted.wrong_lines = Some(format!("{thing}: {above:?} for {said:?}"));
        }
        let mut inner = functions.windows(2);
        let is_among =
            inner.all(|pair| pair[1].0 - pair[0].0 > 1 || !FROM_V8.contains(&pair[1].1.0));
        let is_whole = sample.stop == StopReason::Root && functions[0].0 > 2;
        let is_right = is_among && is_whole && !frames.contains(&Seen::Other);
        counted.among_natives += sample.weight * u64::from(is_right);
    }
    counted
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
    let known = Known::new(&said, script.to_str().expect("a path of text"));
    let counted = count(&bench.recording(), &known);
    assert!(counted.wrong_pairs.is_empty(), "{what}: {counted:#?}");

    let part = |of| share(of, counted.all);
    assert_measured!(part(counted.right) >= 0.97, "{what}: {counted:?}");
    // Maglev's code has no lines: what is known is right.
    let lines = counted.with_lines + counted.without_lines;
    assert_measured!(part(lines) >= 0.99, "{what}: {counted:?}");
    assert_measured!(part(counted.with_lines) >= 0.9, "{what}: {counted:?}");
    assert_measured!(part(counted.among_natives) >= 0.9, "{what}: {counted:?}");
    // V8 compiles and collects within these, and beside them on other threads: the program cannot
    // tell that time from its own.
    let is_even = |thing: &str| !["warm", "inlining", "moved"].contains(&thing);
    let said = said.iter().filter(|(thing, _)| is_even(thing));
    let all: f64 = said.clone().map(|(_, (time, _))| time).sum();
    let seen = counted.of_thing.iter().filter(|(thing, _)| is_even(thing));
    let all_seen: u64 = seen.map(|(_, seen)| seen).sum();
    for (thing, (time, _)) in said {
        let seen = counted.of_thing.get(thing).copied().unwrap_or(0);
        let off = share(seen, all_seen) - time / all;
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
