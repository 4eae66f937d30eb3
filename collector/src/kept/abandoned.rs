//! What recordings left that were killed: session directories in shared memory, with samples that
//! are in no file yet, and a link to the file that has the others.
//!
//! Not here: making sessions (`record`).

use crate::visible::{Shown, say};
use engine::wire::session::{CONTROL_FILE, CONTROL_MAGIC, Control};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::kill;
use nix::sys::statvfs::statvfs;
use nix::unistd::{Pid, geteuid};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the link to the recording that the session is drained into, so that what a killed
/// rsunwind leaves can be read whole.
pub(crate) const RECORDING_LINK: &str = "recording.rsu";
/// How session directories are named, before some random letters.
pub(crate) const SESSION_PREFIX: &str = "rsunwind-";
/// Is in a directory that was told of.
const TOLD: &str = "told";

/// Says once of each what was left.
pub(crate) fn tell() {
    for directory in abandoned() {
        let mark = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(directory.join(TOLD));
        if mark.is_err_and(|error| error.kind() == std::io::ErrorKind::AlreadyExists) {
            continue;
        }
        let path = directory.shown();
        say(format_args!(
            "{path} was left by a recording that was killed: rsunwind report {path} shows it, rm -r {path} removes it"
        ));
    }
}

/// The recording that a session was drained into, if it is there.
pub(super) fn recording_of(whole: &Path) -> Option<PathBuf> {
    let mut inside = fs::read_dir(whole).ok()?.flatten();
    inside.find_map(|entry| fs::canonicalize(entry.path().join(RECORDING_LINK)).ok())
}

/// Where a session can be, best first.
pub(crate) fn places() -> Vec<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let places = [
        Some("/dev/shm".into()),
        variable("XDG_RUNTIME_DIR"),
        variable("TMPDIR"),
        Some("/tmp".into()),
    ];
    places.into_iter().flatten().collect()
}

/// Bytes that are free in a folder.
pub(crate) fn room_in(place: &Path) -> u64 {
    statvfs(place).map_or(0, |system| {
        system
            .blocks_available()
            .saturating_mul(system.fragment_size())
    })
}

/// Directories that recordings of ours left when they were killed. They hold memory, and perhaps
/// what somebody wants to see.
pub(super) fn abandoned() -> Vec<PathBuf> {
    places()
        .iter()
        .flat_map(|place| abandoned_in(place))
        .collect()
}

fn abandoned_in(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        entry
            .file_name()
            .as_bytes()
            .starts_with(SESSION_PREFIX.as_bytes())
    });
    let paths = named.map(|entry| entry.path());
    paths
        .filter(|path| is_ours(path) && is_left(path))
        .collect()
}

fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw())
}

/// Whether who ran the session of that directory is gone: no process has its number, and its
/// control page is not held, as it is by one in another PID namespace.
fn is_left(whole: &Path) -> bool {
    let inside = fs::read_dir(whole).into_iter().flatten().flatten();
    let mut pages = inside.filter_map(|entry| control_page(&entry.path().join(CONTROL_FILE)));
    pages
        .next()
        .is_some_and(|(control, pid)| is_gone(pid) && !is_held(&control))
}

/// A control page, and the pid in it.
fn control_page(control: &Path) -> Option<(File, i32)> {
    let mut page = [0; size_of::<Control>()];
    let control = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(control)
        .ok()?;
    control.read_exact_at(&mut page, 0).ok()?;
    let word = |offset: usize, length: usize| page.get(offset..offset + length);
    if word(offset_of!(Control, magic), 8)? != CONTROL_MAGIC.to_le_bytes() {
        return None;
    }
    let pid = word(offset_of!(Control, collector_pid), 4)?
        .try_into()
        .ok()?;
    let pid = i32::try_from(u32::from_le_bytes(pid)).ok()?;
    (pid > 0).then_some((control, pid))
}

fn is_held(control: &File) -> bool {
    matches!(control.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn is_gone(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::wire::session::RUNNING;

    /// A session's directory, with a control page that names its collector.
    fn session(place: &Path, collector: u32) -> PathBuf {
        let whole = place.join(format!("{SESSION_PREFIX}{collector}"));
        let inner = whole.join("0123");
        fs::create_dir_all(&inner).unwrap();
        let mut page = vec![0; 4096];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(Control, magic), &CONTROL_MAGIC.to_le_bytes());
        put(offset_of!(Control, collector_pid), &collector.to_le_bytes());
        put(offset_of!(Control, state), &RUNNING.to_le_bytes());
        fs::write(inner.join(CONTROL_FILE), page).unwrap();
        whole
    }

    #[test]
    fn only_sessions_whose_collector_is_gone_are_abandoned() {
        let place = tempfile::tempdir().unwrap();
        session(place.path(), std::process::id());
        fs::create_dir(place.path().join("rsunwind-1000")).unwrap(); // a cache of the library
        assert_eq!(abandoned_in(place.path()), Vec::<PathBuf>::new());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let left = session(place.path(), child.id());
        let page = left.join("0123").join(CONTROL_FILE);
        let held = File::open(page).unwrap();
        held.try_lock().unwrap();
        assert_eq!(
            abandoned_in(place.path()),
            Vec::<PathBuf>::new(),
            "its collector lives in another PID namespace"
        );
        drop(held);
        assert_eq!(abandoned_in(place.path()), std::slice::from_ref(&left));

        assert_eq!(recording_of(&left), None);
        let recording = place.path().join("x.rsu");
        fs::write(&recording, "").unwrap();
        std::os::unix::fs::symlink(&recording, left.join("0123").join(RECORDING_LINK)).unwrap();
        assert_eq!(recording_of(&left), recording.canonicalize().ok());
    }
}
