//! Time off the CPU: `record --off-cpu` of programs that measure their own waits, and what the
//! other commands make of it.

use collector::correlate;
use collector::profile::{Mode, Profile, Sample};
use collector::recording::KernelHalf;
use engine::wire::source::OFF_CPU;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, text};
use rsunwind_tests::paranoid::{NOBODY, Setting, for_everybody};
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::waits::{self, Measured};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const WAYS: [&str; 4] = ["napping", "polling", "reading", "awaiting"];

/// Runs the victim under `record` with those options; gives its profile of time off the CPU, what
/// it measured, and what was said.
fn record(options: &[&str], program: &Path) -> (Profile, Vec<Measured>, String) {
    let bench = Bench::new();
    let result = output(bench.record(options).arg(program).arg("1500"));
    let said = text(&result.stderr);
    assert_eq!(result.status.code(), Some(3), "{said}");
    let profile = Profile::new(bench.recording(), &Default::default());
    (shown(profile), waits::read(&text(&result.stdout)), said)
}

fn shown(mut profile: Profile) -> Profile {
    profile.show_event("off-cpu").expect("it was recorded");
    profile
}

/// Names on a stack, from the leaf.
fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let frames = profile.walk(sample.stack);
    frames.map(|frame| &*profile.function(frame).name).collect()
}

/// Samples with that function on their stack.
fn samples_in<'a>(profile: &'a Profile, function: &str) -> Vec<&'a Sample> {
    let samples = profile.samples.iter();
    let inside = samples.filter(|sample| names(profile, sample).contains(&function));
    inside.collect()
}

/// Each way of waiting took as long as the program says, and the program saw nothing of being
/// watched.
#[track_caller]
fn durations_are_true(profile: &Profile, measured: &[Measured]) {
    assert_eq!(measured.len(), WAYS.len());
    for truth in measured {
        let samples = samples_in(profile, &truth.name);
        let off: u64 = samples.iter().map(|sample| sample.weight).sum();
        let waited = (truth.wall_ns - truth.cpu_ns) as f64;
        assert_measured!(
            stands_for(waited, off as f64, waited * 0.02),
            "{off} ns off the CPU, {truth:?}"
        );
        assert_eq!((truth.interrupted, truth.too_short), (0, 0), "{truth:?}");
        assert_measured!(truth.calls > 20, "{truth:?}");
        // At least one absence a call: each of them waits, if the other side is not ahead for once.
        let absences = samples.len() as u64;
        assert_measured!(absences >= truth.calls * 9 / 10, "{absences}: {truth:?}");
        for sample in &samples {
            let thread = &profile.recording.threads[sample.thread.index()];
            assert_eq!(thread.tid, truth.tid, "{}", truth.name);
        }
    }
}

/// From the scheduler to where the thread began, by name.
#[track_caller]
fn stacks_are_whole(profile: &Profile, outer: &str) {
    for way in WAYS {
        for sample in samples_in(profile, way) {
            let names = names(profile, sample);
            assert!(sample.complete, "{names:?}");
            assert_eq!(sample.kernel, KernelHalf::Merged, "{names:?}");
            // Without libc's debug symbols its functions have no names.
            let outermost = |name: &str| name == outer || name.starts_with("[libc.so");
            let mut parts = names.windows(3);
            let chained = parts.any(|part| part[..2] == [way, "member"] && outermost(part[2]));
            assert!(chained, "{names:?}");
            let mut frames = profile.walk(sample.stack);
            assert!(
                frames.any(|frame| profile.function(frame).mode == Mode::Kernel),
                "{names:?}"
            );
        }
    }
    let waits = [
        ("napping", "hrtimer_nanosleep"),
        ("polling", "do_sys_poll"),
        ("reading", "anon_pipe_read"),
        ("awaiting", "futex_wait"),
    ];
    let kernel_names = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    for (way, call) in waits {
        if !kernel_names.contains(&format!(" {call}\n")) {
            continue; // another kernel's name for it
        }
        let time = |samples: &[&Sample]| samples.iter().map(|sample| sample.weight).sum::<u64>();
        let mut samples = samples_in(profile, way);
        let all = time(&samples);
        samples.retain(|sample| names(profile, sample).contains(&call));
        let inside = time(&samples);
        // The rest it waited for a processor.
        assert_measured!(
            inside / 8 >= all / 10,
            "{way} waits in {call}: {inside} of {all}"
        );
    }
}

