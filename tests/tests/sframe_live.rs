//! Programs with SFrame of each version, made by that version's own assembler and linker, profiled:
//! the stacks are right call by call, across frames with and without SFrame, PLT stubs and signal
//! frames, and equal to those by `.eh_frame`.

use collector::profile::{Profile, Sample};
use collector::recording::RawFrame;
use engine::wire::sample::{Method, StopReason};
use rsunwind_tests::command::{Bench, status};
use rsunwind_tests::{repository, suite};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn build(bench: &Bench, flags: &[&str]) -> PathBuf {
    let source =
        std::fs::read_to_string(repository().join("tests/victims/sframe.c")).expect("the victim");
    let flags = [
        &["-O2", "-g", "-fno-optimize-sibling-calls", "-Wa,--gsframe"],
        flags,
    ]
    .concat();
    bench.compile("gcc", &flags, &source)
}

fn profile(bench: &Bench, program: &PathBuf, unwind: &str) -> Profile {
    let mut command = bench.record(&["-F", "5k", "--unwind", unwind]);
    assert_eq!(status(command.arg(program)), 0);
    Profile::new(bench.recording(), &Default::default())
}

/// Who may call whom; a call through libc counts as one.
const CALLS: [(&str, &[&str]); 6] = [
    ("leaf", &["walk", "compare", "on_signal"]),
    ("walk", &["walk", "run"]),
    ("compare", &["run"]),
    ("on_signal", &["run"]),
    ("run", &["main"]),
    ("main", &[]),
];

/// The functions of the victim on a stack, from the leaf.
fn own_functions<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let names = profile
        .walk(sample.stack)
        .map(|frame| &*profile.function(frame).name);
    names
        .filter(|name| CALLS.iter().any(|(known, _)| known == name))
        .collect()
}

/// Checks every stack; gives the distinct ones.
fn checked(profile: &Profile) -> BTreeSet<Vec<&str>> {
    // The kernel's stack in the middle of a signal handler's return stands alone, and a signal may
    // come late, as those of guests do whose interrupts wait: then there is no walk to check.
    let taken = profile
        .samples
        .iter()
        .filter(|sample| !sample.kernel.is_alone() && sample.stop != StopReason::Blocked);
    let mut distinct = BTreeSet::new();
    let (mut all, mut whole) = (0u64, 0u64);
    for sample in taken {
        let functions = own_functions(profile, sample);
        all += 1;
        whole += u64::from(sample.complete);
        for pair in functions.windows(2) {
            let callers = CALLS
                .iter()
                .find(|(name, _)| *name == pair[0])
                .expect("filtered")
                .1;
            assert!(
                callers.contains(&pair[1]),
                "{} is not called by {}: {functions:?}",
                pair[0],
                pair[1]
            );
        }
        distinct.insert(functions);
    }
    assert!(all > 300, "{all} samples are too few to judge by");
    assert!(
        whole * 1000 >= all * 995,
        "{whole} of {all} stacks are complete"
    );
    distinct
}

fn frames_by(profile: &Profile, wanted: Method) -> usize {
    let frames = profile
        .recording
        .samples
        .iter()
        .flat_map(|sample| profile.recording.walk(sample.stack));
    frames
        .filter(|frame| matches!(frame, RawFrame::Code { method, .. } if *method == wanted))
        .count()
}

/// Whether there is such a stack, however deep its recursion: a single depth is rare.
fn has(stacks: &BTreeSet<Vec<&str>>, shape: &[&str]) -> bool {
    stacks.iter().any(|stack| {
        let mut stack = stack.clone();
        stack.dedup();
        stack == shape
    })
}

fn same_stacks_by_both(flags: &[&str]) {
    let bench = Bench::new();
    let program = build(&bench, flags);
    let by_eh_frame = profile(&bench, &program, "eh_frame");
    let known = checked(&by_eh_frame);
    assert_eq!(frames_by(&by_eh_frame, Method::Sframe), 0);
    let by_sframe = profile(&bench, &program, "auto");
    let found = checked(&by_sframe);
    let (sframe, eh_frame) = (
        frames_by(&by_sframe, Method::Sframe),
        frames_by(&by_sframe, Method::EhFrame),
    );
    assert!(
        sframe > eh_frame / 2,
        "{sframe} frames by SFrame, {eh_frame} by .eh_frame"
    );
    // Every shape that a walk by .eh_frame finds often is found by SFrame: the recursion, the sort,
    // the signal.
    for shape in [
        &["leaf", "compare", "run", "main"][..],
        &["leaf", "on_signal", "run", "main"],
        &["leaf", "walk", "run", "main"],
    ] {
        assert!(has(&known, shape) && has(&found, shape), "{shape:?}");
    }
}

#[test]
fn version_1_of_the_system() {
    same_stacks_by_both(&[]);
}

#[test]
fn version_2_of_trixie() {
    if let Some(suite) = suite::unpack("trixie") {
        let bin = suite.join("bin");
        same_stacks_by_both(&["-B", bin.to_str().expect("a plain path")]);
    }
}

#[test]
fn version_3_of_sid() {
    if let Some(suite) = suite::unpack("sid") {
        let bin = suite.join("bin");
        same_stacks_by_both(&["-B", bin.to_str().expect("a plain path")]);
    }
}
