//! `rsunwind report` and `rsunwind export` from outside: what they print and return, for real
//! recordings, whole and damaged.
//!
//! Not here: the formats byte by byte (`collector/src/output/tests.rs`), and that other programs
//! read them (`tests/outputs/check`).

use rsunwind_tests::command::{Bench, output, rsunwind, shell, status, text};
use std::fs;
use std::process::Command;

const INLINED: &str = "\
static volatile double x;
static inline __attribute__((always_inline)) void step(long i) { x += i; x /= 3; }
__attribute__((noinline)) void busy(long n) { for (long i = 0; i < n; i++) step(i); }
#include <time.h>
int main(void) { do busy(1000000); while (clock() < 6 * CLOCKS_PER_SEC / 10); return 0; }
";

fn recorded() -> Bench {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1", "-g"], INLINED);
    assert_eq!(status(bench.record(&["-F", "1k", "-q"]).arg(program)), 0);
    bench
}

fn command(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = Command::new(rsunwind());
    command.current_dir(bench.path("")).args(arguments);
    command
}

/// The share of weight in a folded file's stacks that end in `leaf`.
fn share(folded: &str, leaf: &str) -> f64 {
    let parse = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        (stack.ends_with(leaf), weight.parse::<f64>().unwrap())
    };
    let lines: Vec<(bool, f64)> = folded.lines().map(parse).collect();
    let all: f64 = lines.iter().map(|(_, weight)| weight).sum();
    let ours: f64 = lines
        .iter()
        .filter(|(ends, _)| *ends)
        .map(|(_, weight)| weight)
        .sum();
    ours / all
}

#[test]
fn a_real_program_is_named_in_full_in_every_format() {
    let bench = recorded();
    let report = text(
        &output(&mut command(
            &bench,
            &["report", "profile.rsu", "--by", "line"],
        ))
        .stdout,
    );
    let top = report.lines().nth(4).unwrap();
    assert!(
        top.contains("step") && top.contains("program.c:2"),
        "{report}"
    );
    for file in ["p.folded", "p.svg", "p.pb.gz", "p.json.gz", "p.perf"] {
        let done = output(&mut command(&bench, &["export", "profile.rsu", "-o", file]));
        assert!(
            done.status.success() && done.stdout.is_empty(),
            "{file}: {}",
            text(&done.stderr)
        );
        assert!(fs::metadata(bench.path(file)).unwrap().len() > 0, "{file}");
    }
    let folded = fs::read_to_string(bench.path("p.folded")).unwrap();
    assert!(
        folded.contains("_start;") && folded.contains(";main;busy;step "),
        "{folded}"
    );
    assert!(
        share(&folded, ";main;busy;step") + share(&folded, ";main;busy") > 0.9,
        "{folded}"
    );
    let leftover = fs::read_dir(bench.path(""))
        .unwrap()
        .map(|file| file.unwrap().file_name());
    let leftover: Vec<_> = leftover
        .filter(|name| name.to_string_lossy().starts_with('.'))
        .collect();
    assert!(leftover.is_empty(), "{leftover:?}");
    let piped = output(&mut command(
        &bench,
        &["export", "profile.rsu", "-o", "-", "-f", "folded"],
    ));
    assert_eq!(text(&piped.stdout), folded);
}

