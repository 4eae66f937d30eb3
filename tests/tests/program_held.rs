//! What a program may do in the midst of a call: its own handlers come and work, leave the call for
//! good, start other programs. It is sampled there as elsewhere, and sees nothing of it.
//!
//! Not here: that calls end as they would (`program_interrupted`, `restarted`).

use collector::profile::Profile;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::statistics::judge;
use rsunwind_tests::victim::{self, Compiler};

/// Weight of all samples, and of those with each of the functions on a complete stack.
fn weights<const N: usize>(arguments: &[&str], functions: [&str; N]) -> (u64, [u64; N]) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "1k"]);
    let result = output(command.arg(victim::c("held_handlers.c")).args(arguments));
    let said = text(&result.stderr);
    assert!(result.status.success(), "{arguments:?}: {said}");
    assert!(said.contains("user and kernel mode"), "{said}");
    let profile = Profile::new(bench.recording(), &Default::default());
    let (mut all, mut parts) = (0, [0; N]);
    for sample in &profile.samples {
        all += sample.weight;
        let frames = profile.walk(sample.stack);
        let names: Vec<_> = frames.map(|frame| &*profile.function(frame).name).collect();
        for (name, part) in functions.iter().zip(&mut parts) {
            if sample.complete && names.contains(name) {
                *part += sample.weight;
            }
        }
    }
    (all, parts)
}

#[test]
fn work_in_a_handler_is_seen_where_it_is_done() {
    for way in ["pause", "sigsuspend", "poll", "ppoll", "sleep"] {
        judge(|| {
            let (all, [a, b]) = weights(&[way], ["work_a", "work_b"]);
            assert_measured!((590..=640).contains(&all), "{way}: {all} of 600 ms");
            // A sample that comes late, on a busy machine, stands for both.
            assert_measured!((415..=485).contains(&a), "{way}: {a} of 450 ms");
            assert_measured!((115..=185).contains(&b), "{way}: {b} of 150 ms");
        });
    }
}

#[test]
fn work_after_a_call_that_was_left_is_seen() {
    judge(|| {
        let (all, [after]) = weights(&["jump"], ["work_after"]);
        assert_measured!(after >= 380 && all >= 395, "{after} of {all}");
        // The very first thread that a program cancels may go on unseen to its end.
        let (all, [after]) = weights(&["cancel"], ["work_after"]);
        assert_measured!(after >= 380 && all >= 790, "{after} of {all}");
    });
}

/// Runs a program both ways; both must end alike. Gives the profiled one.
#[track_caller]
fn same(run: impl Fn(Run) -> Run, program: &std::path::Path) -> Outcome {
    let plain = run(Run::plain(program)).outcome();
    let profiled = run(Run::profiled("rate=4000,cost=1,signal=prof", program)).outcome();
    assert_eq!(
        (profiled.status, profiled.text(), profiled.errors()),
        (plain.status, plain.text(), plain.errors()),
    );
    profiled
}

#[test]
fn programs_that_are_started_meanwhile_have_nothing_blocked() {
    let child = victim::compile(Compiler::C, "print_masks.c", &["-static"]);
    for way in ["start", "become"] {
        let outcome = same(
            |run| run.arg(way).arg(&child),
            &victim::c("held_handlers.c"),
        );
        assert!(outcome.text().contains("SigBlk"), "{}", outcome.text());
    }
}

#[test]
fn the_programs_own_signal_of_our_number_ends_its_calls() {
    for call in [
        "pause",
        "poll",
        "nanosleep",
        "select",
        "sigtimedwait",
        "sigsuspend",
        "read",
    ] {
        let outcome = same(|run| run.arg(call), &victim::c("own_wakes.c"));
        assert!(outcome.text().ends_with("at once\n"), "{}", outcome.text());
    }
}

#[test]
fn a_function_that_only_a_plug_in_brings_is_found() {
    let host = victim::c("aio_host.c");
    // One that we know of, and one that nobody can.
    for name in ["libaio.so.1", "libother.so.1"] {
        let bench = Bench::new();
        let compile = |output: &str, source: &str, more: &[&str]| {
            let source = rsunwind_tests::repository()
                .join("tests/victims")
                .join(source);
            let mut gcc = std::process::Command::new("gcc");
            gcc.args(["-shared", "-fPIC", "-o"]).arg(bench.path(output));
            assert!(gcc.arg(source).args(more).status().unwrap().success());
        };
        compile(name, "aio_library.c", &[&format!("-Wl,-soname,{name}")]);
        let library = bench.path(name);
        let rpath = format!("-Wl,-rpath,{}", library.parent().unwrap().display());
        compile(
            "plugin.so",
            "aio_plugin.c",
            &[library.to_str().unwrap(), &rpath],
        );
        let outcome = same(|run| run.arg(bench.path("plugin.so")), &host);
        assert_eq!(outcome.text(), format!("0 0 {}\n", -libc::EINVAL));
    }
}

#[test]
fn actions_are_what_the_program_made_them() {
    let program = victim::c("handler_actions.c");
    for way in ["race", "chain", "names", "nothing", "strict"] {
        let outcome = same(|run| run.arg(way), &program);
        assert!(!outcome.text().is_empty(), "{way}");
    }
    // From the least that the kernel takes, which some processors' frames are larger than.
    for size in ["2048", "2560", "2816", "4096", "8192", "16384"] {
        let outcome = same(|run| run.args(["small", size]), &program);
        if size.parse().is_ok_and(|bytes: u32| bytes >= 8192) {
            assert_eq!(outcome.text(), "small 1 0\n", "{size}");
        }
    }
}

#[test]
fn a_runaway_ends_as_soon_as_it_would() {
    let outcome = same(|run| run.arg("runaway"), &victim::c("handler_actions.c"));
    assert_eq!(outcome.signal(), Some(libc::SIGSEGV));
}
