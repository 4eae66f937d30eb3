//! A toy interpreter in C tells the profiler its frames, in every way that `rsunwind.h` has, and in
//! every way that is wrong.

use collector::profile::{Mode, Profile, Show};
use collector::symbolize::Places;
use engine::wire::sample::flags;
use rsunwind_tests::command::{Bench, output, rsunwind, text};
use rsunwind_tests::language::{assert_stacks, stacks};
use rsunwind_tests::run::Run;
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::{library, repository};
use std::path::PathBuf;
use std::process::Command;

fn toy() -> PathBuf {
    let include = repository().join("librsunwind/include");
    victim::compile(
        Compiler::C,
        "languages.c",
        &[&format!("-I{}", include.display())],
    )
}

/// What the program printed, and its profile.
fn record(arguments: &[&str], show: Show) -> (String, String, Profile, Bench) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    let result = output(command.arg(toy()).args(arguments));
    let profile = Profile::with(bench.recording(), &Places::default(), show);
    (text(&result.stdout), text(&result.stderr), profile, bench)
}

const WHOLE: [&str; 8] = [
    "main",
    "run_toy",
    "toy outer a.toy:10",
    "toy middle a.toy:22",
    "run_outer",
    "sort",
    "toy Class.inner b.toy:33",
    "run_inner",
];

const NATIVE: [&str; 7] = [
    "main",
    "run_toy",
    "toy_enter",
    "run_outer",
    "sort",
    "toy_enter",
    "run_inner",
];

#[test]
fn frames_are_had_by_stack_address_and_by_code_whichever_way_the_walk_goes_on() {
    for how in ["entry", "caller", "native"] {
        let (said, _, profile, _) = record(&[how], Show::default());
        assert!(said.ends_with("troubled 0 off 0\nright\n"), "{how}: {said}");
        assert_stacks(&profile, &WHOLE);
    }
}

#[test]
fn a_language_may_say_that_the_stack_ends_or_that_a_frame_is_not_its_own() {
    let (said, _, profile, _) = record(&["end"], Show::default());
    assert!(said.ends_with("off 0\nright\n"), "{said}");
    assert_stacks(&profile, &WHOLE[2..]);
    let mut samples = profile.samples.iter();
    assert!(samples.any(|sample| sample.complete));
    let (said, _, profile, _) = record(&["nobody"], Show::default());
    assert!(said.ends_with("troubled 0 off 0\nright\n"), "{said}");
    assert_stacks(&profile, &NATIVE);
}

#[test]
fn the_interpreters_own_frames_are_shown_on_request() {
    let show = Show {
        interpreters: true,
        ..Show::default()
    };
    let (_, _, profile, bench) = record(&["entry"], show);
    let mut callers = WHOLE.to_vec();
    callers.insert(7, "toy_enter");
    callers.insert(4, "toy_enter");
    assert_stacks(&profile, &callers);
    let report = |options: &[&str]| {
        let mut command = Command::new(rsunwind());
        command
            .arg("report")
            .args(options)
            .arg(bench.path("profile.rsu"));
        text(&output(&mut command).stdout)
    };
    assert!(report(&["--interpreter-frames"]).contains("toy_enter"));
    assert!(!report(&[]).contains("toy_enter"));
    let folded = report(&["--language", "toy"]);
    assert!(
        folded.contains("Class.inner") && !folded.contains("run_inner"),
        "{folded}"
    );
    let lines = report(&["--by", "line"]);
    assert!(lines.contains("b.toy:33"), "{lines}");
}

/// The callback is contained, what it did is counted, and stacks are what they would be without it.
#[test]
fn what_goes_wrong_in_a_callback_is_contained_counted_and_said() {
    for (how, what) in [
        ("unreadable", "65 read what cannot be read"),
        ("backwards", "65 did not advance"),
        ("nonsense", "65 did not advance"),
        ("demanding", "missed their frames"),
        ("endless", "65 took too long"),
    ] {
        // Where each callback takes all that it may, a slow machine needs longer for so many.
        let ms = if how == "endless" { "4000" } else { "1000" };
        let (said, summary, profile, _) = record(&[how, ms], Show::default());
        assert!(said.ends_with("off 1\nright\n"), "{how}: {said}");
        let off = summary
            .lines()
            .find(|line| line.contains("toy was switched off"));
        assert!(
            off.is_some_and(|line| line.contains(what)),
            "{how}: {summary}"
        );
        assert!(
            summary.contains("samples may lack frames"),
            "{how}: {summary}"
        );
        let troubled = |set: u64| set & flags::LANGUAGE_TROUBLE != 0;
        let samples = &profile.recording.samples;
        let marked = samples
            .iter()
            .filter(|sample| troubled(sample.flags))
            .count();
        assert!((10..=130).contains(&marked), "{how}: {marked}");
        if how != "endless" {
            assert_stacks(&profile, &NATIVE);
        }
    }
    let (said, summary, ..) = record(&["slow", "400"], Show::default());
    assert!(
        said.contains("right") && !said.contains("troubled 0 "),
        "{said}"
    );
    assert!(summary.contains("may lack frames"), "{summary}");
}

