//! How long a file may be that another process writes.
//!
//! # Safety
//! One system call, which reads a struct of ours and writes nothing.
#![allow(unsafe_code)]

use nix::libc;
use std::ptr;

/// Lets a process that runs already, and what it starts from now on, write no file that is longer.
/// Refused, it has a lower limit, or has ended.
pub(super) fn file_size(pid: u32, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: the struct lives through the call; the old limit is not asked for.
    unsafe {
        libc::prlimit(
            pid.cast_signed(),
            libc::RLIMIT_FSIZE,
            &raw const limit,
            ptr::null_mut(),
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_process_that_runs_has_the_limit() {
        let mut child = Command::new("/bin/sleep").arg("100").spawn().unwrap();
        file_size(child.id(), 12_345_678);
        let limits = fs::read_to_string(format!("/proc/{}/limits", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        let limits = limits.unwrap();
        let line = limits.lines().find(|line| line.contains("file size"));
        let words: Vec<_> = line.unwrap().split_whitespace().collect();
        assert_eq!(words[3..5], ["12345678", "12345678"], "{limits}");
    }
}
