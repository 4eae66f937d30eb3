//! System calls of a program, as strace sees them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What one thread does, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A system call by its name and its arguments, as far as strace prints them.
    Call(String, String),
    /// A signal comes in, by its name.
    Signal(String),
}

/// A trace of all threads of a program and its children.
#[derive(Debug)]
pub struct Trace {
    /// By thread id.
    pub threads: BTreeMap<u32, Vec<Step>>,
}

/// Makes a command run under strace, which writes to that file.
pub fn trace(command: &mut Command, file: &Path) {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-o"]).arg(file);
    // The program alone is to have the library, not strace.
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => {
                let mut pair = name.to_os_string();
                pair.push("=");
                pair.push(value);
                traced.arg("-E").arg(pair);
            }
            None => {
                traced.arg("-E").arg(name);
            }
        }
    }
    traced.arg(command.get_program()).args(command.get_args());
    *command = traced;
}

impl Trace {
    /// Reads what strace wrote.
    ///
    /// # Panics
    /// If there is nothing.
    #[must_use]
    pub fn read(file: &Path) -> Self {
        let text =
            std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut threads = BTreeMap::<u32, Vec<Step>>::new();
        for line in String::from_utf8_lossy(&text).lines() {
            let Some((tid, rest)) = line.split_once(' ') else {
                continue;
            };
            let (Ok(tid), rest) = (tid.parse(), rest.trim_start()) else {
                continue;
            };
            let step = if let Some(signal) = rest.strip_prefix("--- ") {
                let name = signal.split(' ').next().unwrap_or_default();
                Step::Signal(name.to_string())
            } else if let Some((name, arguments)) = rest.split_once('(')
                && !rest.starts_with('<')
            {
                Step::Call(name.to_string(), arguments.to_string())
            } else {
                continue; // the rest of a call that was told of before, or the end
            };
            threads.entry(tid).or_default().push(step);
        }
        assert!(!threads.is_empty(), "strace wrote {}", file.display());
        Self { threads }
    }

    /// The system calls that a thread makes in its handler of a signal, run by run.
    #[must_use]
    pub fn in_handler(&self, tid: u32, signal: &str) -> Vec<Vec<String>> {
        let mut runs: Vec<Vec<String>> = Vec::new();
        let mut inside = false;
        for step in self.threads.get(&tid).into_iter().flatten() {
            match step {
                Step::Signal(name) if name == signal => {
                    inside = true;
                    runs.push(Vec::new());
                }
                Step::Call(name, _) if name == "rt_sigreturn" => inside = false,
                Step::Call(name, _) => {
                    if let (true, Some(run)) = (inside, runs.last_mut()) {
                        run.push(name.clone());
                    }
                }
                Step::Signal(_) => {}
            }
        }
        runs
    }
}
