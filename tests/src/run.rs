//! Running a program, profiled or not, to its end.

use crate::library;
use crate::recording::Recording;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far beyond what any victim takes: a victim that is still there then hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A program to run.
#[derive(Debug)]
pub struct Run {
    command: Command,
    input: Vec<u8>,
    recordings: Option<TempDir>,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    recordings: Option<TempDir>,
}

impl Run {
    /// A program that is not profiled.
    #[must_use]
    pub fn plain(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.env_remove("LD_PRELOAD").env_remove("RSUNWIND");
        Self {
            command,
            input: Vec::new(),
            recordings: None,
        }
    }

    /// A program that is profiled with these settings, to files that [`Outcome::recordings`] reads.
    ///
    /// # Panics
    /// If there is no temporary directory.
    #[must_use]
    pub fn profiled(settings: &str, program: impl AsRef<OsStr>) -> Self {
        let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let output = directory.path().join("%p.rsu");
        let mut run = Self::profiled_to(settings, &output, program);
        run.recordings = Some(directory);
        run
    }

    /// A program that is profiled to a file of the caller's.
    #[must_use]
    pub fn profiled_to(settings: &str, output: &Path, program: impl AsRef<OsStr>) -> Self {
        let mut run = Self::plain(program);
        let settings = format!("{settings},output={}", output.display());
        run.command
            .env("LD_PRELOAD", library::path())
            .env("RSUNWIND", settings.trim_start_matches(','));
        run
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Puts something in front of our library in LD_PRELOAD (`before`) or behind it.
    #[must_use]
    pub fn preload(self, other: &Path, before: bool) -> Self {
        let (first, second) = if before {
            (other, library::path())
        } else {
            (library::path(), other)
        };
        let mut list = OsString::from(first);
        list.push(":");
        list.push(second);
        self.env("LD_PRELOAD", list)
    }

    /// Sets its working directory.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Gives it this on standard input.
    #[must_use]
    pub fn input(mut self, bytes: &[u8]) -> Self {
        self.input = bytes.to_vec();
        self
    }

    /// Changes the command as a test needs it.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Where recordings go, for tests that must prepare the place.
    #[must_use]
    pub fn recordings_directory(&self) -> Option<&Path> {
        self.recordings.as_ref().map(TempDir::path)
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If it cannot be started, or hangs.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        self.outcome_with(|_| {})
    }

    /// Runs it to its end, calling `meanwhile` with its pid once it is started.
    ///
    /// # Panics
    /// If it cannot be started, or hangs.
    #[must_use]
    pub fn outcome_with(mut self, meanwhile: impl FnOnce(i32)) -> Outcome {
        self.command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        let mut stdin = child.stdin.take();
        let input = std::mem::take(&mut self.input);
        thread::spawn(move || stdin.as_mut().map(|pipe| pipe.write_all(&input)));
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let pid = child.id().cast_signed();
        meanwhile(pid);
        let began = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if began.elapsed() < LIMIT => thread::sleep(Duration::from_millis(3)),
                Ok(None) => {
                    let _ = Command::new("kill")
                        .args(["-KILL", "--", &format!("-{pid}")])
                        .status();
                    panic!("{:?} hangs", self.command);
                }
                Err(error) => panic!("{:?}: {error}", self.command),
            }
        };
        Outcome {
            status,
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
            recordings: self.recordings,
        }
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

impl Outcome {
    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The signal that killed it.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Asserts that it succeeded and wrote nothing to standard error; gives itself on.
    ///
    /// # Panics
    /// If not.
    #[must_use]
    #[track_caller]
    pub fn quiet(self) -> Self {
        assert!(
            self.status.success() && self.stderr.is_empty(),
            "{}\nstdout: {}\nstderr: {}",
            self.status,
            self.text(),
            self.errors()
        );
        self
    }

    /// The files that it and its descendants left.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let directory = self.recordings.as_ref().map(TempDir::path);
        let entries = directory.and_then(|directory| directory.read_dir().ok());
        entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    }

    /// The recordings that it and its descendants left.
    ///
    /// # Panics
    /// If one is damaged.
    #[must_use]
    #[track_caller]
    pub fn recordings(&self) -> Vec<Recording> {
        self.files()
            .iter()
            .map(|path| Recording::read(path))
            .collect()
    }

    /// The recording, where there must be exactly one.
    ///
    /// # Panics
    /// If there is none or more than one.
    #[must_use]
    #[track_caller]
    pub fn recording(&self) -> Recording {
        let mut all = self.recordings();
        assert_eq!(
            all.len(),
            1,
            "recordings: {:?}; {}",
            self.files(),
            self.errors()
        );
        all.remove(0)
    }
}