#[test]
fn waits_are_as_long_as_the_program_says_and_the_program_sees_nothing() {
    judge(|| {
        let (profile, measured, said) = record(&["--off-cpu"], &victim::c("off_cpu.c"));
        durations_are_true(&profile, &measured);
        stacks_are_whole(&profile, "start_thread");
        assert!(said.contains("event  off-cpu: "), "{said}");
        assert!(said.contains("cut short at 16 KiB, 0 lost"), "{said}");
        // The threads are those that the program's own samples are of, and nobody else's.
        assert_eq!(profile.recording.processes.len(), 1);
        assert_eq!(profile.recording.threads.len(), 5);
    });
}

#[test]
fn a_static_program_waits_as_well() {
    judge(|| {
        let program = victim::compile(Compiler::C, "off_cpu.c", &["-static"]);
        let (profile, measured, said) = record(&["--off-cpu"], &program);
        assert!(said.contains("the kernel copies its stacks"), "{said}");
        durations_are_true(&profile, &measured);
        stacks_are_whole(&profile, "start_thread");
        assert_eq!(profile.recording.processes.len(), 1);
        assert_eq!(profile.recording.threads.len(), 5);
    });
}

#[test]
fn who_sleeps_when_recording_ends_has_slept_until_then() {
    judge(|| {
        let bench = Bench::new();
        let mut record = bench.record(&["-q", "--off-cpu", "-d", "1500ms"]);
        let ran = output(record.arg(victim::c("off_cpu.c")).args(["0", "forever"]));
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let profile = shown(Profile::new(bench.recording(), &Default::default()));
        let session = profile.recording.session.as_ref().expect("an account");
        assert_eq!(profile.recording.threads.len(), 2);
        for (index, thread) in profile.recording.threads.iter().enumerate() {
            let samples = samples_in(&profile, "sleeping_on");
            let own = samples
                .iter()
                .filter(|sample| sample.thread.index() == index);
            let off: u64 = own.map(|sample| sample.weight).sum();
            let life = session.end_ns - thread.key;
            let deviation = (off as f64 / life as f64 - 1.0).abs();
            assert_measured!(deviation < 0.02, "{}: {off} of {life} ns", thread.tid);
        }
    });
}

#[test]
fn programs_started_by_programs_wait_under_their_own_names() {
    let bench = Bench::new();
    let script = "sleep 0.4; (read line; sleep 0.3) < /dev/null; exec sleep 0.5";
    let mut record = bench.record(&["-q", "--off-cpu"]);
    let ran = output(record.args(["sh", "-c", script]));
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let profile = shown(Profile::new(bench.recording(), &Default::default()));
    let mut slept: Vec<u64> = Vec::new();
    for (index, process) in profile.recording.processes.iter().enumerate() {
        let own = profile.samples.iter().filter(|sample| {
            profile.process_of(sample.thread).index() == index
                && names(&profile, sample)
                    .iter()
                    .any(|name| name.contains("nanosleep"))
        });
        let own: u64 = own.map(|sample| sample.weight / 1_000_000).sum();
        if own > 0 {
            assert_eq!(process.name(), "sleep");
            slept.push(own);
        }
    }
    slept.sort_unstable();
    // They may take longer, not less but for the way from the clock to the scheduler.
    assert_eq!(slept.len(), 3, "{slept:?}");
    for (slept, asked) in slept.iter().zip([300, 400, 500]) {
        assert!(slept + 5 >= asked, "{slept} for {asked}");
    }
    // One after the other: nobody else's time, 300 ms at least, is added to them.
    let session = profile.recording.session.as_ref().expect("an account");
    let most = (session.end_ns - session.start_ns) / 1_000_000;
    let all: u64 = slept.iter().sum();
    assert!(all <= most, "{slept:?} in {most} ms");
    // The shell waits for two of them, if not from their first moment.
    let waits = profile.samples.iter().filter(|sample| {
        names(&profile, sample).contains(&"do_wait") && sample.weight > 50_000_000
    });
    assert!(waits.count() >= 2);
}

#[test]
fn in_a_pid_namespace_of_its_own_a_program_waits_under_its_own_number() {
    judge(|| {
        let bench = Bench::new();
        let mut record = bench.record(&["-q", "--off-cpu"]);
        record.args(["unshare", "--pid", "--fork", "--mount-proc"]);
        let ran = output(record.arg(victim::c("off_cpu.c")).arg("1500"));
        assert_eq!(ran.status.code(), Some(3), "{}", text(&ran.stderr));
        let profile = shown(Profile::new(bench.recording(), &Default::default()));
        let mut processes = profile.recording.processes.iter();
        let inner = processes.find(|process| process.name().starts_with("off_cpu"));
        assert_eq!(inner.expect("it was recorded").pid, 1);
        // What it measured has the numbers that it knows itself by.
        durations_are_true(&profile, &waits::read(&text(&ran.stdout)));
    });
}

