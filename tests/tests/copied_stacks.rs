//! Programs that the preload library cannot get into, whose stacks the kernel copies: their
//! profiles against the truth, as for others.

use collector::profile::{Profile, Sample};
use engine::wire::event::EventKind;
use engine::wire::sample::{Method, StopReason};
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim::{self, Compiler};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Records a program as root; gives its profile and what it wrote.
fn record(options: &[&str], program: &Path, arguments: &[&str], status: i32) -> (Profile, String) {
    let bench = Bench::new();
    let result = output(bench.record(options).arg(program).args(arguments));
    let said = text(&result.stderr);
    assert_eq!(result.status.code(), Some(status), "{said}");
    assert!(
        said.contains("the kernel copies its stacks instead"),
        "{said}"
    );
    assert!(said.contains("were copied by the kernel"), "{said}");
    let profile = Profile::new(bench.recording(), &Default::default());
    (profile, text(&result.stdout))
}

/// Names on a stack, from the leaf, without what stands before the last dot (Go).
fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let frames = profile.walk(sample.stack);
    let names = frames.map(|frame| &*profile.function(frame).name);
    names
        .map(|name| name.strip_prefix("main.").unwrap_or(name))
        .collect()
}

fn weight(profile: &Profile, keep: impl Fn(&Sample) -> bool) -> u64 {
    let kept = profile.samples.iter().filter(|sample| keep(sample));
    kept.map(|sample| sample.weight).sum()
}

/// Shares of the functions whose truth is known, each within two points.
#[track_caller]
fn split_is_true(profile: &Profile) {
    let all = weight(profile, |_| true);
    assert!(all >= 2000, "{all} periods are too few to judge by");
    for (function, truth) in [("half", 50.0), ("third", 30.0), ("fifth", 20.0)] {
        let part = weight(profile, |sample| names(profile, sample).contains(&function));
        let share = part as f64 * 100.0 / all as f64;
        assert_measured!(
            (share - truth).abs() < 2.0,
            "{function}: {share:.2} % measured, {truth} % true"
        );
    }
}

#[track_caller]
fn stacks_are_complete(profile: &Profile) {
    let (complete, all) = (
        weight(profile, |sample| sample.complete),
        weight(profile, |_| true),
    );
    assert_measured!(complete * 100 >= all * 99, "{complete} of {all} complete");
}

#[test]
fn a_static_program_with_threads() {
    judge(|| {
        let program = victim::compile(Compiler::C, "static_split.c", &["-static"]);
        let (profile, printed) = record(&["-F", "2k"], &program, &["700", "4"], 3);
        split_is_true(&profile);
        stacks_are_complete(&profile);
        let truth: BTreeMap<u32, u64> = printed
            .lines()
            .map(|line| {
                let (tid, ns) = line.split_once(' ').unwrap();
                (tid.parse().unwrap(), ns.parse().unwrap())
            })
            .collect();
        assert_eq!(truth.len(), 4, "{printed}");
        assert_eq!(profile.recording.threads.len(), 4);
        for (index, thread) in profile.recording.threads.iter().enumerate() {
            let own = weight(&profile, |sample| sample.thread.index() == index);
            let period = thread.armings[0].period_ns;
            let (delivered, used) = ((own * period) as f64, truth[&thread.tid] as f64);
            assert_measured!(
                stands_for(delivered, used, used * 0.02),
                "{}: {delivered} of {used} ns delivered",
                thread.tid
            );
            assert_eq!(thread.totals.weight, own, "{}: totals", thread.tid);
        }
        let stacks = profile.samples.iter().map(|sample| names(&profile, sample));
        let main = ["half", "turn", "member", "main"];
        let other = ["half", "turn", "member", "start_thread"];
        for whole in [main, other] {
            let found = |stack: Vec<&str>| stack.windows(4).any(|part| part == whole);
            assert!(stacks.clone().any(found), "{whole:?}");
        }
    });
}

