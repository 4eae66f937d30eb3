//! Clients of the broker, in real C programs: linked with the library and not recorded, and
//! recorded, by perf events and by timers.

use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::{library, repository};
use std::path::PathBuf;

/// How a program is run: not recorded, or with these settings.
const WAYS: [Option<&str>; 3] = [None, Some("rate=2000"), Some("rate=1000,trigger=timer")];

/// How long each storm lasts, in seconds: more with `STORM_SECONDS`.
fn storm_seconds() -> String {
    std::env::var("STORM_SECONDS").unwrap_or_else(|_| "1".into())
}

/// A victim that is linked with the library, compiled with these options.
fn linked(name: &str, options: &[&str]) -> PathBuf {
    let directory = library::path().parent().unwrap();
    let directory = directory.to_str().unwrap();
    let (find, run) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    let mut arguments = vec![include_option(), find, run];
    arguments.push("-l:librsunwind_preload.so".into());
    arguments.extend(options.iter().map(|option| (*option).to_string()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    victim::compile(Compiler::C, name, &arguments)
}

fn include_option() -> String {
    format!("-I{}", repository().join("librsunwind/include").display())
}

fn run(way: Option<&str>, program: &PathBuf) -> Run {
    match way {
        Some(settings) => Run::profiled(settings, program),
        None => Run::plain(program),
    }
}

#[track_caller]
fn is_right(outcome: Outcome, way: Option<&str>) -> Outcome {
    let outcome = outcome.quiet();
    assert!(
        outcome.text().starts_with("right"),
        "{way:?}: {}",
        outcome.text()
    );
    outcome
}

#[test]
fn the_header_is_good_c_and_good_cpp() {
    for (compiler, language) in [(Compiler::C, "-std=c99"), (Compiler::Cpp, "-std=c++11")] {
        let options = [&*include_option(), language, "-Wall", "-Wextra", "-Werror"];
        let program = victim::compile(compiler, "clients_optional.c", &options);
        assert_eq!(Run::plain(program).outcome().quiet().text(), "absent\n");
    }
}

#[test]
fn who_asks_from_a_handler_has_the_stack_on_return() {
    let program = linked("clients_in_handler.c", &[]);
    for way in WAYS {
        for how in ["spin", "pause"] {
            is_right(run(way, &program).arg(how).outcome(), way);
        }
    }
}

#[test]
fn a_program_may_do_without_the_library() {
    let program = victim::compile(Compiler::C, "clients_optional.c", &[&*include_option()]);
    assert_eq!(Run::plain(&program).outcome().quiet().text(), "absent\n");
    let preloaded = Run::plain(&program).env("LD_PRELOAD", library::path());
    assert_eq!(preloaded.outcome().quiet().text(), "answered\n");
    let recorded = Run::profiled("", &program).outcome().quiet();
    assert_eq!(recorded.text(), "answered\n");
}

#[test]
fn programs_of_musl_have_clients_too() {
    // musl's libc has no unwind tables, and its compiler wrapper makes no index of the program's:
    // stacks end in libc, and only there.
    let options = [&*include_option(), "-DFRAMES=3", "-Wl,--eh-frame-hdr"];
    let program = victim::compile(Compiler::MuslC, "clients_optional.c", &options);
    assert_eq!(Run::plain(&program).outcome().quiet().text(), "absent\n");
    let preloaded = Run::plain(&program).env("LD_PRELOAD", library::path());
    assert_eq!(preloaded.outcome().quiet().text(), "answered\n");
    let recorded = Run::profiled("", &program).outcome().quiet();
    assert_eq!(recorded.text(), "answered\n");
}

#[test]
fn the_rules_are_kept() {
    let program = linked("clients_rules.c", &[]);
    for way in WAYS {
        let arguments: &[&str] = if way.is_some() { &["recorded"] } else { &[] };
        is_right(run(way, &program).args(arguments).outcome(), way);
    }
}

#[test]
fn three_clients_in_a_storm_get_exactly_their_stacks() {
    let program = linked("clients_storm.c", &[]);
    for way in WAYS {
        let storm = run(way, &program).arg(storm_seconds()).arg("8");
        let outcome = is_right(storm.outcome(), way);
        if way.is_some() {
            // The CPU sampler was one client more, and its samples are complete.
            let recording = outcome.recording();
            let samples = recording.samples().count();
            assert!(samples > 20, "{way:?}: {samples}");
            assert_eq!(recording.lost(), 0);
        }
    }
}

#[test]
fn clients_may_leave_under_fire() {
    let program = linked("clients_leaving.c", &[]);
    for way in WAYS {
        for threads in ["2", "24"] {
            let run = run(way, &program).arg(storm_seconds()).arg(threads);
            is_right(run.outcome(), way);
        }
    }
}

#[test]
fn a_backtrace_is_what_glibc_gives() {
    for options in [&["-O0"][..], &["-O2"], &["-O2", "-fomit-frame-pointer"]] {
        let program = linked("clients_backtrace.c", options);
        for way in WAYS {
            is_right(run(way, &program).outcome(), way);
        }
    }
}

#[test]
fn under_a_system_call_filter_no_signal_is_sent() {
    // A filter that answers the signal's system call by killing.
    let program = linked("clients_filtered.c", &[]);
    for way in WAYS {
        is_right(run(way, &program).outcome(), way);
    }
}

#[test]
fn a_callback_may_end_the_process() {
    let program = linked("clients_exit.c", &[]);
    for way in WAYS {
        assert_eq!(run(way, &program).outcome().quiet().text(), "");
    }
}
