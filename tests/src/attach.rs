//! Processes that run, and `record -p` of them.

use crate::command::{Bench, rsunwind, text, wait_for};
use crate::victim;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that runs, and is killed if it still does when a test is over.
#[derive(Debug)]
pub struct Target(Child);

impl Target {
    /// Starts it, with pipes for its input and output.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn start(command: &mut Command) -> Self {
        // Built before: it is not to take of the time for which the program runs.
        rsunwind();
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().expect("it starts"))
    }

    /// Two threads that burn CPU time until they are killed.
    #[must_use]
    pub fn busy() -> Self {
        let target = Self::start(Command::new(victim::c("static_split.c")).args(["600000", "2"]));
        // Where one is made, signals are blocked for a moment, and memory is mapped.
        wait_for("its threads to work", || {
            let threads = threads(target.pid());
            let work = threads.iter().all(|tid| cpu_ns(*tid) > 20_000_000);
            (threads.len() == 2 && work).then_some(())
        });
        target
    }

    /// A shell that goes on with `script` when it is told to.
    #[must_use]
    pub fn waiting(script: &str, programs: &[&Path]) -> Self {
        let script = format!("read line; {script}");
        Self::start(
            Command::new("sh")
                .args(["-c", &script, "sh"])
                .args(programs),
        )
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Tells one that waits to go on, and no more.
    ///
    /// # Panics
    /// If it does not read, or was told before.
    pub fn go(&mut self) {
        self.tell("go\n");
        self.0.stdin.take();
    }

    /// Writes to its input.
    ///
    /// # Panics
    /// If it does not read.
    pub fn tell(&mut self, what: &str) {
        let input = self.0.stdin.as_mut().expect("a pipe");
        input.write_all(what.as_bytes()).expect("it reads");
    }

    /// Ends its input, and waits for its end; gives its status.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn end_of_input(mut self) -> Option<i32> {
        drop(self.0.stdin.take());
        self.0.wait().expect("it ends").code()
    }

    /// The next line of its output.
    ///
    /// # Panics
    /// If there is none, or it is no text.
    pub fn line(&mut self) -> String {
        let output = self.0.stdout.as_mut().expect("a pipe");
        let (mut line, mut byte) = (Vec::new(), [0]);
        while line.last() != Some(&b'\n') {
            output.read_exact(&mut byte).expect("a line");
            line.extend(byte);
        }
        String::from_utf8(line).expect("text")
    }

    /// Waits for its end; gives its status and what it wrote.
    ///
    /// # Panics
    /// If what it wrote is no text.
    #[must_use]
    pub fn end(mut self) -> (Option<i32>, String) {
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
#[derive(Debug)]
pub struct Recorder(Child);

impl Recorder {
    /// Records to a file; from here on it does.
    #[must_use]
    pub fn attach(bench: &Bench, file: &str, options: &[&str], who: &str) -> Self {
        let mut command = Command::new(rsunwind());
        command
            .args(["record", "-F", "2k", "-p", who])
            .args(options);
        Self::begin(command.arg("-o").arg(bench.path(file)))
    }

    /// Starts that command; from here on it records, by copies.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn begin(command: &mut Command) -> Self {
        // The thread that reads the rings begins when all events are open.
        Self::begin_until(command, |pid| {
            let mut names = threads(pid).into_iter().map(|tid| {
                fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default()
            });
            names.any(|name| name.trim() == "read-copies")
        })
    }

    /// Starts that command, and waits until its process records, or has ended.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn begin_until(command: &mut Command, records: impl Fn(u32) -> bool) -> Self {
        let child = command.stderr(Stdio::piped()).spawn().expect("it runs");
        let mut recorder = Self(child);
        wait_for("the recording", || {
            let is_over = recorder.0.try_wait().unwrap().is_some();
            (records(recorder.0.id()) || is_over).then_some(())
        });
        recorder
    }

    /// Sends it the signal of that name.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for its end; gives its status and what it said.
    ///
    /// # Panics
    /// If it cannot be waited for.
    #[must_use]
    pub fn end(self) -> (Option<i32>, String) {
        let result = self.0.wait_with_output().expect("it ends");
        (result.status.code(), text(&result.stderr))
    }
}

/// `rsunwind record -p` of these, from inside.
#[must_use]
pub fn record_inside(bench: &Bench, file: &str, who: &str, options: &[&str]) -> Command {
    let mut command = Command::new(rsunwind());
    command.args(["record", "-F", "2k", "-p", who, "--how", "inside"]);
    command.args(options).arg("-o").arg(bench.path(file));
    command
}

/// The threads of a process.
#[must_use]
pub fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let entries = entries.flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// CPU time of a thread, ns.
///
/// # Panics
/// If it has ended.
#[must_use]
pub fn cpu_ns(tid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("it runs");
    text.split(' ').next().unwrap().parse().unwrap()
}

/// What of a process could show that somebody was there.
///
/// # Panics
/// If it has ended.
#[must_use]
pub fn traces(pid: u32) -> Vec<String> {
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
    let mut scheduled: Vec<String> = threads(pid).into_iter().filter_map(scheduled).collect();
    scheduled.sort();
    scheduled.dedup();
    all.extend(scheduled);
    all
}

/// Whether a process has a handler for SIGURG.
///
/// # Panics
/// If the kernel says something else than ever.
#[must_use]
pub fn has_handler(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    caught & 1 << (libc::SIGURG - 1) != 0
}

/// Whether our library is in a process, as it lies there.
///
/// # Panics
/// If it has ended.
#[must_use]
pub fn has_library(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut starts = maps.lines().map(|line| {
        let (start, _) = line.split_once('-').unwrap();
        u64::from_str_radix(start, 16).unwrap()
    });
    starts.any(|start| {
        let mut head = [0; 16];
        let read = memory.read_exact_at(&mut head, start);
        read.is_ok() && head == *b"\x7fELF\x02\x01\x01\0\0rsunwin"
    })
}

/// How nice a thread is, its priority and its policy; none if it has ended.
fn scheduled(tid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let [nice, priority, policy] = [16, 37, 38].map(|place: usize| fields[place]);
    Some(format!("nice {nice}, priority {priority}, policy {policy}"))
}

/// Removes what a killed rsunwind has left in memory: the session whose recording is there.
///
/// # Panics
/// If it cannot be removed.
pub fn remove_session(bench: &Bench) {
    let here = bench.path("");
    for session in fs::read_dir("/dev/shm").unwrap().flatten() {
        let inside = fs::read_dir(session.path()).into_iter().flatten().flatten();
        let mut links = inside.map(|inner| fs::read_link(inner.path().join("recording.rsu")));
        if links.any(|link| link.is_ok_and(|path| path.starts_with(&here))) {
            fs::remove_dir_all(session.path()).unwrap();
        }
    }
}

/// CPU time that each thread of `static_split.c` says it used at its end, ns.
///
/// # Panics
/// At any other output.
#[must_use]
pub fn used(printed: &str) -> BTreeMap<u32, u64> {
    let lines = printed.lines().map(|line| line.split_once(' ').unwrap());
    lines
        .map(|(tid, ns)| (tid.parse().unwrap(), ns.parse().unwrap()))
        .collect()
}
