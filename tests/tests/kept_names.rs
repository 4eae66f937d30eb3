//! A recording reads the same when the program that was recorded is another one, or gone.

use rsunwind_tests::command::{Bench, output, rsunwind, text};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Burns an eighth of a second of CPU time, in a function that was inlined and one that was not.
const PROGRAM: &str = r#"
#include <time.h>
static inline __attribute__((always_inline)) long inlined_part(long x) {
    for (int i = 0; i < 100000; i++) __asm__ volatile("" : "+r"(x));
    return x;
}
__attribute__((noinline)) long busy_before_the_rebuild(void) { return inlined_part(3); }
int main(void) { while (clock() < CLOCKS_PER_SEC / 8) busy_before_the_rebuild(); }
"#;

fn say(bench: &Bench, arguments: &[&str]) -> String {
    let mut command = Command::new(rsunwind());
    command.current_dir(bench.path("")).args(arguments);
    let done = output(&mut command);
    assert!(
        done.status.success(),
        "{arguments:?}: {}",
        text(&done.stderr)
    );
    text(&done.stdout)
}

/// What people look at.
fn readings(bench: &Bench) -> [String; 4] {
    [
        say(bench, &["report", "profile.rsu"]),
        say(bench, &["report", "profile.rsu", "--by", "line"]),
        say(bench, &["report", "profile.rsu", "--summary"]),
        say(bench, &["export", "profile.rsu", "-f", "folded", "-o", "-"]),
    ]
}

fn build_id(program: &Path) -> String {
    let printed = output(Command::new("readelf").arg("-n").arg(program));
    let printed = text(&printed.stdout);
    let id = printed.split("Build ID: ").nth(1).expect("a build-id");
    id.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_recording_reads_the_same_after_a_rebuild_and_without_the_program() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O2", "-g"], PROGRAM);
    assert!(output(bench.record(&[]).arg(&program)).status.success());
    let before = readings(&bench);
    assert!(
        before[0].contains("busy_before_the_rebuild"),
        "{}",
        before[0]
    );
    assert!(before[0].contains("inlined_part") && before[1].contains("program.c:4"));
    let _ = bench.compile("gcc", &["-O0"], "int main(void) { return 7; }");
    assert_eq!(readings(&bench), before, "another build is there");
    fs::remove_file(&program).unwrap();
    let gone = say(&bench, &["report", "profile.rsu"]);
    assert_eq!(gone, before[0], "it is gone");

    // Cut into: the rest reads, and the reason is said with what can be done.
    let whole = fs::read(bench.path("profile.rsu")).unwrap();
    fs::write(bench.path("cut.rsu"), &whole[..whole.len() - 200]).unwrap();
    let mut report = Command::new(rsunwind());
    let report = output(
        report
            .args(["report", "--summary"])
            .arg(bench.path("cut.rsu")),
    );
    let said = text(&report.stderr);
    assert!(said.contains("names stored in it cannot be read"), "{said}");
    let samples = |summary: &str| summary.split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(samples(&text(&report.stdout)), samples(&before[2]));
}

#[test]
fn debug_information_of_the_very_build_improves_what_is_stored() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O2", "-g"], PROGRAM);
    let id = build_id(&program);
    let (folder, file) = id.split_at(2);
    let folder = bench.path("debug/.build-id").join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::copy(&program, folder.join(format!("{file}.debug"))).unwrap();
    assert!(
        Command::new("strip")
            .arg("-g")
            .arg(&program)
            .status()
            .unwrap()
            .success()
    );
    assert!(output(bench.record(&[]).arg(&program)).status.success());
    fs::remove_file(&program).unwrap();
    let plain = say(&bench, &["report", "profile.rsu"]);
    assert!(
        plain.contains("busy_before_the_rebuild") && !plain.contains("inlined_part"),
        "{plain}"
    );
    let better = say(&bench, &["report", "profile.rsu", "--debug-dir", "debug"]);
    assert!(better.contains("inlined_part"), "{better}");
    // What `debuginfod-find` has fetched lies in a cache of its own.
    let cached = bench.path("cache").join(&id);
    fs::create_dir_all(&cached).unwrap();
    let separate = folder.join(format!("{file}.debug"));
    fs::rename(separate, cached.join("debuginfo")).unwrap();
    let mut report = Command::new(rsunwind());
    report.current_dir(bench.path(""));
    report.env("DEBUGINFOD_CACHE_PATH", bench.path("cache"));
    let cached = output(report.args(["report", "profile.rsu"]));
    assert!(
        text(&cached.stdout).contains("inlined_part"),
        "{}",
        text(&cached.stdout)
    );
}

#[test]
fn names_are_stored_only_if_they_are_wanted() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O2", "-g"], PROGRAM);
    let unnamed = output(bench.record(&["--names", "0"]).arg(&program));
    assert!(unnamed.status.success(), "{}", text(&unnamed.stderr));
    let recording = bench.recording();
    assert!(recording.session.is_some() && recording.names.is_empty());
    let report = say(&bench, &["report", "profile.rsu"]);
    assert!(report.contains("busy_before_the_rebuild"), "{report}");
}
