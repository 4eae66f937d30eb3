//! Programs with AddressSanitizer's runtime as a shared library, which must be their first one:
//! they run as ever, and are copied from outside.

use rsunwind_tests::command::{Bench, output, shell, text};
use rsunwind_tests::run::Run;
use rsunwind_tests::victim::{self, Compiler};
use std::path::PathBuf;
use std::process::Command;

fn program() -> PathBuf {
    victim::compile(Compiler::C, "sanitized.c", &["-fsanitize=address"])
}

/// Runs a command; gives its status and outputs.
fn result(command: &mut Command) -> (Option<i32>, String, String) {
    let result = output(command);
    (
        result.status.code(),
        text(&result.stdout),
        text(&result.stderr),
    )
}

#[test]
fn they_run_as_ever_and_are_sampled() {
    let bench = Bench::new();
    let (status, printed, said) = result(bench.record(&[]).arg(program()));
    assert_eq!(
        (status, printed.as_str()),
        (Some(6), "sanitized\n"),
        "{said}"
    );
    assert!(said.contains("AddressSanitizer"), "{said}");
    let weight: u64 = bench.recording().samples.iter().map(|s| s.weight).sum();
    assert!(weight > 20, "{weight}: {said}");
}

#[test]
fn one_that_another_program_starts_does_too() {
    let bench = Bench::new();
    let starts = shell("\"$@\"; echo $?", [program()]);
    let mut command = bench.record(&["-q"]);
    command.arg(starts.get_program()).args(starts.get_args());
    let (status, printed, said) = result(&mut command);
    assert_eq!(
        (status, printed.as_str()),
        (Some(0), "sanitized\n6\n"),
        "{said}"
    );
}

#[test]
fn the_library_in_front_of_the_runtime_would_end_them() {
    // The control.
    let outcome = Run::profiled("rate=1000", program()).outcome();
    assert_ne!(outcome.status.code(), Some(6));
    assert!(
        outcome.errors().contains("does not come first"),
        "{}",
        outcome.errors()
    );
}
