//! `rsunwind export` to perf.data: perf itself reads the file, and its stacks are the profile's.
//! The form with user stacks apart is read by perf of Debian sid, which is fetched
//! (`tests/kernel/fetch`); where that is out of reach, it is said and that part is left out.

use rsunwind_tests::command::{Bench, output, rsunwind, succeed, text};
use rsunwind_tests::{repository, target_directory};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// User code at several depths, one of them its own caller, and a kernel part.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <unistd.h>
__attribute__((noinline)) double leaf(long n) { volatile double x = 0; for (long i = 0; i < n; i++) x += i; return x; }
__attribute__((noinline)) double again(int depth) { return depth ? again(depth - 1) + 1 : leaf(60000000) + 1; }
__attribute__((noinline)) double middle(long n) { return leaf(n) + 1; }
__attribute__((noinline)) long kernel(int n) {
    static char buffer[1 << 20];
    long sum = 0;
    int zeros = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < n; i++) sum += read(zeros, buffer, sizeof buffer);
    close(zeros);
    return sum;
}
int main(void) { return middle(200000000) + again(5) + kernel(6000) > 0 ? 0 : 1; }
"#;
const OWN: [&str; 7] = [
    "leaf", "again", "middle", "kernel", "main", "_start", "vfs_read",
];

/// A sample as text tells it: its thread, its time to the microsecond, its period, and the
/// functions of [`OWN`] in it, from the leaf.
type Told = (String, String, String, Vec<String>);

/// What a text of `perf script`, or ours in its form, tells.
fn told(script: &str) -> Vec<Told> {
    let samples = script
        .split("\n\n")
        .filter(|sample| !sample.trim().is_empty());
    let sample = |sample: &str| {
        let (head, frames) = sample
            .trim_start_matches('\n')
            .split_once('\n')
            .expect("frames");
        let words: Vec<&str> = head.split_whitespace().collect();
        let time = words
            .iter()
            .position(|word| word.ends_with(':') && word.contains('.'));
        let time = time.unwrap_or_else(|| panic!("{head}"));
        let thread = words[..time]
            .iter()
            .rev()
            .find(|word| !word.starts_with('['));
        let thread = thread
            .and_then(|word| word.rsplit('/').next())
            .expect("a thread");
        let names = frames.lines().filter_map(|line| {
            let name = line.split_whitespace().nth(1)?.split('+').next()?;
            OWN.contains(&name).then(|| name.to_owned())
        });
        let (time, period) = (words[time], words[time + 1]);
        (
            thread.to_owned(),
            time.to_owned(),
            period.to_owned(),
            names.collect(),
        )
    };
    samples.map(sample).collect()
}

fn export(bench: &Bench, name: &str) -> PathBuf {
    let out = bench.path(name);
    let mut command = Command::new(rsunwind());
    succeed(
        command
            .args(["export", "-o"])
            .arg(&out)
            .arg(bench.path("profile.rsu")),
    );
    out
}

fn recorded(bench: &Bench) {
    let program = bench.compile(
        "gcc",
        &["-O1", "-g", "-fno-optimize-sibling-calls"],
        PROGRAM,
    );
    assert_eq!(
        output(bench.record(&["-F", "997"]).arg(program))
            .status
            .code(),
        Some(0)
    );
}

fn script(perf: &mut Command, file: &Path) -> String {
    succeed(perf.args(["script", "--no-inline", "-i"]).arg(file))
}

/// perf of Debian sid, fetched once.
fn new_perf() -> Option<&'static PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let fetch = || {
        let place = target_directory().join("kernel/perf");
        let perf = place.join("root/usr/bin/perf");
        if !perf.exists() {
            let mut fetch = Command::new(repository().join("tests/kernel/fetch"));
            let result = output(fetch.arg(&place).arg("linux-perf"));
            if !result.status.success() {
                eprintln!("LEFT OUT: deferred call chains: {}", text(&result.stderr));
                return None;
            }
        }
        Some(place)
    };
    FOUND.get_or_init(fetch).as_ref()
}

