//! `rsunwind record` and signals, time and sleep: what reaches the program, when recording ends,
//! and how often rsunwind wakes up.

use rsunwind_tests::command::{Bench, output, rsunwind, sleeps, text, wait_for};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Says that it is ready, then of the SIGINT, SIGTERM and SIGHUP that it gets how many they are;
/// and once more when there was none for a second after as many as it is told to expect.
const COUNTS: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static volatile int count;
static void on(int signal) { count++; }
static void nap(long ms) { struct timespec t = { ms / 1000, ms % 1000 * 1000000 }; while (nanosleep(&t, &t)) {} }
int main(int arguments, char **argument) {
  int signals[] = { SIGINT, SIGTERM, SIGHUP }, expected = arguments > 1 ? atoi(argument[1]) : 1, told = 0;
  for (int i = 0; i < 3; i++) { struct sigaction a = { .sa_handler = on }; sigaction(signals[i], &a, 0); }
  puts("ready"); fflush(stdout);
  while (told < expected) {
    if (count > told) { told = count; printf("count %d\n", told); fflush(stdout); }
    nap(10);
  }
  nap(1000);
  printf("in all %d\n", count);
  return 5;
}
"#;

/// A recording under way, and the lines that its program prints.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim().into()
    }

    fn kill(&self, arguments: &[String]) {
        assert!(
            Command::new("/bin/kill")
                .args(arguments)
                .status()
                .unwrap()
                .success()
        );
    }
}

fn counting() -> (Bench, PathBuf) {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-w"], COUNTS);
    (bench, program)
}

#[test]
fn a_signal_to_rsunwind_reaches_the_program_once() {
    for signal in ["-TERM", "-INT", "-HUP"] {
        let (bench, program) = counting();
        let mut running = Running::start(bench.record(&["-q"]).arg(program));
        assert_eq!(running.line(), "ready");
        running.kill(&[signal.into(), running.child.id().to_string()]);
        assert_eq!(running.line(), "count 1", "{signal}");
        assert_eq!(running.line(), "in all 1", "{signal}");
        assert_eq!(running.child.wait().unwrap().code(), Some(5));
        assert!(
            bench.recording().session.is_some(),
            "the profile is complete"
        );
    }
}

