//! The arguments and the environment that a process was started with, as it says itself: it can say
//! so of any memory of its own (`PR_SET_MM`), of terabytes, and change what is there.

use super::Stat;
use std::fs::{self, File};
use std::io::{self, Read};
use std::time::Duration;

/// So much is read, bytes: more than exec takes.
const MOST: u64 = 8 << 20;
/// An exec that lays out memory is waited for that long, ms.
const LONGEST_EXEC: u32 = 100;

/// The environment.
///
/// # Errors
/// As open and read.
fn try_environment(pid: u32) -> io::Result<Vec<u8>> {
    read(&format!("/proc/{pid}/environ"))
}

/// The same; empty if that may not be seen, or exec is about to put it there.
pub(crate) fn environment(pid: i32) -> Vec<u8> {
    try_environment(pid.cast_unsigned()).unwrap_or_default()
}

/// The same; if exec is about to put it there, once that has happened.
pub(crate) fn environment_after_exec(pid: u32) -> Vec<u8> {
    let mut waits = 0;
    loop {
        let read = try_environment(pid);
        let is_empty = read.as_ref().is_ok_and(Vec::is_empty)
            // Kernel threads have none.
            && fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        let comes = || Stat::read(pid).is_some_and(|stat| stat.has_no_environment_yet());
        // It begins empty, and if an exec came between open and read, so is what was opened.
        let most = || if comes() { LONGEST_EXEC } else { 1 };
        if !is_empty || waits >= most() {
            return read.unwrap_or_default();
        }
        waits += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The command line; empty as before.
pub(crate) fn command(pid: i32) -> Vec<u8> {
    read(&format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// What the settings of ours that a process was started with have for a key, which ends in `=`.
pub(crate) fn setting(pid: i32, key: &[u8]) -> Option<Vec<u8>> {
    let environment = environment(pid);
    let mut variables = environment.split(|byte| *byte == 0);
    let settings = variables.find_map(|variable| variable.strip_prefix(b"RSUNWIND="))?;
    let mut settings = settings.split(|byte| *byte == b',');
    let value = settings.find_map(|setting| setting.strip_prefix(key));
    value.map(<[u8]>::to_vec)
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_exec_takes() {
        assert_eq!(read("/dev/zero").unwrap().len() as u64, MOST);
        let own = std::process::id();
        assert!(!command(own.cast_signed()).is_empty());
        assert_eq!(
            try_environment(own).unwrap(),
            environment(own.cast_signed())
        );
    }
}
