//! A program that runs beside a test, and is killed when the test is done with it.
//!
//! # Safety
//! One call without memory, `kill`.
#![allow(unsafe_code)]

use std::io::{BufRead, BufReader, Read};

use std::process::{Child, ChildStdout, Command, Stdio};

/// The program.
#[derive(Debug)]
pub struct Beside {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Beside {
    /// Starts it; it says by a line when it is ready.
    ///
    /// # Panics
    /// If it does not start, or ends without a word.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let mut beside = Self::silent(command);
        let line = beside.line();
        assert!(line.ends_with('\n'), "{command:?} said {line:?}");
        beside
    }

    /// Starts one that says nothing.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn silent(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = child.stdout.take().expect("it was asked for");
        Self {
            child,
            output: BufReader::new(output),
        }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its next line.
    ///
    /// # Panics
    /// If that is no text.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line
    }

    /// All that it still prints, until its end.
    ///
    /// # Panics
    /// If that is no text.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        rest
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// Never: it is not waited for yet.
    pub fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved.
        let sent = unsafe { libc::kill(self.pid().cast_signed(), signal) };
        assert_eq!(sent, 0);
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
