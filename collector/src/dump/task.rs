//! What `/proc` says of a thread without disturbing it.

use crate::processes::{self, Stat};
use crate::visible::visible;
use std::fs;

/// A thread, as the kernel sees it.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) tid: u32,
    /// Its number in the PID namespace that it lives in.
    pub(super) inner_tid: u32,
    pub(super) name: String,
    pub(super) state: State,
    /// The kernel's function in which it sleeps; empty if it does not, or that may not be known.
    pub(super) wchan: String,
}

/// The state letter of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) char);

impl State {
    /// In words.
    pub(super) const fn words(self) -> &'static str {
        match self.0 {
            'R' => "running",
            'S' => "asleep",
            'D' => "asleep, not to be woken",
            'T' => "stopped by a signal",
            't' => "stopped by a debugger",
            'I' => "idle",
            'Z' => "ended",
            _ => "gone",
        }
    }

    pub(super) const fn has_ended(self) -> bool {
        matches!(self.0, 'Z' | 'X' | '?')
    }
}

impl Task {
    pub(super) fn look(pid: u32, tid: u32) -> Self {
        let (pid_, tid_) = (pid.cast_signed(), tid.cast_signed());
        let name = processes::name(pid_, tid_);
        let wchan = fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan"));
        Self {
            tid,
            inner_tid: processes::inner_number(pid_, tid_).unwrap_or(tid),
            name: visible(&String::from_utf8_lossy(&name)).into_owned(),
            state: State(Stat::of_thread(pid, tid).map_or('?', |stat| stat.state())),
            wchan: wchan.ok().filter(|name| name != "0").unwrap_or_default(),
        }
    }

    /// How often it was put on a processor: as long as that stays the same, nothing of it has
    /// changed.
    pub(super) fn runs(pid: u32, tid: u32) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        text.split_ascii_whitespace().nth(2)?.parse().ok()
    }

    /// The kernel's functions that it sleeps in, innermost first; `None` if we may not know (it
    /// takes root).
    pub(super) fn kernel_stack(pid: u32, tid: u32) -> Option<Vec<String>> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stack")).ok()?;
        let frames = text.lines().filter_map(kernel_frame);
        Some(frames.map(str::to_owned).collect())
    }
}

/// The function of a line `[<0>] name+0x12/0x34 [module]`.
fn kernel_frame(line: &str) -> Option<&str> {
    let (_, place) = line.split_once("] ")?;
    place
        .split(['+', ' '])
        .next()
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let line = "[<0>] futex_wait_queue+0x66/0x90";
        assert_eq!(kernel_frame(line), Some("futex_wait_queue"));
        let line = "[<0>] rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]";
        assert_eq!(kernel_frame(line), Some("rpc_wait_bit_killable"));
        assert_eq!(kernel_frame(""), None);
    }

    #[test]
    fn this_thread_runs() {
        let (pid, tid) = (std::process::id(), nix::unistd::gettid().as_raw());
        let task = Task::look(pid, tid.cast_unsigned());
        assert_eq!(task.state.words(), "running");
        assert!(Task::runs(pid, task.tid).is_some());
        let gone = Task::look(pid, u32::MAX);
        assert!(gone.state.has_ended());
    }
}
