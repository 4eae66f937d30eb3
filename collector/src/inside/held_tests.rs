//! What is done to a thread that is held comes out as if it had not been.

use super::super::hold::held_for;
use super::*;
use crate::processes::Stat;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;

/// A shell that works from its first line on.
struct Busy(Child);

impl Busy {
    fn start(before: &str) -> Self {
        let script = format!("{before} echo; while :; do :; done");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdout(Stdio::piped());
        let mut busy = Self(command.spawn().unwrap());
        assert_eq!(busy.read(1), "\n");
        busy
    }

    fn read(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        let output = self.0.stdout.as_mut().unwrap();
        output.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    fn held<T>(&self, work: impl FnOnce(&Held) -> Result<T, Refusal>) -> Result<T, Refusal> {
        held_for(self.0.id(), Duration::from_secs(20), work)
    }

    fn state(&self) -> char {
        Stat::read(self.0.id()).unwrap().state()
    }

    /// Waits until it has worked for a while from now on.
    #[track_caller]
    fn goes_on(&mut self) {
        let used = || processes::cpu_ns(self.pid().as_raw(), self.pid().as_raw());
        let before = used().unwrap();
        while used().is_some_and(|now| now < before + 20_000_000) {
            assert!(!matches!(self.state(), 'T' | 'Z'), "{}", self.state());
            thread::yield_now();
        }
        assert_eq!(self.0.try_wait().unwrap(), None);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn own_number(held: &Held) -> Result<u64, Refusal> {
    held.call(libc::SYS_getpid, [0; 6])
}

#[test]
fn signals_that_came_meanwhile_are_sent_again() {
    let mut busy = Busy::start("trap 'echo segv' SEGV; trap 'echo user' USR1;");
    let pid = busy.pid();
    let held = busy.held(|held| {
        kill(pid, Signal::SIGSEGV).unwrap();
        kill(pid, Signal::SIGUSR1).unwrap();
        own_number(held)
    });
    assert_eq!(held.unwrap(), pid.as_raw() as u64);
    let mut said = busy.read(10);
    said.truncate(said.trim_end().len());
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["segv", "user"]);
    busy.goes_on();
}

#[test]
fn who_was_stopped_and_let_go_on_meanwhile_goes_on() {
    let mut busy = Busy::start("");
    let pid = busy.pid();
    let held = busy.held(|held| {
        kill(pid, Signal::SIGSTOP).unwrap();
        own_number(held)?;
        kill(pid, Signal::SIGCONT).unwrap();
        own_number(held)
    });
    assert_eq!(held.unwrap(), pid.as_raw() as u64);
    busy.goes_on();
}

#[test]
fn who_was_stopped_meanwhile_is_stopped() {
    let mut busy = Busy::start("");
    let pid = busy.pid();
    let held = busy.held(|held| {
        kill(pid, Signal::SIGSTOP).unwrap();
        own_number(held)?;
        own_number(held)
    });
    assert_eq!(held.unwrap(), pid.as_raw() as u64);
    let began = Instant::now();
    while busy.state() != 'T' {
        assert!(began.elapsed() < Duration::from_secs(60));
        thread::yield_now();
    }
    kill(pid, Signal::SIGCONT).unwrap();
    while busy.state() == 'T' {
        thread::yield_now();
    }
    busy.goes_on();
}

#[test]
fn time_limits_run_on() {
    const LIMIT: f64 = 0.5;
    let script = "import select, sys, time\nprint(flush=True)\nbegan = time.monotonic()\n\
        select.select([], [], [], float(sys.argv[1]))\nprint(time.monotonic() - began)";
    let took = || {
        let mut command = Command::new("python3");
        command.args(["-c", script, &LIMIT.to_string()]);
        let mut sleeper = Busy(command.stdout(Stdio::piped()).spawn().unwrap());
        assert_eq!(sleeper.read(1), "\n");
        let pid = sleeper.0.id();
        let selects = || {
            let calls = [libc::SYS_select, libc::SYS_pselect6];
            matches!(Whereabouts::of(pid, pid), Whereabouts::Asleep { call: Some(call), .. }
                if calls.contains(&call.number))
        };
        while !selects() && sleeper.state() != 'Z' {
            thread::yield_now();
        }
        let held = sleeper.held(|held| {
            thread::sleep(Duration::from_secs_f64(LIMIT / 2.0));
            own_number(held)
        });
        let mut printed = String::new();
        let output = sleeper.0.stdout.as_mut().unwrap();
        output.read_to_string(&mut printed).unwrap();
        let took: f64 = printed.trim().parse().unwrap();
        // On a machine that stood still it was over before.
        assert!(
            took >= LIMIT && (held.is_ok() || took > LIMIT),
            "{took} {held:?}"
        );
        took
    };
    let mut tries = std::iter::repeat_with(took).take(8);
    assert!(
        tries.any(|took| took < LIMIT * 1.4),
        "begun anew it takes more"
    );
}

#[test]
fn who_is_killed_meanwhile_has_ended() {
    let busy = Busy::start("");
    let pid = busy.pid();
    let held = busy.held(|held| {
        kill(pid, Signal::SIGKILL).unwrap();
        while busy.state() == 't' {
            thread::yield_now();
        }
        own_number(held)
    });
    assert!(matches!(held, Err(Refusal::Ended)), "{held:?}");
}

#[test]
fn a_recorder_that_is_killed_meanwhile_does_no_harm() {
    const TARGET: &str = "TARGET_OF_A_RECORDER";
    const SELF: &str = "inside::held::tests::a_recorder_that_is_killed_meanwhile_does_no_harm";
    if let Ok(target) = std::env::var(TARGET) {
        let _ = held_for(target.parse().unwrap(), Duration::from_secs(20), |held| {
            own_number(held)?;
            let recorder = std::os::unix::process::parent_id();
            println!("held");
            // It is killed here.
            while std::os::unix::process::parent_id() == recorder {
                thread::yield_now();
            }
            own_number(held)
        });
        return;
    }
    let mut busy = Busy::start("");
    let mut recorder = Command::new(std::env::current_exe().unwrap());
    let recorder = recorder.args(["--exact", SELF, "--nocapture"]);
    let recorder = recorder.env(TARGET, busy.0.id().to_string());
    let mut recorder = recorder.stdout(Stdio::piped()).spawn().unwrap();
    let said = std::io::BufReader::new(recorder.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(said);
    assert!(lines.any(|line| line.unwrap().ends_with("held")));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    busy.goes_on();
}

#[test]
fn a_failure_of_ours_is_not_the_programs() {
    let mut busy = Busy::start("");
    let failed: Result<(), _> = busy.held(|held| {
        own_number(held)?;
        panic!("as a failure of ours would");
    });
    assert!(matches!(failed, Err(Refusal::Library)), "{failed:?}");
    busy.goes_on();
    let failed = busy.held(|held| held.run(8, 8, 0, 0));
    assert!(
        matches!(failed, Err(Refusal::Faulted(Signal::SIGSEGV, 8))),
        "{failed:?}"
    );
    busy.goes_on();
}
