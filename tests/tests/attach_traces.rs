//! `record -p` leaves nothing in a process and changes nothing of what it does, however the
//! recording ends; and says what it cannot record.

use rsunwind_tests::attach::{Recorder, Target, cpu_ns, remove_session, threads, traces};
use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use rsunwind_tests::victim;
use std::fs;
use std::process::{Command, Stdio};

fn samples(bench: &Bench, file: &str) -> usize {
    let read = collector::correlate::read(&[bench.path(file)]);
    read.expect("a recording").samples.len()
}

#[test]
fn however_a_recording_ends_its_process_goes_on_as_before() {
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
        assert!(samples(&bench, "told.rsu") > 0, "{said}");
        goes_on();
    }
    let recorder = Recorder::attach(&bench, "killed.rsu", &["-q"], &who);
    let until = cpu_ns(target.pid()) + 100_000_000;
    wait_for("some work", || (cpu_ns(target.pid()) > until).then_some(()));
    recorder.signal("KILL");
    assert_eq!(recorder.end().0, None);
    remove_session(&bench);
    goes_on();
    // Again, by two at once.
    let recorders = ["one.rsu", "two.rsu"]
        .map(|file| Recorder::attach(&bench, file, &["-q", "-d", "500ms"], &who));
    for recorder in recorders {
        let (status, said) = recorder.end();
        assert_eq!(status, Some(0), "{said}");
    }
    assert!(samples(&bench, "one.rsu") > 0 && samples(&bench, "two.rsu") > 0);
    goes_on();
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
        &["is a thread of", &format!("give {pid}")],
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
fn calls_with_a_timeout_end_as_without_us() {
    let program = victim::c("timed_calls.c");
    let bench = Bench::new();
    let target = Target::start(Command::new(program).arg("1500"));
    let who = target.pid().to_string();
    for options in [&["-q", "-d", "200ms"][..], &["-q", "--wall", "-d", "200ms"]] {
        let (status, said) = Recorder::attach(&bench, "a.rsu", options, &who).end();
        assert_eq!(status, Some(0), "{said}");
    }
    let (status, printed) = target.end();
    assert_eq!(status, Some(0), "{printed}");
    assert_eq!(printed.lines().count(), 13, "{printed}");
    let right = |line: &str| line.ends_with(" timed out, not early");
    assert!(printed.lines().all(right), "{printed}");
}

/// A program that nobody waits for, killed when a test is over.
struct Left(u32);

impl Drop for Left {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-KILL", &self.0.to_string()])
            .status();
    }
}

#[test]
fn a_program_that_was_started_can_be_left_running() {
    let bench = Bench::new();
    // Not into a pipe, which the program would keep open.
    let errors = bench.path("errors");
    let mut record = bench.record(&["-d", "300ms", "--detach"]);
    record
        .arg(victim::c("static_split.c"))
        .args(["600000", "2"]);
    let file = fs::File::create(&errors).unwrap();
    let mut record = record.stdout(Stdio::null()).stderr(file).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", record.id());
    let program = wait_for("the program", || {
        let all = fs::read_to_string(&children).ok()?;
        let mut pids = all.split_ascii_whitespace().map(|pid| pid.parse().unwrap());
        pids.find(|pid| threads(*pid).len() == 2)
    });
    let left = Left(program);
    let status = record.wait().unwrap();
    let said = fs::read_to_string(&errors).unwrap();
    assert!(status.success(), "{status}: {said}");
    let line = format!("the program (pid {program}) runs on, from here on unprofiled");
    assert!(said.contains(&line), "{said}");
    assert!(samples(&bench, "profile.rsu") > 0, "{said}");
    wait_for("its events to be closed", || {
        let open = fs::read_dir(format!("/proc/{program}/fd")).ok()?;
        let links = open.flatten().map(|entry| fs::read_link(entry.path()));
        let mut links = links.map(|link| link.unwrap_or_default());
        (!links.any(|link| link.ends_with("anon_inode:[perf_event]"))).then_some(())
    });
    let used = cpu_ns(program);
    wait_for("it to go on", || (cpu_ns(program) > used).then_some(()));
    drop(left);
}
