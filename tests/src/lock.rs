//! Files as locks between test processes: a runner may start each test in a process of its own.

use std::fs::{File, create_dir_all, read_to_string};
use std::io::Write;
use std::path::Path;

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock(File);

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

/// Makes what all tests of a run share, once for that run where the runner says which it is, or
/// else for each of its processes.
///
/// # Panics
/// As `make`, and if the lock file cannot be written.
pub fn once_a_run(name: &str, make: impl FnOnce()) {
    let mut lock = take(name);
    let run = std::env::var("NEXTEST_RUN_ID").unwrap_or_default();
    let made_in = crate::target_directory().join("locks").join(name);
    if run.is_empty() || read_to_string(made_in).unwrap_or_default() != run {
        make();
        lock.0.set_len(0).expect("a file of ours");
        lock.0.write_all(run.as_bytes()).expect("room for a line");
    }
}

fn hold(path: &Path) -> Lock {
    let mut file = File::options();
    let file = file.create(true).truncate(false).write(true).open(path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.lock()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Lock(file)
}
