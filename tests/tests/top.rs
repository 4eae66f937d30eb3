//! `rsunwind top` on a terminal of 80×24: what it shows, what keys do, and that nothing is left.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsunwind_tests::beside::Beside;
use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use rsunwind_tests::terminal::Terminal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// It, on a terminal of its own.
struct Top {
    child: Child,
    terminal: Terminal,
}

impl Top {
    fn start(bench: &Bench, arguments: &[&str]) -> Self {
        let (terminal, slave) = Terminal::new();
        let folder = folder(bench);
        fs::create_dir_all(&folder).unwrap();
        let rate: &[&str] = match arguments.contains(&"-F") {
            true => &[],
            false => &["-F", "999"],
        };
        let child = Command::new(rsunwind())
            .arg("top")
            .args(rate)
            .args(arguments)
            .env("TMPDIR", folder)
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, terminal }
    }

    fn end(&mut self) -> ExitStatus {
        wait_for("the end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where it keeps its recording.
fn folder(bench: &Bench) -> PathBuf {
    bench.path("temporary")
}

/// A program that computes for ever in `inner`, called by `outer`.
fn program(bench: &Bench) -> PathBuf {
    let source = "volatile long x;\n\
        __attribute__((noinline)) void inner(void) { for (int i = 0; i < 1000000; i++) x++; }\n\
        __attribute__((noinline)) void outer(void) { for (;;) { inner(); x = 0; } }\n\
        int main(void) { outer(); return 0; }";
    bench.compile("gcc", &["-O2", "-g"], source)
}

/// Waits until nothing is left of it, and the program has ended.
fn nothing_is_left(bench: &Bench, program: &Path) {
    wait_for("an empty folder", || {
        let left = fs::read_dir(folder(bench)).unwrap().count();
        (left == 0).then_some(())
    });
    wait_for("the program's end", || {
        let mut processes = fs::read_dir("/proc").unwrap().flatten();
        let runs = processes.any(|process| {
            fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program)
        });
        (!runs).then_some(())
    });
}

#[test]
fn a_program_is_shown_and_keys_do_what_they_say() {
    let bench = Bench::new();
    let program = program(&bench);
    let mut top = Top::start(&bench, &["--", program.to_str().unwrap()]);
    top.terminal
        .shows(&["CPU ", "%SELF*", "inner", "functions", "? help"]);
    top.terminal.press("?");
    top.terminal.shows(&["Any key closes this."]);
    top.terminal.press("?");
    top.terminal.press("/oute\r");
    wait_for("one function", || {
        let screen = top.terminal.screen();
        (screen.contains("outer") && !screen.contains("inner")).then_some(())
    });
    top.terminal.press("\x1b");
    top.terminal.shows(&["inner"]);
    top.terminal.press("1");
    // `inner` is the first by its own time.
    top.terminal.press("\x1b[H\r");
    top.terminal.shows(&["callers of inner", "outer"]);
    top.terminal.press("l");
    top.terminal.shows(&["lines of inner", "program.c:2"]);
    // Not at once: with what comes right behind it the key is another one.
    top.terminal.press("\x1b");
    top.terminal.shows(&["functions  threads"]);
    top.terminal.press(">");
    top.terminal.shows(&["%TOTAL*"]);
    top.terminal.press("I");
    top.terminal.shows(&["%TOTAL^"]);
    top.terminal.press("\t");
    top.terminal.shows(&["threads", "program"]);
    top.terminal.press("\r");
    top.terminal.shows(&["functions of ", "inner"]);
    top.terminal.press(" ");
    top.terminal.shows(&["[paused]"]);
    top.terminal.press("q");
    assert!(top.end().success());
    nothing_is_left(&bench, &program);
}

#[test]
fn who_only_waits_is_shown_with_the_time_that_it_waits() {
    let bench = Bench::new();
    let source = "#include <unistd.h>\n\
        __attribute__((noinline)) void naps(void) { for (;;) usleep(20000); }\n\
        int main(void) { naps(); return 0; }";
    let program = bench.compile("gcc", &["-O1", "-g"], source);
    let beside = Beside::silent(&mut Command::new(program));
    let who = beside.pid().to_string();
    // At this rate it has no sample of CPU time.
    let mut top = Top::start(&bench, &["-F", "1", "--off-cpu", "-p", &who]);
    wait_for("half of the time in naps", || {
        let screen = top.terminal.screen();
        let line = screen.lines().find(|line| line.contains("naps"))?;
        let waits: f64 = line.split_whitespace().nth(2)?.parse().ok()?;
        (screen.contains("%WAIT") && waits > 50.0).then_some(())
    });
    top.terminal.press("3");
    top.terminal.shows(&["%WAIT*"]);
    top.terminal.press("q");
    assert!(top.end().success());
}

#[test]
fn a_killed_one_leaves_nothing() {
    let bench = Bench::new();
    let program = program(&bench);
    let mut top = Top::start(&bench, &["--", program.to_str().unwrap()]);
    top.terminal.shows(&["inner"]);
    top.child.kill().unwrap();
    top.child.wait().unwrap();
    nothing_is_left(&bench, &program);
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let bench = Bench::new();
    let beside = Beside::silent(&mut Command::new(program(&bench)));
    let who = beside.pid().to_string();
    let mut tops =
        [Signal::SIGTERM, Signal::SIGHUP].map(|signal| (signal, Top::start(&bench, &["-p", &who])));
    for (signal, top) in &mut tops {
        top.terminal.shows(&["inner"]);
        assert!(!top.terminal.is_usual());
        kill(Pid::from_raw(top.child.id().cast_signed()), *signal).unwrap();
        let status = top.end();
        assert!(status.success(), "{signal}: {status}");
        wait_for("the terminal", || top.terminal.is_usual().then_some(()));
    }
}

#[test]
fn a_program_that_fails_at_once_is_no_failure_of_ours() {
    let bench = Bench::new();
    let mut top = Top::start(&bench, &["--", "false"]);
    top.terminal.shows(&["[ended]"]);
    top.terminal.press("q");
    assert!(top.end().success());
}

#[test]
fn what_runs_already_is_shown_and_runs_on() {
    let bench = Bench::new();
    let beside = Beside::silent(&mut Command::new(program(&bench)));
    let mut top = Top::start(&bench, &["-p", &beside.pid().to_string()]);
    top.terminal.shows(&["inner"]);
    top.terminal.press("q");
    assert!(top.end().success());
    let stat = fs::read_to_string(format!("/proc/{}/stat", beside.pid())).unwrap();
    assert!(stat.contains(") R "), "{stat}");
}

#[test]
fn without_a_terminal_it_says_what_there_is_instead() {
    let result = output(Command::new(rsunwind()).args(["top", "--", "true"]));
    assert_eq!(result.status.code(), Some(2));
    let said = text(&result.stderr);
    assert!(
        said.contains("no terminal") && said.contains("rsunwind record"),
        "{said}"
    );
}