#[test]
fn a_static_go_program() {
    judge(|| {
        let bench = Bench::new();
        let source = bench.path("split.go");
        let text = "package main
import \"syscall\"
var sink uint64
//go:noinline
func spin(units uint64) { for i := uint64(0); i < units*1000000; i++ { sink += i * i } }
//go:noinline
func half() { spin(5); sink++ }
//go:noinline
func third() { spin(3); sink++ }
//go:noinline
func fifth() { spin(2); sink++ }
func used() int64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() / 1000000
}
func main() {
	done := make(chan bool)
	for i := 0; i < 2; i++ {
		go func() { for used() < 3000 { half(); third(); fifth() }; done <- true }()
	}
	<-done
	<-done
}
";
        std::fs::write(&source, text).unwrap();
        let program = bench.path("split");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(&source)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "")
            .env("GOCACHE", bench.path("cache"))
            .status();
        assert!(built.expect("tests/setup installs Go").success());
        let (profile, _) = record(&["-F", "2k"], &program, &[], 0);
        split_is_true(&profile);
        stacks_are_complete(&profile);
    });
}

#[test]
fn a_static_musl_program() {
    judge(|| {
        let program = victim::compile(Compiler::MuslC, "static_split.c", &["-static"]);
        let (profile, _) = record(&["-F", "2k"], &program, &["1300", "2"], 3);
        split_is_true(&profile);
        // Debian's musl has no unwind tables: walks end in the first function of it that is no
        // thread's.
        for sample in profile.samples.iter().filter(|sample| sample.weight > 0) {
            let names = names(&profile, sample);
            if names.contains(&"turn") {
                assert!(names.contains(&"member"), "{names:?}");
            }
        }
    });
}

#[test]
fn a_setuid_program_recorded_by_root() {
    judge(|| {
        let bench = Bench::new();
        let program = bench.path("split");
        std::fs::copy(victim::c("static_split.c"), &program).unwrap();
        std::os::unix::fs::chown(&program, Some(65534), None)
            .expect("this test makes a setuid program and must run as root");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
        std::fs::set_permissions(&program, mode).unwrap();
        let (profile, _) = record(&["-F", "2k"], &program, &["900", "3"], 3);
        split_is_true(&profile);
        stacks_are_complete(&profile);
        assert_eq!(profile.recording.threads.len(), 3);
    });
}

#[test]
fn stacks_deeper_than_the_copy_are_counted() {
    let program = victim::compile(Compiler::C, "static_split.c", &["-static"]);
    // 300 frames of some 300 bytes: more than is copied.
    let (profile, _) = record(&["-F", "2k"], &program, &["400", "1", "300"], 3);
    let cut = weight(&profile, |sample| sample.stop == StopReason::CopyEnded);
    let all = weight(&profile, |_| true);
    assert!(
        cut * 100 >= all * 95 && !profile.samples.is_empty(),
        "{cut} of {all}"
    );
    let process = &profile.recording.processes[0];
    let note = process
        .events
        .iter()
        .find(|event| event.kind == EventKind::Note);
    let copies = profile
        .samples
        .iter()
        .filter(|sample| sample.stop == StopReason::CopyEnded);
    let note = &note.expect("an account of the copies").text;
    let said: u64 = note
        .split(' ')
        .zip(note.split(' ').skip(1))
        .find_map(|(number, word)| (word == "cut").then(|| number.parse().unwrap()))
        .expect("how many were cut short");
    // A sample without weight is counted and not shown.
    assert!(said >= copies.count() as u64 && said > 0, "{note}");
    let summary = collector::summary::text(&profile);
    assert!(
        summary.contains("deeper than the copy of the stack"),
        "{summary}"
    );
}

#[test]
fn a_signal_handler_is_walked_through() {
    for compiler in [Compiler::C, Compiler::MuslC] {
        let program = victim::compile(compiler, "static_signal.c", &["-static"]);
        let (profile, printed) = record(&["-F", "1k"], &program, &[], 0);
        assert_eq!(printed, "end\n");
        let mut through = 0;
        for sample in profile.samples.iter().filter(|sample| sample.weight > 0) {
            let names = names(&profile, sample);
            if names.contains(&"handler") {
                let main = names.iter().position(|name| *name == "main");
                let interrupted = names.iter().position(|name| *name == "interrupted");
                assert!(
                    interrupted.is_some() && interrupted < main,
                    "{compiler:?}: {names:?}"
                );
                through += 1;
            }
        }
        assert!(through > 100, "{compiler:?}: {through}");
        let methods = profile.frames.iter().filter_map(|frame| frame.method);
        assert!(methods.clone().any(|method| method == Method::SignalFrame));
    }
}
