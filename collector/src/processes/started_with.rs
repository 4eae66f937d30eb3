//! The arguments and the environment that a process was started with, as it says itself: it can say
//! so of any memory of its own (`PR_SET_MM`), of terabytes, and change what is there.

use std::fs::File;
use std::io::{self, Read};

/// So much is read, bytes: more than exec takes.
const MOST: u64 = 8 << 20;

/// The environment.
///
/// # Errors
/// As open and read.
pub(crate) fn try_environment(pid: u32) -> io::Result<Vec<u8>> {
    read(&format!("/proc/{pid}/environ"))
}

/// The same; empty if that may not be seen, or exec is about to put it there.
pub(crate) fn environment(pid: i32) -> Vec<u8> {
    read(&format!("/proc/{pid}/environ")).unwrap_or_default()
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
