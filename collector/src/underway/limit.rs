//! How long a file may be that another process writes.
//!
//! # Safety
//! One system call, which reads a struct of ours and fills another.
#![allow(unsafe_code)]

use nix::libc;
use std::ptr;

/// Lets a process that runs already, and what it starts from now on, write no file that is longer,
/// until it is said anew. Refused, it has ended.
pub(crate) fn file_size(pid: u32, bytes: u64) {
    let pid = pid.cast_signed();
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct lives through the call, and nothing is set.
    let read = unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, ptr::null(), &raw mut limit) };
    if read != 0 {
        return;
    }
    limit.rlim_cur = bytes.min(limit.rlim_max);
    // SAFETY: the struct lives through the call; the old limit is not asked for.
    unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const limit, ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_process_that_runs_has_the_limit() {
        let mut child = Command::new("/bin/sleep").arg("100").spawn().unwrap();
        file_size(child.id(), 1_234_567);
        file_size(child.id(), 12_345_678);
        let limits = fs::read_to_string(format!("/proc/{}/limits", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        let limits = limits.unwrap();
        let line = limits.lines().find(|line| line.contains("file size"));
        let words: Vec<_> = line.unwrap().split_whitespace().collect();
        assert_eq!(words[3], "12345678", "{limits}");
        assert_ne!(words[4], "12345678", "{limits}");
    }
}
