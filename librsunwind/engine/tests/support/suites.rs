//! The assemblers and linkers of other Debian suites, each of which writes another version of
//! SFrame. Unpacked by `tests/sframe/unpack_suite`, once, for all tests of the repository.

use std::path::PathBuf;
use std::process::Command;

/// The directory of a suite's tools, for `gcc -B`; `None`, with a message, where the suite is out
/// of reach.
pub fn tools(suite: &str) -> Option<String> {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or(repository.join("target"), PathBuf::from);
    let directory = target.join("sframe/suites").join(suite);
    let unpack = repository.join("tests/sframe/unpack_suite");
    let unpacked = Command::new(unpack).arg(suite).arg(&directory).status();
    if !unpacked.is_ok_and(|status| status.success()) {
        eprintln!("Debian {suite} is out of reach: its version of SFrame is not tested here");
        return None;
    }
    Some(directory.join("bin").to_str()?.to_owned())
}
