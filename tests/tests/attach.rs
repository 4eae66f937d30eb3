//! `record -p`: processes that run already, against the truth; what they start later; and that
//! nothing of it stays in them, however the recording ends.

use collector::profile::{Profile, Sample};
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use rsunwind_tests::paranoid::{NOBODY, Setting, for_everybody};
use rsunwind_tests::statistics::judge;
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::waits;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that runs, and is killed if it still does when a test is over.
struct Target(Child);

impl Target {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().expect("it starts"))
    }

    /// Two threads that burn CPU time until they are killed.
    fn busy() -> Self {
        let target = Self::start(Command::new(victim::c("static_split.c")).args(["600000", "2"]));
        wait_for("its threads", || {
            (threads(target.pid()).len() == 2).then_some(())
        });
        target
    }

    /// A shell that goes on with `script` when it is told to.
    fn waiting(script: &str, programs: &[&Path]) -> Self {
        let script = format!("read line; {script}");
        Self::start(
            Command::new("sh")
                .args(["-c", &script, "sh"])
                .args(programs),
        )
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn go(&mut self) {
        let input = self.0.stdin.take();
        input.expect("a pipe").write_all(b"go\n").expect("it reads");
    }

    /// Waits for its end; gives its status and what it wrote.
    fn end(mut self) -> (Option<i32>, String) {
        let mut printed = String::new();
        let output = self.0.stdout.as_mut().expect("a pipe");
        output.read_to_string(&mut printed).expect("text");
        (self.0.wait().expect("it ends").code(), printed)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recording of a process under way.
struct Recorder(Child);

impl Recorder {
    /// From here on the process is recorded.
    fn attach(bench: &Bench, file: &str, options: &[&str], who: &str) -> Self {
        let mut command = Command::new(rsunwind());
        command
            .args(["record", "-F", "2k", "-p", who])
            .args(options);
        Self::begin(command.arg("-o").arg(bench.path(file)))
    }

    fn begin(command: &mut Command) -> Self {
        let child = command.stderr(Stdio::piped()).spawn().expect("it runs");
        let mut recorder = Self(child);
        // The thread that reads the rings begins when all events are open.
        wait_for("the events", || {
            let names = threads(recorder.0.id()).into_iter().map(|tid| {
                let pid = recorder.0.id();
                fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default()
            });
            let reads = names.into_iter().any(|name| name.trim() == "read-copies");
            (reads || recorder.0.try_wait().unwrap().is_some()).then_some(())
        });
        recorder
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for its end; gives its status and what it said.
    fn end(self) -> (Option<i32>, String) {
        let result = self.0.wait_with_output().expect("it ends");
        (result.status.code(), text(&result.stderr))
    }
}

#[track_caller]
fn profile(bench: &Bench, file: &str) -> Profile {
    let read = collector::correlate::read(&[bench.path(file)]);
    Profile::new(read.expect("a recording"), &Default::default())
}

fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let entries = entries.flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// CPU time of a thread, ns.
fn cpu_ns(tid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("it runs");
    text.split(' ').next().unwrap().parse().unwrap()
}

fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let frames = profile.walk(sample.stack);
    frames.map(|frame| &*profile.function(frame).name).collect()
}

fn weight(profile: &Profile, keep: impl Fn(&Sample) -> bool) -> u64 {
    let kept = profile.samples.iter().filter(|sample| keep(sample));
    kept.map(|sample| sample.weight).sum()
}

/// Shares of `static_split.c`, of nearly all of which the stacks are complete.
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
    let complete = weight(profile, |sample| sample.complete);
    assert_measured!(complete * 100 >= all * 99, "{complete} of {all} complete");
}

/// CPU time that each thread says it used at its end, ns.
fn used(printed: &str) -> BTreeMap<u32, u64> {
    let lines = printed.lines().map(|line| line.split_once(' ').unwrap());
    lines
        .map(|(tid, ns)| (tid.parse().unwrap(), ns.parse().unwrap()))
        .collect()
}

/// CPU time that the samples of a thread stand for, ns.
fn delivered(profile: &Profile, tid: u32) -> u64 {
    let threads = profile.recording.threads.iter().enumerate();
    let of_it = threads.filter(|(_, thread)| thread.tid == tid);
    let ns = of_it.map(|(index, thread)| {
        let own = weight(profile, |sample| sample.thread.index() == index);
        own * thread.armings[0].period_ns
    });
    ns.sum()
}

#[test]
fn threads_that_run_are_recorded_from_then_on() {
    for arguments in [&[][..], &["-static"]] {
        judge(|| {
            let program = victim::compile(Compiler::C, "static_split.c", arguments);
            let bench = Bench::new();
            let target = Target::start(Command::new(&program).args(["400", "4"]));
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
            let used = used(&printed);
            assert_eq!(used.len(), 4, "{printed}");
            for (tid, ns) in used {
                let (least, most) = (ns - after[&tid], ns - before[&tid]);
                let got = delivered(&profile, tid) as f64;
                let (least, most) = (least as f64 * 0.98 - 3e6, most as f64 * 1.02 + 3e6);
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
            let got = delivered(&profile, tid);
            let deviation = got.abs_diff(ns) as f64;
            assert_measured!(
                deviation < ns as f64 * 0.02 + 5e6,
                "{tid}: {got} of {ns} ns"
            );
        }
        let shells = profile.recording.processes.iter();
        let shells: Vec<u32> = shells
            .filter(|process| process.executable.ends_with("sh") && process.pid != pid)
            .map(|process| process.pid)
            .collect();
        assert_eq!(shells.len(), 1, "{:?}", profile.recording.processes);
        let looped = delivered(&profile, shells[0]);
        assert!(looped > 20_000_000, "{looped} ns in the loop");
        let complete = weight(&profile, |sample| sample.complete);
        let all = weight(&profile, |_| true);
        assert_measured!(complete * 100 >= all * 97, "{complete} of {all} complete");
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
            let waited = truth.wall_ns - truth.cpu_ns;
            let in_it = |sample: &Sample| names(&profile, sample).contains(&&*truth.name);
            let off = weight(&profile, in_it);
            let deviation = (off as f64 / waited as f64 - 1.0).abs();
            assert_measured!(deviation < 0.02, "{off} ns off the CPU, {truth:?}");
        }
    });
}

#[test]
fn a_process_that_only_sleeps() {
    let bench = Bench::new();
    let target = Target::start(Command::new("sleep").arg("600"));
    let who = target.pid().to_string();
    let (status, said) = Recorder::attach(&bench, "cpu.rsu", &["-d", "100ms"], &who).end();
    assert_eq!(status, Some(0));
    assert!(said.contains("no thread used CPU time"), "{said}");
    let options = ["--wall", "-d", "300ms"];
    let (status, said) = Recorder::attach(&bench, "wall.rsu", &options, &who).end();
    assert_eq!(status, Some(0), "{said}");
    let mut profile = profile(&bench, "wall.rsu");
    profile.show_event("off-cpu").expect("it was recorded");
    let slept = weight(&profile, |_| true);
    assert!(slept >= 300_000_000, "{slept} ns: {said}");
}

/// What of a process could show that somebody was there.
fn traces(pid: u32) -> Vec<String> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).expect("it runs");
    let status = file("status");
    let kept = [
        "SigPnd",
        "ShdPnd",
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "TracerPid",
        "Threads",
        "Seccomp",
    ];
    let lines = status
        .lines()
        .filter(|line| kept.iter().any(|start| line.starts_with(start)));
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let mut all: Vec<String> = lines.map(str::to_owned).collect();
    all.push(file("maps"));
    all.push(format!("{} descriptors", descriptors.count()));
    all
}