#[test]
fn entries_that_no_frame_reaches_over_are_shown_behind_a_gap() {
    let (said, summary, profile, _) = record(&["missing"], Show::default());
    assert!(said.ends_with("off 1\nright\n"), "{said}");
    assert!(summary.contains("missed their frames"), "{summary}");
    let root = ["toy Class.inner b.toy:33", "[frames missing]", "_start"];
    let starts = |(names, _): &&(Vec<String>, u64)| names.starts_with(&root.map(String::from));
    let frames = profile.samples.iter().map(|sample| {
        let frames = profile.walk(sample.stack).map(|frame| {
            let function = profile.function(frame);
            match function.mode {
                Mode::Language(_) => format!("toy {} b.toy:{}", function.name, frame.line),
                _ => function.name.to_string(),
            }
        });
        let mut names: Vec<String> = frames.collect();
        names.reverse();
        (names, sample.weight)
    });
    let frames: Vec<_> = frames.collect();
    let missing = frames.iter().filter(starts).count();
    // It is switched off at the 65th answer, and one walk may answer for two ticks.
    assert!((40..=130).contains(&missing), "{missing}");
}

/// Another language's entry that lies below the stack is that language's trouble alone.
#[test]
fn a_language_is_asked_whatever_another_ones_entry_is() {
    let (said, summary, profile, _) = record(&["neighbour"], Show::default());
    assert!(said.ends_with("troubled 0 off 0\nright\n"), "{said}");
    assert!(summary.contains("stray was switched off"), "{summary}");
    assert_stacks(&profile, &WHOLE);
}

#[test]
fn a_killed_process_and_a_fork_child_have_their_names() {
    let (_, _, profile, _) = record(&["killed"], Show::default());
    assert_stacks(&profile, &WHOLE);
    let (said, _, profile, _) = record(&["forked"], Show::default());
    assert!(said.ends_with("right\n"), "{said}");
    assert_eq!(profile.recording.processes.len(), 2);
    assert_stacks(&profile, &WHOLE);
    for process in &profile.recording.processes {
        assert_eq!(process.codes.len(), 3, "each is described once in each");
    }
}

#[test]
fn a_callback_that_was_left_for_good_keeps_nobody_from_taking_its_language_back() {
    for settings in ["rate=2000", "rate=1000,trigger=timer"] {
        let run = Run::profiled(settings, toy()).arg("left");
        assert_eq!(run.outcome().quiet().text(), "right\n", "{settings}");
    }
}

#[test]
fn languages_come_and_go_under_fire() {
    for settings in ["rate=4000", "rate=1000,trigger=timer"] {
        let run = Run::profiled(settings, toy()).args(["storm", "1500"]);
        let outcome = run.outcome().quiet();
        assert_eq!(outcome.text(), "right\n");
    }
    let (said, summary, profile, _) = record(&["storm", "1500"], Show::default());
    assert_eq!(said, "right\n", "{summary}");
    assert!(!summary.contains("switched off"), "{summary}");
    // A frame is there with its neighbours, or not at all.
    let mut seen = 0;
    for (names, weight) in stacks(&profile) {
        let Some(work) = names.iter().position(|name| name == "work") else {
            continue;
        };
        let names = &names[..work];
        let ends_with = |callers: &[&str]| {
            let start = names.len().checked_sub(callers.len());
            start.is_some_and(|start| &names[start..] == callers)
        };
        if ends_with(&WHOLE[1..]) {
            seen += weight;
        } else if !ends_with(&NATIVE[1..]) {
            // The language came, or went, in the middle of the walk.
            let toy = names.iter().filter(|name| name.starts_with("toy ")).count();
            assert!(toy < 3, "{names:?}");
        }
    }
    assert!(seen > 50, "{seen}");
}

/// 100,000 functions without frame pointers or tables, half of them taken back and made again under
/// another name.
#[test]
fn code_of_a_jit_is_named_and_unwound_in_the_program_and_in_its_child() {
    let (said, _, profile, _) = record(&["jit"], Show::default());
    assert_eq!(said, "right\n");
    let callers = [
        "main",
        "jit",
        "call",
        "jit again 70000 made.jit:200",
        "second",
        "call",
        "jit function 5 made.jit:205",
    ];
    assert_stacks(&profile, &callers);
    for process in &profile.recording.processes {
        let described = process.codes.len();
        assert!(
            (2..=4).contains(&described),
            "what is not sampled is not described: {described}"
        );
        let samples = profile.samples.iter();
        let own = samples.filter(|sample| {
            let thread = &profile.recording.threads[sample.thread.index()];
            profile.recording.processes[thread.process.index()].pid == process.pid
        });
        assert!(own.count() > 20);
    }
}

#[test]
fn code_of_a_jit_may_be_replaced_under_fire() {
    let (said, _, profile, _) = record(&["jit_storm"], Show::default());
    assert_eq!(said, "right\n");
    let (mut replaced, mut others) = (0, 0);
    for (names, weight) in stacks(&profile) {
        for pair in names.windows(2) {
            let maker = match &*pair[1] {
                "work_odd" => "jit odd made.jit:200",
                "work_even" => "jit even made.jit:200",
                "work" => {
                    others += weight;
                    assert!(pair[0].starts_with("jit function "), "{names:?}");
                    continue;
                }
                _ => continue,
            };
            assert_eq!(pair[0], maker, "{names:?}");
            replaced += weight;
        }
    }
    assert!(replaced > 50 && others > 50, "{replaced} {others}");
}

#[test]
fn the_rules_are_kept_recorded_or_not() {
    for how in ["rules", "client", "jit"] {
        let plain = Run::plain(toy())
            .arg(how)
            .env("LD_PRELOAD", library::path());
        for run in [plain, Run::profiled("rate=2000", toy()).arg(how)] {
            assert_eq!(run.outcome().quiet().text(), "right\n", "{how}");
        }
    }
    assert_eq!(Run::plain(toy()).outcome().quiet().text(), "absent\n");
}