#[test]
fn a_signal_to_the_whole_group_reaches_the_program_once() {
    let (bench, program) = counting();
    let mut running = Running::start(bench.record(&["-q"]).arg(program));
    assert_eq!(running.line(), "ready");
    running.kill(&[
        "-TERM".into(),
        "--".into(),
        format!("-{}", running.child.id()),
    ]);
    assert_eq!(running.line(), "count 1");
    assert_eq!(running.line(), "in all 1");
    assert_eq!(running.child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_signal_after_one_to_the_group_is_passed_on_again() {
    let (bench, program) = counting();
    let mut running = Running::start(bench.record(&["-q"]).arg(program).arg("2"));
    assert_eq!(running.line(), "ready");
    let pid = running.child.id();
    let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let before = children();
    running.kill(&[
        "-TERM".into(),
        "--".into(),
        format!("-{}", running.child.id()),
    ]);
    assert_eq!(running.line(), "count 1");
    // Until then rsunwind takes others for the same: when it has judged them it has a new witness.
    wait_for("the signal to be judged", || {
        (children() != before).then_some(())
    });
    running.kill(&["-TERM".into(), running.child.id().to_string()]);
    assert_eq!(running.line(), "count 2");
    assert_eq!(running.line(), "in all 2");
    running.child.wait().unwrap();
}

#[test]
fn a_signal_sent_to_rsunwind_and_then_to_the_group_counts_once() {
    // What timeout(1) does, when its time is over or when it is told to end itself.
    let (bench, program) = counting();
    let mut command = Command::new("timeout");
    command
        .arg("1000")
        .arg(rsunwind())
        .args(["record", "-q", "-o"]);
    let mut running = Running::start(command.arg(bench.path("profile.rsu")).arg(program));
    assert_eq!(running.line(), "ready");
    running.kill(&["-TERM".into(), running.child.id().to_string()]);
    assert_eq!(running.line(), "count 1");
    assert_eq!(running.line(), "in all 1");
    running.child.wait().unwrap();
    assert!(bench.recording().session.is_some());
}

#[test]
fn ctrl_c_on_a_terminal_reaches_the_program_once_and_the_profile_is_written() {
    let (bench, program) = counting();
    // `exec`, because a shell that waits is ended by the interrupt as well, and script(1) tells of
    // the shell.
    let inner = format!(
        "exec {} record -o {} {}",
        rsunwind().display(),
        bench.path("profile.rsu").display(),
        program.display()
    );
    let mut script = Command::new("script");
    script
        .args(["-q", "-e", "-c", &inner, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = script.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    let mut next = |end: &str| {
        let mut seen = String::new();
        while !seen.contains(end) {
            assert_ne!(
                screen.read_line(&mut seen).unwrap(),
                0,
                "the screen ends with {seen:?}"
            );
        }
        seen
    };
    next("ready");
    keys.write_all(b"\x03").unwrap();
    assert!(next("in all").contains("in all 1"));
    next("profile.rsu");
    drop(keys);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(bench.recording().session.unwrap().wait_status, 5 << 8);
}

#[test]
fn a_program_that_a_signal_ends_leaves_its_profile() {
    let bench = Bench::new();
    let mut running = Running::start(bench.record(&["-q"]).args([
        "sh",
        "-c",
        "i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done; echo ready; while :; do :; done",
    ]));
    assert_eq!(running.line(), "ready");
    running.kill(&["-TERM".into(), running.child.id().to_string()]);
    assert_eq!(running.child.wait().unwrap().code(), Some(128 + 15));
    let recording = bench.recording();
    assert!(
        recording.samples.len() > 50,
        "{} samples",
        recording.samples.len()
    );
    assert_eq!(recording.session.unwrap().wait_status, 15);
}

#[test]
fn a_duration_ends_the_program_as_asked() {
    let bench = Bench::new();
    let ended = |duration: &str, script: &str| {
        let begun = Instant::now();
        let result = output(bench.record(&["-d", duration]).args(["sh", "-c", script]));
        assert!(begun.elapsed() < Duration::from_secs(500), "{script}");
        (result.status.code(), text(&result.stderr))
    };
    let (status, told) = ended("300ms", "exec sleep 1000");
    assert_eq!(status, Some(0), "ending by our SIGTERM is success: {told}");
    assert!(told.contains("profile.rsu"), "{told}");
    assert_eq!(bench.recording().session.unwrap().wait_status, 15);
    // Long enough to set the trap, or to end, on a busy machine.
    let (status, _) = ended("2s", "trap 'exit 9' TERM; while :; do :; done");
    assert_eq!(
        status,
        Some(9),
        "a program that ends in its own way has its own status"
    );
    let (status, _) = ended("20s", "exit 4");
    assert_eq!(status, Some(4), "one that ends before its time, too");
}

#[test]
fn a_program_that_outlives_its_duration_is_waited_for_with_the_profile_written() {
    let bench = Bench::new();
    let script = "trap '' TERM; while [ -d \"$PWD\" ] && [ ! -e go ]; do sleep 0.1; done; exit 3";
    let mut command = bench.record(&["-d", "2s"]);
    let mut child = command
        .args(["sh", "-c", script])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("goes on") {
        assert_ne!(told.read_line(&mut line).unwrap(), 0, "{line}");
    }
    assert!(
        bench.recording().session.is_some(),
        "the profile is written while the program goes on"
    );
    assert!(child.try_wait().unwrap().is_none());
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn rsunwind_sleeps_while_it_waits() {
    let bench = Bench::new();
    let mut running =
        Running::start(
            bench
                .record(&["-q"])
                .args(["sh", "-c", "echo ready; exec sleep 1000"]),
        );
    assert_eq!(running.line(), "ready");
    let pid = running.child.id();
    std::thread::sleep(Duration::from_millis(500));
    let (begun, before) = (Instant::now(), sleeps(pid));
    std::thread::sleep(Duration::from_secs(3));
    let (counted, seconds) = (sleeps(pid) - before, begun.elapsed().as_secs_f64());
    running.kill(&["-TERM".into(), pid.to_string()]);
    running.child.wait().unwrap();
    assert!(
        counted >= 3,
        "{counted} in {seconds:.1} s: it must say that it lives"
    );
    assert!(
        counted as f64 <= 10.0 * seconds,
        "{counted} wake-ups in {seconds:.1} s"
    );
}

#[test]
fn a_stopped_program_stays_stopped_until_it_is_continued() {
    let bench = Bench::new();
    let mut running =
        Running::start(
            bench
                .record(&["-q"])
                .args(["sh", "-c", "echo $$; kill -STOP $$; exit 6"]),
        );
    let pid = running.line();
    let state = || {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .ok()
            .and_then(|line| line.rsplit_once(") ").map(|rest| rest.1.chars().next()))
    };
    wait_for("the program to stop", || {
        (state() == Some(Some('T'))).then_some(())
    });
    std::thread::sleep(Duration::from_millis(400));
    assert!(running.child.try_wait().unwrap().is_none());
    running.kill(&["-CONT".into(), pid]);
    assert_eq!(running.child.wait().unwrap().code(), Some(6));
}