#[test]
fn reports_and_files_have_it() {
    let bench = Bench::new();
    let mut record = bench.record(&["-q", "--off-cpu"]);
    let ran = output(record.arg(victim::c("off_cpu.c")).arg("300"));
    assert_eq!(ran.status.code(), Some(3), "{}", text(&ran.stderr));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(rsunwind());
        command.current_dir(bench.path("")).args(arguments);
        let result = output(&mut command);
        assert!(result.status.success(), "{}", text(&result.stderr));
        text(&result.stdout)
    };
    let report = run(&["report", "profile.rsu", "--no-pager", "--event", "off-cpu"]);
    assert!(report.contains(" s of time off the CPU in "), "{report}");
    let waits = |line: &str| line.contains("  napping  ") && line.contains("nanosleep (libc.so");
    assert!(report.lines().any(waits), "{report}");
    let functions = run(&[
        "report",
        "profile.rsu",
        "--no-pager",
        "--event=off-cpu",
        "--by=function",
    ]);
    assert!(functions.contains("  napping\n"), "{functions}");
    let cpu = run(&["report", "profile.rsu", "--no-pager"]);
    assert!(cpu.contains(" of CPU time in "), "{cpu}");
    let folded = run(&[
        "export",
        "profile.rsu",
        "-f",
        "folded",
        "-e",
        "off-cpu",
        "-o",
        "-",
    ]);
    let napping = folded.lines().filter(|line| line.contains(";napping;"));
    let ns = napping.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert!(ns.sum::<u64>() > 200_000_000, "{folded}");
    let lines = run(&[
        "export",
        "profile.rsu",
        "-f",
        "perf-script",
        "-e",
        "off-cpu",
        "-o",
        "-",
    ]);
    assert!(lines.contains(" off-cpu: \n"), "{lines}");
    run(&["export", "profile.rsu", "-e", "off-cpu", "-o", "out.svg"]);
    let svg = std::fs::read_to_string(bench.path("out.svg")).unwrap();
    assert!(svg.contains("of time off the CPU"));
    run(&["export", "profile.rsu", "-o", "out.pb"]);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(bench.path("out.pb")).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    let has = |name: &str| {
        bytes
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    };
    assert!(has("off-cpu"), "a column");
}

#[test]
fn a_format_that_holds_one_event_says_which() {
    let bench = Bench::new();
    let mut command = Command::new(rsunwind());
    command
        .args(["record", "--off-cpu", "-o"])
        .arg(bench.path("out.folded"))
        .args(["--", "sleep", "0.1"]);
    let said = text(&output(&mut command).stderr);
    assert!(
        said.contains("holds CPU time only: for off-cpu record to a .rsu file"),
        "{said}"
    );
}

#[test]
fn where_it_cannot_be_recorded_nothing_is_started() {
    let bench = Bench::new();
    let timer = output(
        bench
            .record(&["--off-cpu", "--trigger=timer"])
            .args(["touch", "started"]),
    );
    assert_eq!(timer.status.code(), Some(2));
    let said = text(&timer.stderr);
    assert!(said.contains("leave --trigger=timer out"), "{said}");
    assert!(!bench.path("started").exists());

    let program = victim::c("off_cpu.c");
    let (directory, files) = for_everybody(&[rsunwind(), &program]);
    let record = || {
        let mut command = Command::new(&files[0]);
        command
            .current_dir(directory.path())
            .uid(NOBODY)
            .gid(NOBODY);
        command.args(["record", "--off-cpu", "-o", "profile.rsu", "--"]);
        command.arg(&files[1]).arg("1500");
        output(&mut command)
    };
    {
        let Ok(_two) = Setting::paranoid("2") else {
            return;
        };
        let refused = record();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(refused.stdout.is_empty(), "it ran");
        let remedy = "time off the CPU: not permitted (kernel.perf_event_paranoid is 2): run as root, give rsunwind CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1";
        assert!(said.contains(remedy), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let _one = Setting::paranoid("1").expect("as before");
    judge(|| {
        let granted = record();
        let said = text(&granted.stderr);
        assert_eq!(granted.status.code(), Some(3), "{said}");
        let recording = correlate::read(&[directory.path().join("profile.rsu")]).unwrap();
        assert!(
            recording
                .sources
                .iter()
                .any(|source| source.event == OFF_CPU)
        );
        let profile = shown(Profile::new(recording, &Default::default()));
        durations_are_true(&profile, &waits::read(&text(&granted.stdout)));
    });
}