#[test]
fn perf_reads_the_stacks_that_the_profile_has() {
    let bench = Bench::new();
    recorded(&bench);
    let written = std::fs::read_to_string(export(&bench, "ours.perf")).unwrap();
    let mut ours = told(&written);
    let plain = export(&bench, "plain.data");
    let theirs = told(&script(&mut Command::new("perf"), &plain));
    ours.sort_by(|a, b| a.1.cmp(&b.1));
    assert!(ours.len() > 200, "{}", ours.len());
    assert_eq!(theirs, ours);
    let with = |names: &[&str]| theirs.iter().filter(|sample| sample.3 == names).count();
    assert!(with(&["leaf", "middle", "main", "_start"]) > 50);
    let again = [
        "leaf", "again", "again", "again", "again", "again", "again", "main", "_start",
    ];
    assert!(with(&again) > 10);
    let kernel = ["vfs_read", "kernel", "main", "_start"];
    let reads = profile_reads(&bench);
    assert!(
        !reads || with(&kernel) > 10,
        "no kernel stack in {theirs:?}"
    );

    let report = succeed(
        Command::new("perf")
            .args(["report", "--stdio", "--no-children", "-g", "none", "-i"])
            .arg(&plain),
    );
    let leaf = report
        .lines()
        .find(|line| line.ends_with("] leaf"))
        .expect("leaf is listed");
    let share: f64 = leaf.trim().split('%').next().unwrap().parse().unwrap();
    let weight = |sample: &Told| sample.2.parse::<f64>().unwrap();
    let at_leaf = |sample: &&str| {
        let first = sample.trim_start_matches('\n').lines().nth(1);
        first.is_some_and(|line| line.contains(" leaf+"))
    };
    let leaves = written
        .split("\n\n")
        .filter(at_leaf)
        .map(|sample| weight(&told(sample)[0]));
    let own: f64 = leaves.sum();
    let all: f64 = ours.iter().map(weight).sum();
    assert!(
        (share - 100.0 * own / all).abs() < 0.02,
        "{share} against {own} of {all}"
    );
}

/// Whether the kernel's stacks were granted here.
fn profile_reads(bench: &Bench) -> bool {
    let recording = bench.recording();
    recording
        .frames
        .iter()
        .any(|frame| matches!(frame, collector::recording::RawFrame::Kernel(_)))
}

#[test]
fn stacks_of_their_own_are_put_together_by_a_perf_that_knows_them() {
    let Some(place) = new_perf() else { return };
    let perf = || {
        let mut command = Command::new(place.join("run"));
        command.arg(place.join("root/usr/bin/perf"));
        command
    };
    let bench = Bench::new();
    recorded(&bench);
    let (plain, deferred) = (export(&bench, "a.data"), export(&bench, "a.deferred.data"));
    let (plain, merged) = (script(&mut perf(), &plain), script(&mut perf(), &deferred));
    assert!(told(&plain).len() > 200);
    // The names of frames without code lie beside each file.
    assert_eq!(
        merged.replace("a.deferred.data.symbols", "a.data.symbols"),
        plain
    );
    let apart = succeed(
        perf()
            .args(["script", "--no-inline", "--no-merge-callchains", "-i"])
            .arg(&deferred),
    );
    let stacks = apart.matches("DEFERRED CALLCHAIN [cookie: ").count();
    let cookies = apart.matches(" (cookie) ").count();
    assert_eq!(cookies, told(&plain).len(), "every sample has a cookie");
    assert!(
        stacks > 100 && stacks <= cookies,
        "{stacks} stacks for {cookies} samples"
    );
}

#[test]
fn names_of_code_that_no_file_has_go_along() {
    let bench = Bench::new();
    let source = "function hot(n){let s=0;for(let i=0;i<n;i++)s+=Math.sqrt(i)%3;return s} for(let k=0;k<30;k++)hot(2e6)";
    let mut record = bench.record(&["-F", "997"]);
    record.args(["node", "--perf-basic-prof", "-e", source]);
    assert_eq!(output(&mut record).status.code(), Some(0));
    let recording = bench.recording();
    let data = export(&bench, "node.data");
    for process in &recording.processes {
        // What perf finds is in the file that was exported, not in what the program left.
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", process.pid));
    }
    let script = script(&mut Command::new("perf"), &data);
    let hot = script
        .split("\n\n")
        .filter(|sample| {
            // As V8's map has it, or the language, where the version of V8 is known.
            let names = [":*hot ", ":~hot ", " hot (", " hot+"];
            names.iter().any(|name| sample.contains(name))
        })
        .count();
    assert!(hot > 20, "{hot} samples in hot:\n{script}");
}
