//! The profiler is not in its own picture: no frame of its library is on a stack, of CPU time, time
//! off the CPU or wall-clock time, in tables or exports, unless it is asked for; and what is the
//! profiler's own is not told by a name.

use collector::profile::{OWN_WORK, OwnFrames, Profile};
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, text};
use rsunwind_tests::statistics::judge;
use rsunwind_tests::victim;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Records the program.
fn record(options: &[&str], program: &Path, arguments: &[&str]) -> Bench {
    let bench = Bench::new();
    let mut command = bench.record(options);
    let result = output(command.arg(program).args(arguments));
    let said = text(&result.stderr);
    assert!(said.contains("samples"), "{said}");
    bench
}

/// The names on each stack of the event, from the leaf, with the weight.
fn stacks(profile: &mut Profile, event: &str) -> Vec<(Vec<String>, u64)> {
    profile.show_event(event).unwrap();
    let names = |stack| {
        let frames = profile.walk(stack).map(|frame| profile.function(frame));
        let names =
            frames.map(|function| format!("{} {}", function.name, profile.image_name(function)));
        names.collect()
    };
    let samples = profile.samples.iter();
    samples
        .map(|sample| (names(sample.stack), sample.weight))
        .collect()
}

fn is_ours(name: &str) -> bool {
    name.contains("rsunwind")
        && !name.starts_with(OWN_WORK)
        && !name.starts_with("rsunwind_backtrace ")
        && !name.starts_with("rsunwind_backtrace@plt ") // the program's stub for it
}

fn share(stacks: &[(Vec<String>, u64)], wanted: impl Fn(&[String]) -> bool) -> f64 {
    let sum = |part: &dyn Fn(&[String]) -> bool| {
        let weights = stacks.iter().filter(|(names, _)| part(names));
        weights.map(|(_, weight)| *weight).sum::<u64>() as f64
    };
    sum(&wanted) / sum(&|_| true).max(1.0)
}

#[test]
fn no_frame_of_the_profilers_is_on_a_stack() {
    let bench = record(
        &["-F", "4000", "--wall"],
        &victim::c("own_frames.c"),
        &["1400"],
    );
    let mut hidden = Profile::new(bench.recording(), &Default::default());
    let frames = OwnFrames::Shown;
    let mut shown = Profile::with(bench.recording(), &Default::default(), frames);
    for event in ["cpu", "off-cpu", "wall"] {
        for (names, _) in stacks(&mut hidden, event) {
            assert!(
                !names.iter().any(|name| is_ours(name)),
                "{event}: {names:?}"
            );
        }
    }
    // They are there.
    let all = stacks(&mut shown, "cpu");
    let ours = share(&all, |names| names.iter().any(|name| is_ours(name)));
    assert!(ours > 0.05, "{ours}");
    // What threads ask the library for is the program's own doing, and under its name.
    let asked = stacks(&mut hidden, "cpu");
    let asks = share(&asked, |names| {
        let ask = names
            .iter()
            .position(|name| name.starts_with("rsunwind_backtrace "));
        let caller = ask.and_then(|ask| names.get(ask + 1));
        caller.is_some_and(|name| name.starts_with("asks"))
    });
    assert!(asks > 0.05, "{asks}");
    // And what it makes when threads begin is not.
    let own = share(&asked, |names| {
        names[0].starts_with(OWN_WORK) && names.len() == 1
    });
    assert!(own > 0.02, "{own}");
}

#[test]
fn tables_and_exports_show_them_when_asked_for() {
    let bench = record(&["-F", "4000"], &victim::c("own_frames.c"), &["700"]);
    let recording = bench.path("profile.rsu");
    for (option, expected) in [(None, false), (Some("--own-frames"), true)] {
        for arguments in [
            &["report", "--no-pager"][..],
            &["export", "-f", "folded", "-o", "-"],
            &["export", "-f", "perf-script", "-o", "-"],
        ] {
            let mut command = Command::new(rsunwind());
            let result = output(command.args(arguments).args(option).arg(&recording));
            assert!(result.status.success(), "{}", text(&result.stderr));
            let printed = text(&result.stdout);
            let inside = ["librsunwind_preload", "rsunwind::", "rsunwind_engine::"];
            let found = inside.iter().any(|name| printed.contains(name));
            assert_eq!(found, expected, "{arguments:?} {option:?}: {printed}");
            assert!(
                expected || printed.contains(OWN_WORK),
                "{arguments:?}: {printed}"
            );
        }
    }
}

#[test]
fn a_call_is_shown_once_by_its_name_in_libc() {
    let bench = record(
        &["-F", "4000"],
        &victim::c("kernel_share.c"),
        &["poll", "1000"],
    );
    let mut profile = Profile::new(bench.recording(), &Default::default());
    let shown = stacks(&mut profile, "cpu");
    let polls = |names: &[String]| {
        let calls = names
            .iter()
            .filter(|name| name.contains("poll") && name.contains("libc"));
        calls.count()
    };
    assert!(share(&shown, |names| polls(names) == 1) > 0.5);
    assert!(share(&shown, |names| polls(names) > 1) == 0.0, "{shown:?}");
}

/// A signal ends a read of many pages early, and the library makes what is left of it: that is the
/// read all the same, as where none is cut short.
#[test]
fn what_is_left_of_a_call_that_was_cut_short_is_the_programs() {
    judge(|| {
        for way in ["random-page", "random"] {
            let program = victim::c("kernel_share.c");
            let bench = record(&["-F", "4000"], &program, &[way, "400"]);
            let mut profile = Profile::new(bench.recording(), &Default::default());
            let shown = stacks(&mut profile, "cpu");
            let read = share(&shown, |names| {
                let of_libc = |name: &String| name.contains("read") && name.contains("libc");
                names.iter().position(of_libc).is_some_and(|at| at > 0)
            });
            let own = share(&shown, |names| names[0].starts_with(OWN_WORK));
            assert_measured!(read > 0.8 && own < 0.1, "{way}: {read}, ours {own}");
            let frames = OwnFrames::Shown;
            let mut all = Profile::with(bench.recording(), &Default::default(), frames);
            let rest = share(&stacks(&mut all, "cpu"), |names| {
                names.iter().any(|name| name.starts_with("rsunwind_rest"))
            });
            assert_measured!((rest > 0.3) == (way == "random"), "{way}: {rest}");
        }
    });
}

#[test]
fn a_program_in_a_folder_of_that_name_keeps_its_frames() {
    let bench = Bench::new();
    let folder = bench.path("librsunwind_preload");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("librsunwind_preload-program");
    fs::copy(victim::c("off_cpu.c"), &program).unwrap();
    let bench = record(&["--wall"], &program, &["700", "busy"]);
    let mut profile = Profile::new(bench.recording(), &Default::default());
    for event in ["cpu", "off-cpu", "wall"] {
        let shown = stacks(&mut profile, event);
        let own = share(&shown, |names| {
            names
                .iter()
                .any(|name| name.contains("librsunwind_preload-program"))
        });
        assert!(own > 0.9, "{event}: {own}");
        let none = share(&shown, |names| {
            names.iter().any(|name| name.starts_with(OWN_WORK))
        });
        assert!(none < 0.05, "{event}: {none}");
    }
}
