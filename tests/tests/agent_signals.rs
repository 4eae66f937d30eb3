//! `rsunwind agent` where processes are stopped and killed: the program obeys who ends it, and what
//! was recorded is sent.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsunwind_tests::agent::{agent, works};
use rsunwind_tests::attach::{cpu_ns, threads};
use rsunwind_tests::command::{Bench, text, wait_for};
use rsunwind_tests::receiver::{Receiver, otlp, unzipped};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// The child of a process whose arguments are so, and those.
fn child(of: u32, is_it: impl Fn(&[String]) -> bool) -> Option<(u32, Vec<String>)> {
    let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?;
    let mut all = children.split_whitespace().map(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split('\0').map(str::to_owned).collect();
        (pid.parse().unwrap(), words)
    });
    all.find(|(_, words)| is_it(words))
}

/// The child that was started as that command of ours.
fn ours(of: u32, command: &str) -> Option<(u32, Vec<String>)> {
    child(of, |words| words.get(1).is_some_and(|word| word == command))
}

/// The program that a recorder has started; others of its children have its own arguments.
fn started(recorder: u32, program: &Path) -> Option<u32> {
    let is_it = |words: &[String]| words.first().is_some_and(|word| Path::new(word) == program);
    child(recorder, is_it).map(|(pid, _)| pid)
}

/// CPU time of all threads of a process, ns.
fn used(pid: u32) -> i64 {
    let all: u64 = threads(pid).into_iter().map(cpu_ns).sum();
    all.cast_signed()
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// CPU time in all windows that were taken, ns.
fn sent(receiver: &Receiver) -> i64 {
    let windows = receiver.taken("/v1development/profiles").into_iter();
    windows.map(|one| otlp(&unzipped(&one.body)).cpu_ns).sum()
}

#[test]
fn a_program_is_told_to_end_however_long_a_window_is_read() {
    let bench = Bench::new();
    let program = works(&bench);
    let receiver = Receiver::new(&[]);
    let mut command = agent();
    command
        .args(["-v", "--window", "2s", "--otlp", &receiver.address, "--"])
        .arg(&program)
        .arg("100");
    let agent = command.stderr(Stdio::piped()).spawn().unwrap();
    let (reader, _) = wait_for("a reader", || ours(agent.id(), "agent-window"));
    let (recorder, _) = ours(agent.id(), "record").unwrap();
    let target = started(recorder, &program).unwrap();
    signal(reader, Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(3)); // the next window is asked for
    let before = used(target);
    signal(agent.id(), Signal::SIGTERM);
    wait_for("the program's end", || (!lives(target)).then_some(()));
    assert!(lives(reader), "it is read still");
    signal(reader, Signal::SIGCONT);
    let out = agent.wait_with_output().unwrap();
    let says = text(&out.stderr);
    assert_eq!(out.status.code(), Some(128 + 15), "{says}");
    let sent = sent(&receiver);
    assert!(
        before > 0 && sent > before / 10 * 9,
        "{sent} of {before} ns; {says}"
    );
}

#[test]
fn what_a_recorder_had_not_written_when_it_was_killed_is_sent() {
    let bench = Bench::new();
    let program = works(&bench);
    let receiver = Receiver::new(&[]);
    let mut command = agent();
    command
        .args(["-v", "--window", "1h", "--otlp", &receiver.address, "--"])
        .arg(&program)
        .arg("100");
    let mut agent = command.stderr(Stdio::piped()).spawn().unwrap();
    let (recorder, words) = wait_for("a recorder", || ours(agent.id(), "record"));
    let target = wait_for("the program", || started(recorder, &program));
    wait_for("work", || (used(target) > 300_000_000).then_some(()));
    signal(recorder, Signal::SIGKILL);
    wait_for("the agent's end", || agent.try_wait().unwrap());
    let goes_on = lives(target);
    signal(target, Signal::SIGKILL);
    remove_session(&words);
    let out = agent.wait_with_output().unwrap();
    let says = text(&out.stderr);
    assert_eq!(out.status.code(), Some(128 + 9), "{says}");
    assert!(goes_on, "{says}");
    assert!(sent(&receiver) > 200_000_000, "{says}");
}

/// Removes what the killed recorder with these words on its command line has left in memory.
fn remove_session(recorder: &[String]) {
    let output = recorder.iter().skip_while(|word| *word != "-o").nth(1);
    let folder = Path::new(output.unwrap()).parent().unwrap();
    for session in fs::read_dir("/dev/shm").unwrap().flatten() {
        let inside = fs::read_dir(session.path()).into_iter().flatten().flatten();
        let mut links = inside.map(|inner| fs::read_link(inner.path().join("recording.rsu")));
        if links.any(|link| link.is_ok_and(|path| path.starts_with(folder))) {
            fs::remove_dir_all(session.path()).unwrap();
        }
    }
}
