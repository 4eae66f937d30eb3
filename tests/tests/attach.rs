//! `record -p`: processes that run already, against the truth, and what they start later.
//!
//! Not here: what becomes of the processes (`attach_traces.rs`).

use collector::profile::{Profile, Sample};
use collector::recording::Process;
use rsunwind_tests::assert_measured;
use rsunwind_tests::attach::{Recorder, Target, cpu_ns, threads, used};
use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use rsunwind_tests::paranoid::{NOBODY, Setting, for_everybody};
use rsunwind_tests::profiles::{self, names, profile, weight};
use rsunwind_tests::statistics::{judge, stands_for, stolen_ns};
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::waits;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Shares of `static_split.c`.
#[track_caller]
fn split_is_true(profile: &Profile) {
    let all = weight(profile, |_| true);
    assert!(all >= 300, "{all} periods are too few to judge by");
    for (function, truth) in [("half", 50.0), ("third", 30.0), ("fifth", 20.0)] {
        let part = weight(profile, |sample| names(profile, sample).contains(&function));
        let share = part as f64 * 100.0 / all as f64;
        // A turn is some milliseconds: what was recorded begins and ends anywhere in one.
        assert_measured!(
            (share - truth).abs() < if all < 2000 { 8.0 } else { 2.0 },
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

/// CPU time that the samples of a thread stand for, ns.
fn delivered(profile: &Profile, tid: u32) -> u64 {
    profiles::delivered(profile, tid, |_| true)
}

#[test]
fn threads_that_run_are_recorded_from_then_on() {
    for arguments in [&[][..], &["-static"]] {
        judge(|| {
            let program = victim::compile(Compiler::C, "static_split.c", arguments);
            let bench = Bench::new();
            let target = Target::start(Command::new(&program).args(["300", "4"]));
            wait_for("its threads", || {
                (threads(target.pid()).len() == 4).then_some(())
            });
            let before: BTreeMap<u32, u64> = threads(target.pid())
                .into_iter()
                .map(|tid| (tid, cpu_ns(tid)))
                .collect();
            let recorder = Recorder::attach(&bench, "a.rsu", &[], &target.pid().to_string());
            let after: BTreeMap<u32, u64> = before.keys().map(|tid| (*tid, cpu_ns(*tid))).collect();
            let (status, printed) = target.end();
            assert_eq!(status, Some(3), "the program's own");
            let (status, said) = recorder.end();
            assert_eq!(status, Some(0), "it ends with the program: {said}");
            assert!(said.contains("the kernel copies the stacks"), "{said}");
            let profile = profile(&bench, "a.rsu");
            split_is_true(&profile);
            stacks_are_complete(&profile);
            let used = used(&printed);
            assert_eq!(used.len(), 4, "{printed}");
            for (tid, ns) in used {
                let (least, most) = (ns - after[&tid], ns - before[&tid]);
                let got = delivered(&profile, tid) as f64;
                let (least, most) = (
                    least as f64 * 0.98 - 3e6,
                    most as f64 * 1.02 + 3e6 + stolen_ns(),
                );
                assert_measured!(least < got && got < most, "{tid}: {least} {got} {most}");
            }
        });
    }
}

#[test]
fn what_it_starts_later_is_recorded_too() {
    judge(|| {
        let bench = Bench::new();
        // A program in a child, a child that runs on in the same program, one in its place.
        let script = "\"$1\" 250 2 & (i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done) & \
                      wait; exec \"$1\" 250 2";
        let mut target = Target::waiting(script, &[&victim::c("static_split.c")]);
        let pid = target.pid();
        let recorder = Recorder::attach(&bench, "a.rsu", &["-q"], &pid.to_string());
        target.go();
        let (status, printed) = target.end();
        assert_eq!(status, Some(3));
        assert_eq!(recorder.end().0, Some(0));
        let profile = profile(&bench, "a.rsu");
        let used = used(&printed);
        assert_eq!(used.len(), 4, "{printed}");
        assert!(used.contains_key(&pid), "it has replaced its program");
        for (tid, ns) in used {
            let (got, ns) = (delivered(&profile, tid) as f64, ns as f64);
            assert_measured!(
                stands_for(got, ns, ns * 0.02 + 5e6),
                "{tid}: {got} of {ns} ns"
            );
        }
        // Not in what it was before it became another program.
        let recording = &profile.recording;
        let looped = weight(&profile, |sample| {
            let thread = &recording.threads[sample.thread.index()];
            let process = &recording.processes[thread.process.index()];
            process.executable.ends_with("sh") && process.pid != pid
        });
        assert!(looped > 40, "{looped} periods in the loop");
        stacks_are_complete(&profile);
    });
}

/// What is recorded of them is written once a second, when such processes are gone.
#[test]
fn processes_that_end_soon_are_known_by_their_command() {
    judge(|| {
        let bench = Bench::new();
        let script = "for turn in 1 2 3 4 5 6; do \"$1\" 150 1; done";
        let mut target = Target::waiting(script, &[&victim::c("static_split.c")]);
        let pid = target.pid();
        let recorder = Recorder::attach(&bench, "a.rsu", &["-q"], &pid.to_string());
        target.go();
        drop(target.end());
        assert_eq!(recorder.end().0, Some(0));
        let profile = profile(&bench, "a.rsu");
        let processes = &profile.recording.processes;
        // None is taken for a thread of the kernel's, which has no command.
        assert!(processes.iter().all(|process| process.command != ["[]"]));
        let is_known = |process: &&Process| process.command.iter().any(|word| word == "150");
        let known = processes.iter().filter(is_known).count();
        assert_measured!(known >= 5, "{known} of 6");
    });
}

#[test]
fn waits_are_as_long_as_without_us_and_recorded() {
    judge(|| {
        let bench = Bench::new();
        let mut target = Target::waiting("exec \"$1\" 800", &[&victim::c("off_cpu.c")]);
        let who = target.pid().to_string();
        let recorder = Recorder::attach(&bench, "a.rsu", &["-q", "--off-cpu"], &who);
        target.go();
        let (status, printed) = target.end();
        assert_eq!(status, Some(3));
        assert_eq!(recorder.end().0, Some(0));
        let mut profile = profile(&bench, "a.rsu");
        profile.show_event("off-cpu").expect("it was recorded");
        for truth in waits::read(&printed) {
            assert_eq!((truth.interrupted, truth.too_short), (0, 0), "{truth:?}");
            let waited = (truth.wall_ns - truth.cpu_ns) as f64;
            let in_it = |sample: &Sample| names(&profile, sample).contains(&&*truth.name);
            let off = weight(&profile, in_it) as f64;
            assert_measured!(
                stands_for(waited, off, waited * 0.02),
                "{off} ns off the CPU, {truth:?}"
            );
        }
    });
}

#[test]
fn a_process_that_only_sleeps() {
    let bench = Bench::new();
    let program = bench.compile(
        "gcc",
        &["-g"],
        "#include <unistd.h>\nint main(void) { sleep(600); }",
    );
    let target = Target::start(&mut Command::new(program));
    wait_for("its sleep", || {
        let call = fs::read_to_string(format!("/proc/{}/syscall", target.pid())).unwrap();
        let number = format!("{} ", libc::SYS_clock_nanosleep);
        call.starts_with(&number).then_some(())
    });
    let who = target.pid().to_string();
    let (status, said) = Recorder::attach(&bench, "cpu.rsu", &["-d", "100ms"], &who).end();
    assert_eq!(status, Some(0));
    assert!(said.contains("no thread used CPU time"), "{said}");
    assert!(!said.contains("nothing is missing"), "{said}");
    let options = ["--wall", "-d", "300ms"];
    let (status, said) = Recorder::attach(&bench, "wall.rsu", &options, &who).end();
    assert_eq!(status, Some(0), "{said}");
    let mut profile = profile(&bench, "wall.rsu");
    profile.show_event("off-cpu").expect("it was recorded");
    let slept = weight(&profile, |_| true);
    assert!(slept >= 300_000_000, "{slept} ns: {said}");
    let there = weight(&profile, |sample| {
        sample.complete && names(&profile, sample).contains(&"main")
    });
    assert_eq!(there, slept, "{said}");
}

#[test]
fn several_at_once_by_name_and_one_that_unwinds_itself() {
    judge(|| {
        let bench = Bench::new();
        let program = bench.path("a-name-of-our-own");
        fs::copy(victim::c("static_split.c"), &program).unwrap();
        let plain = Target::start(Command::new(&program).args(["500", "1"]));
        let mut recorded = bench.record(&["-q", "-F", "2k"]);
        let recorded = Target::start(recorded.arg(&program).args(["500", "1"]));
        wait_for("both", || {
            let found = collector::target::find("a-name-of-our-own").ok()?;
            (found.len() == 2).then_some(())
        });
        let recorder = Recorder::attach(&bench, "a.rsu", &["-q"], "a-name-of-our-own");
        let (status, printed) = plain.end();
        assert_eq!(status, Some(3));
        let (status, also) = recorded.end();
        assert_eq!(status, Some(3), "the program's own, under both");
        let (status, said) = recorder.end();
        assert_eq!(status, Some(0), "{said}");
        let from_outside = profile(&bench, "a.rsu");
        split_is_true(&from_outside);
        assert_eq!(from_outside.recording.processes.len(), 2, "{said}");
        for tid in used(&(printed + &also)).keys() {
            assert!(delivered(&from_outside, *tid) > 0, "{tid}: {said}");
        }
        split_is_true(&profile(&bench, "profile.rsu"));
    });
}

#[test]
fn an_ordinary_user_records_what_is_theirs() {
    judge(|| {
        let level = Setting::paranoid("2");
        let split = victim::c("static_split.c");
        let (place, files) = for_everybody(&[rsunwind(), &split]);
        let as_nobody = |command: &mut Command| {
            command.uid(NOBODY).gid(NOBODY).current_dir(place.path());
        };
        let mut program = Command::new(&files[1]);
        as_nobody(program.args(["500", "2"]));
        let own = Target::start(&mut program);
        let others = Target::busy();
        let mut refused = Command::new(&files[0]);
        as_nobody(refused.args(["record", "-p", &others.pid().to_string()]));
        let result = output(&mut refused);
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(1), "{said}");
        assert!(
            said.contains("belongs to user 0") && said.contains("as root"),
            "{said}"
        );
        drop(others);
        let mut waits = Command::new(&files[0]);
        as_nobody(waits.args(["record", "--wall", "-p", &own.pid().to_string()]));
        if level.is_ok() {
            let said = text(&output(&mut waits).stderr);
            assert!(
                said.contains("time off the CPU") && said.contains("perf_event_paranoid"),
                "{said}"
            );
        }
        let mut recording = Command::new(&files[0]);
        recording.args(["record", "-F", "2k", "-o", "own.rsu", "-p"]);
        as_nobody(recording.arg(own.pid().to_string()));
        let recorder = Recorder::begin(&mut recording);
        assert_eq!(own.end().0, Some(3));
        let (status, said) = recorder.end();
        assert_eq!(status, Some(0), "{said}");
        assert_eq!(said.contains("in user mode only"), level.is_ok(), "{said}");
        let read = collector::correlate::read(&[place.path().join("own.rsu")]);
        split_is_true(&Profile::new(
            read.expect("a recording"),
            &Default::default(),
        ));
    });
}
