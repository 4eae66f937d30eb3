//! Commands that read, on a terminal: a bar where that takes long, and what a signal leaves.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsunwind_tests::command::{Bench, rsunwind, status, wait_for};
use rsunwind_tests::terminal::Terminal;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// A ClickHouse that never answers keeps them waiting.
#[test]
fn a_bar_shows_what_takes_long_and_ctrl_c_leaves_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("clickhouse://{}/db", silent.local_addr().unwrap());
    let commands: [&[&str]; 4] = [
        &["export", &address, "-o", "out.svg"],
        &["report", &address],
        &["diff", &address, &address, "-o", "diff.svg"],
        &["view", &address],
    ];
    let begun = commands.map(|arguments| {
        let bench = Bench::new();
        let (terminal, slave) = Terminal::new();
        let child = Command::new(rsunwind())
            .current_dir(bench.path(""))
            .args(arguments)
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        (arguments[0], bench, terminal, child)
    });
    for (name, bench, terminal, mut child) in begun {
        terminal.shows(&["asking ClickHouse"]);
        let files = || fs::read_dir(bench.path("")).unwrap().count();
        assert_eq!(files(), usize::from(name == "export"), "{name}");
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        let status = wait_for("the end", || child.try_wait().unwrap());
        assert_eq!(status.signal(), Some(libc::SIGINT), "{name}: {status}");
        assert_eq!(files(), 0, "{name}");
        wait_for("an empty screen", || {
            terminal.screen().trim().is_empty().then_some(())
        });
        assert!(terminal.is_usual(), "{name}");
    }
}

/// As `nohup` has it.
#[test]
fn signals_that_are_ignored_stay_so() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("clickhouse://{}/db", silent.local_addr().unwrap());
    let bench = Bench::new();
    let mut child = Command::new("sh")
        .current_dir(bench.path(""))
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(rsunwind())
        .args(["export", &address, "-o", "out.svg"])
        .spawn()
        .unwrap();
    wait_for("its file", || {
        fs::read_dir(bench.path("")).unwrap().next().map(drop)
    });
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGHUP).unwrap();
    kill(pid, Signal::SIGTERM).unwrap();
    let status = wait_for("the end", || child.try_wait().unwrap());
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");
}

#[test]
fn while_a_pager_shows_a_table_ctrl_c_is_the_pagers() {
    let bench = Bench::new();
    assert_eq!(status(bench.record(&["-q"]).arg("true")), 0);
    let (terminal, slave) = Terminal::new();
    let pager = "cat >/dev/null; touch begun; until [ -e go ]; do sleep 0.01; done; echo paged";
    let mut child = Command::new(rsunwind())
        .current_dir(bench.path(""))
        .args(["report", "profile.rsu"])
        .env("PAGER", pager)
        .stdin(Stdio::null())
        .stdout(Stdio::from(slave))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the pager", || bench.path("begun").exists().then_some(()));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    fs::write(bench.path("go"), "").unwrap();
    let status = wait_for("the end", || child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    terminal.shows(&["paged"]);
}
