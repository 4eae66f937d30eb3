//! Kernel settings that decide who may use perf events, changed for a test and put back; and an
//! ordinary user to try them as.
//!
//! Tests that depend on such a setting hold a lock that all test processes honour, and nobody else
//! changes it meanwhile.

use crate::lock;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Who owns nothing and may do nothing.
pub const NOBODY: u32 = 65534;

/// A setting below `/proc/sys/kernel`, put back when dropped, in a panic too.
#[derive(Debug)]
pub struct Setting {
    path: PathBuf,
    before: String,
    /// Given back after the setting, which is the order of the fields.
    _lock: lock::Lock,
}

impl Setting {
    /// `perf_event_paranoid`, from -1 (everything) to 2 (user mode of one's own programs).
    ///
    /// # Errors
    /// That of writing: the settings cannot be changed here.
    pub fn paranoid(level: &str) -> io::Result<Self> {
        Self::set("perf_event_paranoid", level)
    }

    /// Memory for rings that each user gets on top of `ulimit -l`, KB for each processor.
    ///
    /// # Errors
    /// As [`Setting::paranoid`].
    pub fn mlock_kb(value: &str) -> io::Result<Self> {
        Self::set("perf_event_mlock_kb", value)
    }

    fn set(name: &str, value: &str) -> io::Result<Self> {
        let path = Path::new("/proc/sys/kernel").join(name);
        let lock = lock::take(name);
        let setting = Self {
            before: fs::read_to_string(&path)?,
            path,
            _lock: lock,
        };
        fs::write(&setting.path, value)?;
        Ok(setting)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(&self.path, &self.before);
    }
}

/// A directory that everybody can write to, with copies of those files that everybody can run.
///
/// # Panics
/// Without room.
#[must_use]
pub fn for_everybody(files: &[&Path]) -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    open(directory.path(), 0o777);
    let copies = files.iter().map(|from| {
        let to = directory.path().join(from.file_name().expect("a file"));
        fs::copy(from, &to).expect("room for a copy");
        open(&to, 0o755);
        to
    });
    let copies = copies.collect();
    (directory, copies)
}
