//! Files as locks between test processes: a runner may start each test in a process of its own.

use std::fs::{File, create_dir_all};
use std::path::Path;

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not read")] File);

/// Takes the lock of that name, waiting for other holders.
///
/// # Panics
/// If the lock file cannot be made.
#[must_use]
pub fn take(name: &str) -> Lock {
    let directory = crate::target_directory().join("locks");
    create_dir_all(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    hold(&directory.join(name))
}

fn hold(path: &Path) -> Lock {
    let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.lock()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Lock(file)
}
