//! Other Debian suites, whose tools and libraries are newer than the system's.

use crate::{lock, repository, target_directory};
use std::path::PathBuf;
use std::process::Command;

/// Where such a suite is unpacked: its tools in `bin`, what they need in `root`. `None`, with a
/// message, where it is out of reach.
#[must_use]
pub fn unpack(name: &str) -> Option<PathBuf> {
    let _lock = lock::take("suites");
    let directory = target_directory().join("sframe/suites").join(name);
    if !directory.join("bin/as").exists() {
        let script = repository().join("tests/sframe/unpack_suite");
        let unpacked = Command::new(script).arg(name).arg(&directory).status();
        if !unpacked.is_ok_and(|status| status.success()) {
            eprintln!("NOT RUN: Debian {name} is out of reach, and what is tested with it is not");
            return None;
        }
    }
    Some(directory)
}