#[test]
fn what_cannot_be_read_or_written_is_said_with_its_remedy() {
    let bench = recorded();
    let refused = |arguments: &[&str], expected: i32, words: &str| {
        let done = output(&mut command(&bench, arguments));
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(expected), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    };
    fs::write(bench.path("empty.rsu"), b"").unwrap();
    fs::write(bench.path("foreign.rsu"), vec![b'z'; 10_000]).unwrap();
    refused(&["report", "none.rsu"], 1, "check the name");
    refused(&["report", "empty.rsu"], 1, "is empty");
    refused(
        &["report", "foreign.rsu"],
        1,
        "is not a recording of rsunwind",
    );
    refused(
        &["report", "profile.rsu", "--thread", "nobody"],
        2,
        "nobody",
    );
    refused(
        &["export", "profile.rsu", "-o", "x.unknown"],
        2,
        "perf-script",
    );
    refused(
        &["export", "profile.rsu", "-o", "x.svg", "-f", "nonsense"],
        2,
        "pprof",
    );
    refused(
        &["export", "profile.rsu", "-o", "nowhere/x.svg"],
        1,
        "the directory does not exist",
    );
    refused(
        &["export", "profile.rsu", "-f", "svg", "-o", "/dev/full"],
        1,
        "make room",
    );
    refused(
        &["export", "profile.rsu", "-f", "svg", "-o", "profile.rsu"],
        2,
        "the recording itself",
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let bench = recorded();
    let script = "{ \"$1\" report profile.rsu; echo $? >status; } 2>said | true";
    let mut command = shell(script, [rsunwind()]);
    assert!(output(command.current_dir(bench.path(""))).status.success());
    assert_eq!(
        fs::read_to_string(bench.path("status")).unwrap().trim(),
        "0"
    );
    assert_eq!(fs::read_to_string(bench.path("said")).unwrap(), "");
}

#[test]
fn of_a_damaged_recording_the_rest_is_shown_and_the_damage_named() {
    let bench = recorded();
    let mut bytes = fs::read(bench.path("profile.rsu")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 40].fill(0xa5);
    fs::write(bench.path("damaged.rsu"), &bytes).unwrap();
    fs::write(bench.path("cut.rsu"), &bytes[..middle]).unwrap();
    for file in ["damaged.rsu", "cut.rsu"] {
        let done = output(&mut command(&bench, &["report", file]));
        let (shown, said) = (text(&done.stdout), text(&done.stderr));
        assert!(done.status.success(), "{said}");
        assert!(shown.contains("busy"), "{file}: {shown}");
        assert!(
            said.contains(&format!("{file}: damaged at offset 0x")),
            "{file}: {said}"
        );
    }
}

#[test]
fn a_function_is_shown_with_its_callers_its_source_and_its_code() {
    let bench = recorded();
    let report = |arguments: &[&str]| {
        let done = output(command(&bench, &["report", "profile.rsu"]).args(arguments));
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    let callers = report(&["--callers", "^step$"]);
    let (busy, main) = (callers.find("← busy"), callers.find("← main"));
    assert!(busy.is_some() && busy < main, "{callers}");
    let tree = report(&["--tree"]);
    let (main, step) = (tree.find("main\n"), tree.find("step\n"));
    assert!(main.is_some() && main < step, "{tree}");
    let annotated = report(&["--annotate", "^step$"]);
    let hottest = annotated.lines().find(|line| line.contains("x /= 3"));
    assert!(hottest.unwrap().contains(" %"), "{annotated}");
    assert!(
        annotated.contains("busy: ") && annotated.contains("div"),
        "{annotated}"
    );
    let without = report(&["--ignore", "^step$", "--format", "csv"]);
    assert!(
        without.starts_with("self,") && !without.contains("step"),
        "{without}"
    );
}

#[test]
fn what_has_become_slower_is_found_and_fails_if_that_is_asked_for() {
    let bench = Bench::new();
    let source = "\
#include <stdlib.h>
static volatile double x;
__attribute__((noinline)) void busy(long n) { for (long i = 0; i < n; i++) x += i; }
__attribute__((noinline)) void other(long n) { for (long i = 0; i < n; i++) x += i; }
int main(int c, char **v) { busy(atol(v[1])); other(50000000); return 0; }
";
    let program = bench.compile("gcc", &["-O1"], source);
    for (count, name) in [("50000000", "before.rsu"), ("250000000", "after.rsu")] {
        assert_eq!(status(bench.record(&["-q"]).arg(&program).arg(count)), 0);
        fs::rename(bench.path("profile.rsu"), bench.path(name)).unwrap();
    }
    let diff = |arguments: &[&str]| {
        let done = output(command(&bench, &["diff"]).args(arguments));
        let code = done.status.code().unwrap();
        (code, text(&done.stdout), text(&done.stderr))
    };
    // It takes five times as long; another machine or a loaded one changes both.
    let limit = ["--time", "--fail-above", "30%"];
    let slower = diff(&[&["before.rsu", "after.rsu"][..], &limit].concat());
    assert_eq!(slower.0, 3, "{slower:?}");
    assert!(
        slower.1.lines().nth(4).unwrap().contains("busy"),
        "{slower:?}"
    );
    assert!(slower.2.contains("busy has grown from"), "{slower:?}");
    let same = diff(&[&["before.rsu", "before.rsu"][..], &limit].concat());
    assert_eq!((same.0, &*same.2), (0, ""), "{same:?}");
    let picture = diff(&["before.rsu", "after.rsu", "-o", "diff.svg"]);
    assert_eq!(picture.0, 0, "{picture:?}");
    let picture = fs::read_to_string(bench.path("diff.svg")).unwrap();
    assert!(
        picture.contains("<title>busy (") && picture.contains("; +"),
        "{picture}"
    );
    assert_eq!(diff(&["before.rsu", "after.rsu", "-o", "x.pb.gz"]).0, 2);
}
