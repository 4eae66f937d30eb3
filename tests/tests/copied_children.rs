//! What a program starts whose stacks the kernel copies: each program run is recorded once, by
//! itself where it can.

use collector::profile::{Profile, Sample};
use engine::wire::process::Origin;
use engine::wire::sample::Method;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim::{self, Compiler};
use std::path::Path;

/// CPU time that the child of fork uses before it calls exec, ns; its clock then goes on.
const BEFORE_EXEC_NS: u64 = 150_000_000;

/// The static parent with that program as its child; the profile, and the CPU time that the
/// children's threads used, ns.
fn record(child: &Path) -> (Profile, u64) {
    let bench = Bench::new();
    let parent = victim::compile(Compiler::C, "static_parent.c", &["-static"]);
    let mut command = bench.record(&["-F", "1k"]);
    let result = output(command.arg(parent).arg(child).args(["400", "2"]));
    let said = text(&result.stderr);
    assert_eq!(result.status.code(), Some(3), "{said}");
    let printed = text(&result.stdout);
    let times = printed.lines().map(|line| line.split_once(' ').unwrap().1);
    let sum: u64 = times.map(|time| time.parse::<u64>().unwrap()).sum();
    assert_eq!(printed.lines().count(), 4, "{printed}");
    (
        Profile::new(bench.recording(), &Default::default()),
        sum - BEFORE_EXEC_NS,
    )
}

/// Weight of the processes of that executable, by the method that found their callers.
fn weight(profile: &Profile, executable: &str, copied: bool) -> u64 {
    let recording = &profile.recording;
    let of = |sample: &&Sample| {
        let thread = &recording.threads[sample.thread.index()];
        let process = &recording.processes[thread.process.index()];
        let method = profile
            .walk(sample.stack)
            .filter_map(|frame| frame.method)
            .find(|method| *method != Method::Registers);
        process.name().starts_with(executable) && (method == Some(Method::StackCopy)) == copied
    };
    profile
        .samples
        .iter()
        .filter(of)
        .map(|sample| sample.weight)
        .sum()
}

fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let frames = profile.walk(sample.stack);
    frames.map(|frame| &*profile.function(frame).name).collect()
}

#[track_caller]
fn about(what: &str, periods: u64, truth_ns: u64) {
    let (truth, delivered) = (truth_ns as f64, periods as f64 * 1e6);
    // Two per cent, and for each of a few program runs the period that no rate can divide.
    assert_measured!(
        stands_for(delivered, truth, truth * 0.02 + 4e6),
        "{what}: {delivered} of {truth} ns"
    );
}

#[test]
fn a_dynamic_child_unwinds_itself_and_counts_once() {
    judge(|| {
        let (profile, truth) = record(&victim::c("static_split.c"));
        about(
            "by themselves",
            weight(&profile, "static_split", false),
            truth,
        );
        // Its copies end when it unwinds itself, a millisecond or two after exec, more on a busy
        // machine: a few ticks may fall before that, twice. Counted twice it would have hundreds.
        let early = weight(&profile, "static_split", true);
        assert_measured!(early <= 10, "{early}");
        // A stack of one frame does not tell how its callers were found.
        let untold = weight(&profile, "static_parent", false);
        assert_measured!(untold <= 10, "{untold}");
        // The same three times, and once in the child that then called exec.
        about(
            "copied",
            weight(&profile, "static_parent", true),
            4 * BEFORE_EXEC_NS,
        );
        let processes = &profile.recording.processes;
        let count = |name: &str| {
            processes
                .iter()
                .filter(|p| p.name().starts_with(name))
                .count()
        };
        assert_eq!(count("static_split"), 2, "{processes:?}");
        // The child of fork; that of posix_spawn is seen only if a tick falls between its start and
        // its exec.
        let parents = count("static_parent");
        assert!((2..=3).contains(&parents), "{processes:?}");
    });
}

#[test]
fn a_static_child_is_copied_too() {
    judge(|| {
        let child = victim::compile(Compiler::C, "static_split.c", &["-static"]);
        let (profile, truth) = record(&child);
        about("children", weight(&profile, "static_split", true), truth);
        let processes = &profile.recording.processes;
        let children: Vec<_> = processes
            .iter()
            .filter(|process| process.name().starts_with("static_split"))
            .collect();
        assert_eq!(children.len(), 2, "{processes:?}");
        let forked: Vec<_> = processes
            .iter()
            .filter(|process| process.origin == Origin::Fork)
            .collect();
        // The child of fork before its exec; that of posix_spawn does no work of its own, but a
        // tick may fall before its exec.
        assert!((1..=2).contains(&forked.len()), "{processes:?}");
        let in_child: Vec<_> = profile
            .samples
            .iter()
            .filter(|sample| {
                let thread = &profile.recording.threads[sample.thread.index()];
                profile.recording.processes[thread.process.index()].origin == Origin::Fork
            })
            .collect();
        let whole = |sample: &&&Sample| names(&profile, sample).last() == Some(&"_start");
        let whole = in_child.iter().filter(whole).count();
        assert_measured!(
            whole * 100 >= in_child.len() * 95 && whole > 50,
            "{whole} of {}",
            in_child.len()
        );
    });
}

#[test]
fn the_end_of_a_recording_does_not_end_a_static_program() {
    let bench = Bench::new();
    let source = "#include <stdio.h>\n#include <unistd.h>\n#include <signal.h>\nstatic void on(int n) { write(1, \"told\\n\", 5 + 0 * n); _exit(0); }\n\
                  int main(void) { signal(SIGTERM, on); volatile double x = 0; for (;;) x += 1; }";
    let program = bench.compile("gcc", &["-static", "-w"], source);
    let result = output(bench.record(&["-F", "1k", "-d", "2s"]).arg(&program));
    assert_eq!(
        (result.status.code(), text(&result.stdout)),
        (Some(0), "told\n".into())
    );
    let recording = bench.recording();
    let weight: u64 = recording.samples.iter().map(|sample| sample.weight).sum();
    assert!(weight > 0 && recording.threads.len() == 1, "{weight}");
    assert!(recording.threads[0].end.is_some());
}
