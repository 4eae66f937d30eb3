//! Programs that say what they do: samples have the labels of the regions that they were taken in,
//! whatever ends or interrupts these.

use collector::profile::Profile;
use collector::recording::LabelsId;
use collector::symbolize::Places;
use rsunwind_tests::command::{Bench, output, rsunwind, text};
use rsunwind_tests::repository;
use rsunwind_tests::run::Run;
use rsunwind_tests::victim::{self, Compiler};
use std::path::Path;
use std::process::Command;

const A: &str = "route=/a span_id=00f067aa0ba902b7 trace_id=4bf92f3577b34da6a3ce929d0e0e4736 \
                 user=\\u{1b}[31mx";
const B: &str = "route=/b span_id=00f067aa0ba902b7 trace_id=4bf92f3577b34da6a3ce929d0e0e4736 \
                 user=\\u{1b}[31mx";

/// Records a program; gives where the recording is, and what was said.
fn record(bench: &Bench, program: &Path) -> String {
    let mut command = bench.record(&["-F", "1000"]);
    let result = output(command.arg(program).env("RECORDED", "1"));
    let said = text(&result.stderr);
    assert!(result.status.success(), "{said}");
    assert_eq!(
        text(&result.stdout).trim_start_matches("done\n"),
        "",
        "{said}"
    );
    said
}

/// Asserts that all samples in such a function, of which there must be some, have these labels.
#[track_caller]
fn assert_labels(profile: &Profile, function: &str, wanted: &[&str]) {
    let is_in = |name: &str| name == function || name.ends_with(&format!("::{function}"));
    let mut count = 0;
    for sample in &profile.samples {
        let mut frames = profile.walk(sample.stack);
        if !frames.any(|frame| is_in(&profile.function(frame).name)) {
            continue;
        }
        let labels = profile.recording.labels.get(sample.labels).iter();
        let labels: Vec<_> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let labels = labels.join(" ");
        assert!(sample.labels != LabelsId::UNKNOWN, "{function}: {sample:?}");
        assert!(wanted.contains(&&*labels), "{function}: {labels}");
        count += 1;
    }
    assert!(count > 0, "{function}: no samples");
}

#[test]
fn samples_have_the_labels_of_the_regions_that_they_were_taken_in() {
    let include = format!("-I{}", repository().join("librsunwind/include").display());
    let program = victim::compile(
        Compiler::C,
        "regions.c",
        &[&include, "-pthread", "-rdynamic"],
    );
    assert_eq!(Run::plain(&program).outcome().quiet().text(), "done\n");
    let bench = Bench::new();
    let said = record(&bench, &program);
    let profile = Profile::new(bench.recording(), &Places::default());
    for function in [
        "in_none",
        "in_none_again",
        "in_child_behind",
        "in_next_thread",
        "behind_span",
    ] {
        assert_labels(&profile, function, &[""]);
    }
    assert_labels(&profile, "in_a", &[A]);
    assert_labels(&profile, "in_b", &[B]);
    assert_labels(&profile, "in_b_again", &[B]);
    assert_labels(&profile, "in_child", &[A]);
    let in_handler = B.replacen(" span", " signal=USR1 span", 1);
    assert_labels(&profile, "in_handler", &[&in_handler]);
    assert_labels(&profile, "in_thread", &["job=1"]);
    assert_labels(&profile, "in_many", &[&format!("key={}", "v".repeat(255))]);
    let trace = "trace_id=4bf90000000000000000000000000000";
    assert_labels(
        &profile,
        "in_span",
        &[&format!("span_id=00f0000000000000 {trace}")],
    );
    assert_labels(
        &profile,
        "in_span_region",
        &[&format!("span_id=mine {trace}")],
    );
    let note = "4 regions were left out, whose labels were wrong or had no room";
    assert!(said.contains(note), "{said}");

    let report = |arguments: &[&str]| {
        let mut command = Command::new(rsunwind());
        command.arg("report").arg(bench.path("profile.rsu"));
        let result = output(command.args(arguments));
        (
            result.status.code(),
            text(&result.stdout),
            text(&result.stderr),
        )
    };
    let (_, by_route, _) = report(&["--by", "label=route"]);
    for row in ["route=/a", "route=/b", "[no label]"] {
        let is_row = |line: &str| line.trim_end().ends_with(row);
        assert_eq!(
            by_route.lines().filter(|line| is_row(line)).count(),
            1,
            "{by_route}"
        );
    }
    let (_, of_b, _) = report(&["--label", "route=/b", "--label", "user"]);
    let holds = |name: &str| of_b.lines().any(|line| line.contains(name));
    assert!(
        holds("in_b_again") && holds("in_handler") && !holds("in_a"),
        "{of_b}"
    );
    let (status, _, error) = report(&["--label", "route=/c"]);
    assert_eq!(status, Some(2));
    assert!(error.contains("route=/a, route=/b"), "{error}");
}

#[test]
fn rust_programs_have_regions_that_end_with_their_scope() {
    let program = Path::new(env!("CARGO_BIN_EXE_labelled"));
    assert_eq!(Run::plain(program).outcome().quiet().text(), "");
    let bench = Bench::new();
    record(&bench, program);
    let profile = Profile::new(bench.recording(), &Places::default());
    assert_labels(&profile, "in_request", &["request=0", "request=1"]);
    let within = ["request=0 table=users", "request=1 table=users"];
    assert_labels(&profile, "in_query", &within);
    assert_labels(&profile, "behind", &[""]);
}
