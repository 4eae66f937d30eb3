//! `rsunwind record` and signals, time and sleep: what reaches the program, when recording ends, and how often rsunwind wakes up.

use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Says that it is ready, then counts the SIGINT, SIGTERM and SIGHUP that it gets for a second after the first one.
const COUNTS: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <time.h>
static volatile int count;
static void on(int signal) { count++; }
static void nap(long ms) { struct timespec t = { ms / 1000, ms % 1000 * 1000000 }; while (nanosleep(&t, &t)) {} }
int main(void) {
  int signals[] = { SIGINT, SIGTERM, SIGHUP };
  for (int i = 0; i < 3; i++) { struct sigaction a = { .sa_handler = on }; sigaction(signals[i], &a, 0); }
  puts("ready"); fflush(stdout);
  while (!count) nap(10);
  nap(1000);
  printf("count %d\n", count);
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
    assert_eq!(running.child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_signal_after_one_to_the_group_is_passed_on_again() {
    let (bench, program) = counting();
    let mut running = Running::start(bench.record(&["-q"]).arg(program));
    assert_eq!(running.line(), "ready");
    running.kill(&[
        "-TERM".into(),
        "--".into(),
        format!("-{}", running.child.id()),
    ]);
    std::thread::sleep(Duration::from_millis(200));
    running.kill(&["-TERM".into(), running.child.id().to_string()]);
    assert_eq!(running.line(), "count 2");
    running.child.wait().unwrap();
}

#[test]
fn a_signal_sent_to_rsunwind_and_then_to_the_group_counts_once() {
    // What timeout(1) does.
    let (bench, program) = counting();
    let mut command = Command::new("timeout");
    command
        .args(["-s", "TERM", "2"])
        .arg(rsunwind())
        .args(["record", "-q", "-o"]);
    let mut running = Running::start(command.arg(bench.path("profile.rsu")).arg(program));
    assert_eq!(
        (running.line(), running.line()),
        ("ready".into(), "count 1".into())
    );
    running.child.wait().unwrap();
    assert!(bench.recording().session.is_some());
}

#[test]
fn ctrl_c_on_a_terminal_reaches_the_program_once_and_the_profile_is_written() {
    let (bench, program) = counting();
    // `exec`, because a shell that waits is ended by the interrupt as well, and script(1) tells of the shell.
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
    assert!(next("count").contains("count 1"));
    next("profile.rsu");
    drop(keys);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(bench.recording().session.unwrap().wait_status, 5 << 8);
}

#[test]
fn a_program_that_a_signal_ends_leaves_its_profile() {
    let bench = Bench::new();
    let mut running =
        Running::start(
            bench
                .record(&["-q"])
                .args(["sh", "-c", "echo ready; while :; do :; done"]),
        );
    assert_eq!(running.line(), "ready");
    std::thread::sleep(Duration::from_millis(300));
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
    let ended = |script: &str| {
        let begun = Instant::now();
        let result = output(bench.record(&["-d", "300ms"]).args(["sh", "-c", script]));
        assert!(begun.elapsed() < Duration::from_secs(30), "{script}");
        (result.status.code(), text(&result.stderr))
    };
    let (status, told) = ended("exec sleep 1000");
    assert_eq!(status, Some(0), "ending by our SIGTERM is success: {told}");
    assert!(told.contains("profile.rsu"), "{told}");
    assert_eq!(bench.recording().session.unwrap().wait_status, 15);
    let (status, _) = ended("trap 'exit 9' TERM; while :; do :; done");
    assert_eq!(
        status,
        Some(9),
        "a program that ends in its own way has its own status"
    );
    let (status, _) = ended("exit 4");
    assert_eq!(status, Some(4), "one that ends before its time, too");
}

#[test]
fn a_program_that_outlives_its_duration_is_waited_for_with_the_profile_written() {
    let bench = Bench::new();
    let script = "trap '' TERM; i=0; while [ $i -lt 40 ]; do sleep 0.1; i=$((i+1)); done; exit 3";
    let mut command = bench.record(&["-d", "300ms"]);
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
    let wakeups = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let of = |field: &str| -> u64 {
            status
                .lines()
                .find_map(|line| line.strip_prefix(field))
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        of("voluntary_ctxt_switches:")
    };
    std::thread::sleep(Duration::from_millis(500));
    let (begun, before) = (Instant::now(), wakeups());
    std::thread::sleep(Duration::from_secs(3));
    let (counted, seconds) = (wakeups() - before, begun.elapsed().as_secs_f64());
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
