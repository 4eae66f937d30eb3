//! Programs with Go's runtime, which looks after signals and stacks by system calls of its own and
//! interrupts its goroutines by SIGURG: with cgo, loaded by a C program, and without cgo: that is a
//! static program, which is sampled from outside.

use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::{lock, repository, target_directory, victim};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const SETTINGS: [&str; 3] = [
    "rate=999",
    "rate=10000,cost=1",
    "rate=4000,cost=1,signal=urg",
];

/// Builds a Go victim.
fn go(sources: &[&str], output: &str, mode: &str) -> PathBuf {
    let _lock = lock::take("go");
    let directory = target_directory().join("victims");
    let output = directory.join(output);
    let built = Command::new("go")
        .args(["build", &format!("-buildmode={mode}"), "-o"])
        .arg(&output)
        .args(sources)
        .current_dir(repository().join("tests/victims/go"))
        .env("GO111MODULE", "off")
        .status()
        .expect("go, of golang-go");
    assert!(built.success(), "{sources:?}");
    output
}

fn weight(outcome: &Outcome) -> u64 {
    let recordings = outcome.recordings();
    let samples = recordings.iter().flat_map(|one| one.samples());
    samples.map(|sample| sample.head.weight).sum()
}

#[track_caller]
fn same(program: &Path, arguments: &[&OsStr]) {
    let plain = Run::plain(program).args(arguments).outcome();
    assert!(plain.status.success(), "{}", plain.errors());
    for settings in SETTINGS {
        let profiled = Run::profiled(settings, program).args(arguments).outcome();
        assert_eq!(
            (profiled.status, profiled.text(), profiled.errors()),
            (plain.status, plain.text(), plain.errors()),
            "{settings}"
        );
        let weight = weight(&profiled);
        assert!(weight > 100, "{settings}: {weight}");
    }
}

#[test]
fn a_program_with_cgo_runs_as_it_does() {
    same(
        &go(&["program.go", "with_c.go"], "go-program", "default"),
        &[],
    );
}

#[test]
fn a_c_program_loads_a_library_of_gos() {
    let library = go(&["library.go"], "libgo-library.so", "c-shared");
    let host = victim::c("go/host.c");
    same(&host, &[library.as_os_str()]);
}

#[test]
fn a_program_without_cgo_runs_as_it_does() {
    let program = go(&["program.go", "without_c.go"], "go-static", "default");
    let plain = output(&mut Command::new(&program));
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    for (rate, period_ns) in [("999", 1_001_001), ("10k", 100_000)] {
        let bench = Bench::new();
        let profiled = output(bench.record(&["-q", "-F", rate]).arg(&program));
        assert_eq!(
            (
                profiled.status,
                text(&profiled.stdout),
                text(&profiled.stderr)
            ),
            (plain.status, text(&plain.stdout), text(&plain.stderr)),
            "{rate}"
        );
        let recording = bench.recording();
        let charged = recording.session.as_ref().expect("it is whole").charged_ns;
        let weight: u64 = recording.samples.iter().map(|one| one.weight).sum();
        let sampled = weight * period_ns;
        assert!(sampled * 2 > charged, "{rate}: {sampled} of {charged} ns");
    }
}
