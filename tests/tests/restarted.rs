//! Calls that a sample has ended are made again where the thread was sent back to them: in glibc,
//! in musl, which has one instruction for all calls, and where a program has it somewhere else. The
//! program's own signals end them as ever.
//!
//! That the same calls are ended where nobody sends a thread back is shown in
//! `program_interrupted`.

use engine::wire::sample::Trigger;
use rsunwind_tests::at_once::at_once;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::suite;
use rsunwind_tests::victim::{self, Compiler};
use std::path::{Path, PathBuf};
use std::process::Command;

const FAST: &str = "rate=10000,cost=1";

fn programs() -> [PathBuf; 2] {
    let linux = [
        "-idirafter",
        "/usr/include",
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
    ];
    [
        victim::c("restarted.c"),
        victim::compile(Compiler::MuslC, "restarted.c", &linux),
    ]
}

/// What it printed, after a look at whether it was sampled in kernel mode, as only that ends calls.
#[track_caller]
fn restarted(program: &PathBuf, arguments: &[&str]) -> String {
    text_of(Run::profiled(FAST, program), arguments)
}

#[track_caller]
fn text_of(run: Run, arguments: &[&str]) -> String {
    let outcome: Outcome = run.args(arguments).outcome().quiet();
    let sampled = outcome.recordings().iter().any(|recording| {
        let mut threads = recording.threads.values();
        threads
            .any(|thread| thread.triggers.contains(&Trigger::PerfKernel) && thread.delivered() > 0)
    });
    assert!(sampled, "{arguments:?}");
    outcome.text()
}

#[test]
fn no_wait_ends_with_an_error_or_before_its_time() {
    for program in programs() {
        assert_eq!(restarted(&program, &["storm", "400"]), "", "{program:?}");
    }
}

#[test]
fn signals_of_the_programs_end_every_call() {
    // One below our numbers, one above, and one that is queued.
    for signal in ["10", "28", "40"] {
        for program in programs() {
            let said = restarted(&program, &["own", signal]);
            assert_eq!(said, "ended 3000, lost 0\n", "{signal} {program:?}");
        }
    }
}

#[test]
fn sockets_with_a_time_limit_that_nobody_saw_set() {
    let programs = programs();
    let each = |program| [(program, "limited"), (program, "passed")];
    at_once(programs.iter().flat_map(each), |(program, way)| {
        let outcome = Run::profiled(FAST, program).arg(way).outcome();
        assert_eq!(outcome.text(), "", "{way} {program:?}");
    });
}

#[test]
fn sockets_with_a_time_limit_for_sending() {
    at_once(programs(), |program| {
        assert_eq!(restarted(&program, &["full", "100"]), "", "{program:?}");
    });
}

#[test]
fn vectors_are_written_whole_and_in_order() {
    for program in programs() {
        assert_eq!(restarted(&program, &["pieces", "60"]), "", "{program:?}");
    }
}

#[test]
fn what_is_waited_for_comes_whole() {
    for program in programs() {
        assert_eq!(restarted(&program, &["all", "60"]), "", "{program:?}");
    }
}

#[test]
fn a_call_that_takes_longer_than_a_sampling_period_ends() {
    for program in programs() {
        assert_eq!(restarted(&program, &["many", "10"]), "", "{program:?}");
    }
}

#[test]
fn a_call_that_nobody_knows_is_left_as_it_is() {
    for program in programs() {
        assert_eq!(restarted(&program, &["elsewhere", "1000"]), "0 other\n");
    }
}

/// The program with the C library of that suite.
fn under(root: &Path, program: &Path) -> Run {
    Run::profiled(FAST, loader(root))
        .arg("--library-path")
        .arg(root.join("lib/x86_64-linux-gnu"))
        .arg(program)
}

fn loader(root: &Path) -> PathBuf {
    root.join("lib64/ld-linux-x86-64.so.2")
}

/// "2.41", as its loader says.
fn version(root: &Path) -> String {
    let said = Command::new(loader(root)).arg("--version").output();
    let said = String::from_utf8(said.expect("a loader that runs").stdout).expect("text");
    let first = said.lines().next().unwrap_or_default();
    let last = first.rsplit(' ').next().unwrap_or_default();
    last.trim_end_matches('.').to_owned()
}

#[test]
fn newer_libraries_have_one_instruction_for_all_calls() {
    let [program, _] = programs();
    let transfers = victim::c("interrupted.c");
    // 2.41 and later.
    for name in ["trixie", "sid"] {
        let Some(root) = suite::unpack(name).map(|suite| suite.join("root/usr")) else {
            continue;
        };
        let minor = version(&root)
            .strip_prefix("2.")
            .and_then(|it| it.parse().ok());
        assert!(minor >= Some(41), "{name}: {}", version(&root));
        for way in [
            ["storm", "200"],
            ["pieces", "30"],
            ["all", "20"],
            ["many", "5"],
            ["full", "10"],
        ] {
            assert_eq!(text_of(under(&root, &program), &way), "", "{name} {way:?}");
        }
        let said = text_of(under(&root, &transfers), &["libc", "15"]);
        assert_eq!(said, "", "{name}");
        for signal in ["10", "40"] {
            let said = text_of(under(&root, &program), &["own", signal]);
            assert_eq!(said, "ended 3000, lost 0\n", "{name} {signal}");
        }
    }
}
