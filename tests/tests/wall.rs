//! Wall-clock time: `record --wall`, against what threads say of their own lives.

use collector::profile::Profile;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, text};
use rsunwind_tests::statistics::{judge, stands_for, stolen_ns};
use rsunwind_tests::victim;
use rsunwind_tests::waits;
use std::process::Command;

fn ns_of_thread(profile: &Profile, tid: u32) -> u64 {
    let own = profile
        .samples
        .iter()
        .filter(|sample| profile.recording.threads[sample.thread.index()].tid == tid);
    own.map(|sample| profile.time_ns(sample)).sum()
}

#[test]
fn each_threads_wall_clock_time_is_its_life() {
    judge(|| {
        let bench = Bench::new();
        let result = output(
            bench
                .record(&["--wall"])
                .arg(victim::c("off_cpu.c"))
                .args(["2000", "busy"]),
        );
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(3), "{said}");
        let mut profile = Profile::new(bench.recording(), &Default::default());
        profile.show_usual();
        assert_eq!(profile.subject(), "wall-clock time");
        let truths = waits::read(&text(&result.stdout));
        assert_eq!(truths.len(), 2);
        for truth in &truths {
            let shown = ns_of_thread(&profile, truth.tid);
            // What the hypervisor takes is no time of the thread's, on the CPU or off it.
            let (shown, wall) = (shown as f64, truth.wall_ns as f64);
            let is_true = stands_for(wall, shown, wall * 0.02);
            let stolen = stolen_ns();
            assert_measured!(is_true, "{shown} ns shown, {stolen} stolen, {truth:?}");
        }
        // What it is made of: CPU time as without, and the rest.
        let truth = truths.iter().find(|truth| truth.name == "mixed").unwrap();
        for (event, part) in [
            ("cpu", truth.cpu_ns),
            ("off-cpu", truth.wall_ns - truth.cpu_ns),
        ] {
            profile.show_event(event).unwrap();
            let shown = ns_of_thread(&profile, truth.tid);
            let (shown, part) = (shown as f64, part as f64);
            let (cpu, clock) = match event {
                "cpu" => (shown, part),
                _ => (part, shown),
            };
            let is_true = stands_for(cpu, clock, part * 0.03);
            assert_measured!(is_true, "{event}: {shown} ns shown of {part}");
        }
    });
}

#[test]
fn a_wall_clock_recording_shows_it_at_once_and_the_others_when_asked() {
    let bench = Bench::new();
    let mut record = bench.record(&["-q", "--wall"]);
    assert!(output(record.args(["sleep", "0.5"])).status.success());
    let run = |arguments: &[&str], status: i32| {
        let mut command = Command::new(rsunwind());
        command.current_dir(bench.path("")).args(arguments);
        let result = output(&mut command);
        assert_eq!(result.status.code(), Some(status));
        text(&result.stdout) + &text(&result.stderr)
    };
    let report = |event: &[&str]| {
        let all = [&["report", "profile.rsu", "--no-pager"], event].concat();
        run(&all, 0)
    };
    assert!(report(&[]).contains("s of wall-clock time in "));
    assert!(report(&["-e", "cpu"]).contains(" of CPU time in "));
    assert!(report(&["-e", "off-cpu"]).contains("s of time off the CPU in "));
    let summary = report(&["--summary"]);
    assert!(summary.contains(" of CPU time, 1 process"), "{summary}");
    assert!(summary.contains("event  off-cpu: "), "{summary}");
    assert!(!summary.contains("event  wall"), "{summary}");
    let unknown = run(&["report", "profile.rsu", "-e", "cycles"], 2);
    assert!(unknown.contains("cpu, off-cpu, wall"), "{unknown}");
    let folded = run(&["export", "profile.rsu", "-f", "folded", "-o", "-"], 0);
    let slept = folded.lines().filter(|line| line.contains("nanosleep"));
    let ns = slept.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(ns.sum::<u64>() > 499_000_000, "{folded}");
    // Files that hold CPU time only are made of that.
    run(&["export", "profile.rsu", "-o", "out.data"], 0);
    let refused = run(
        &["export", "profile.rsu", "-e", "wall", "-o", "out.data"],
        1,
    );
    assert!(refused.contains("leave --event out"), "{refused}");
}

#[test]
fn a_flame_graph_is_of_wall_clock_time() {
    let bench = Bench::new();
    let mut command = Command::new(rsunwind());
    command
        .args(["record", "--wall", "-o"])
        .arg(bench.path("out.svg"))
        .args(["--", "sleep", "0.3"]);
    let result = output(&mut command);
    assert!(result.status.success(), "{}", text(&result.stderr));
    let svg = std::fs::read_to_string(bench.path("out.svg")).unwrap();
    assert!(svg.contains("s of wall-clock time"));
    assert!(!text(&result.stderr).contains("only: for"), "all is in it");
}