#[test]
fn however_a_recording_ends_its_process_goes_on_as_before() {
    judge(|| {
        let bench = Bench::new();
        let target = Target::busy();
        let who = target.pid().to_string();
        let before = traces(target.pid());
        let goes_on = || {
            let used = cpu_ns(target.pid());
            wait_for("it to go on", || {
                (cpu_ns(target.pid()) > used).then_some(())
            });
            assert_eq!(traces(target.pid()), before);
        };
        for signal in ["INT", "TERM"] {
            let recorder = Recorder::attach(&bench, "told.rsu", &["-q"], &who);
            assert_eq!(traces(target.pid()), before, "while it is recorded");
            goes_on();
            recorder.signal(signal);
            let (status, said) = recorder.end();
            assert_eq!(status, Some(0), "{said}");
            assert!(!profile(&bench, "told.rsu").samples.is_empty(), "{said}");
            goes_on();
        }
        let recorder = Recorder::attach(&bench, "killed.rsu", &["-q"], &who);
        let until = cpu_ns(target.pid()) + 100_000_000;
        wait_for("some work", || (cpu_ns(target.pid()) > until).then_some(()));
        recorder.signal("KILL");
        assert_eq!(recorder.end().0, None);
        goes_on();
        // Again, by two at once.
        let recorders = ["one.rsu", "two.rsu"]
            .map(|file| Recorder::attach(&bench, file, &["-q", "-d", "500ms"], &who));
        for recorder in recorders {
            let (status, said) = recorder.end();
            assert_eq!(status, Some(0), "{said}");
        }
        split_is_true(&profile(&bench, "one.rsu"));
        split_is_true(&profile(&bench, "two.rsu"));
        goes_on();
    });
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
fn what_cannot_be_recorded_is_said() {
    let target = Target::busy();
    let mut child = Command::new("true").spawn().unwrap();
    let ended = child.id();
    wait_for("its end", || {
        let stat = fs::read_to_string(format!("/proc/{ended}/stat")).unwrap();
        stat.contains(") Z").then_some(())
    });
    let pid = target.pid().to_string();
    let thread = threads(target.pid())
        .into_iter()
        .find(|tid| *tid != target.pid());
    let thread = thread.unwrap().to_string();
    let refused = |arguments: &[&str], status: i32, parts: &[&str]| {
        let bench = Bench::new();
        let mut command = Command::new(rsunwind());
        command.args(["record", "-o"]).arg(bench.path("a.rsu"));
        let result = output(command.args(arguments));
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(status), "{arguments:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{arguments:?}: {part}: {said}");
        }
        assert!(!bench.path("a.rsu").exists(), "{arguments:?}");
    };
    refused(&["-p", &ended.to_string()], 1, &["has ended already"]);
    child.wait().unwrap();
    refused(
        &["-p", &ended.to_string()],
        1,
        &["no process has the number"],
    );
    refused(
        &["-p", "no-such-name"],
        1,
        &["no process is called no-such-name"],
    );
    refused(
        &["-p", &thread],
        1,
        &["is a thread of", &format!("-p {pid}")],
    );
    refused(&["-p", ""], 1, &["-p 4711,nginx"]);
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        refused(&["-p", "2"], 1, &["kthreadd (2) is a kernel thread"]);
    }
    refused(
        &["-p", &pid, "true"],
        2,
        &["leave the command out", "-d 10s"],
    );
    refused(&["-p", &pid, "-e", "page-faults"], 2, &["--off-cpu"]);
    refused(&["-p", &pid, "--wait"], 2, &["--wait"]);
    refused(&["-p", &pid, "--trigger", "timer"], 2, &["perf events"]);
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
