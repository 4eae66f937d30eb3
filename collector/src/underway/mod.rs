//! Recordings that go on: `rsunwind record` as a child, into a folder of ours, and how what it has
//! written so far is found.
//!
//! Not here: what is made of it (`top`, `agent`).

pub(crate) mod limit;

use crate::kept;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

/// Waits for its standard input to end, which it does when we do; then ends the recording, if it is
/// to, and takes the folder away when that has ended.
const GUARDIAN: &str = r#"trap '' INT TERM HUP; cat >/dev/null; [ "$3" = no ] || kill -TERM "$1" 2>/dev/null
while kill -0 "$1" 2>/dev/null && ! grep -q "^State:.Z" "/proc/$1/status"; do sleep 0.1; done
rm -rf "$2""#;

/// What becomes of a recording when we are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphaned {
    /// It ends, and the program that it has started with it.
    Ends,
    /// It goes on as long as the program.
    #[cfg_attr(not(feature = "agent"), expect(dead_code))]
    GoesOn,
}

/// Sees to it that the folder of a recording goes when we have ended, however we do: as soon as
/// what is given here is dropped.
///
/// # Errors
/// As spawn.
pub(crate) fn guard(folder: &Path, recorder: u32, then: Orphaned) -> io::Result<ChildStdin> {
    let mut guardian = Command::new("/bin/sh");
    let ends = if then == Orphaned::Ends { "yes" } else { "no" };
    guardian
        .args(["-c", GUARDIAN, "sh", &recorder.to_string()])
        .arg(folder)
        .arg(ends)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    guardian.process_group(0);
    let mut guardian = guardian.spawn()?;
    guardian
        .stdin
        .take()
        .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// The recording in a folder that is to be called `name`: it has another name until it is whole.
pub(crate) fn recording_in(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut files = fs::read_dir(folder).ok()?.flatten();
    let file = files.find(|file| file.file_name().to_string_lossy().starts_with(name));
    file.map(|file| file.path())
}

/// The directory of the session that a recording is of: its link leads to the recording.
pub(crate) fn session_of(recording: &Path) -> Option<PathBuf> {
    let recording = fs::canonicalize(recording).ok()?;
    let entries = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
    let wholes = kept::places().into_iter().flat_map(entries);
    let wholes = wholes.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(kept::SESSION_PREFIX)
    });
    let mut sessions = wholes.flat_map(|whole| entries(whole.path()));
    let is_its = |session: &fs::DirEntry| {
        let link = fs::read_link(session.path().join(kept::RECORDING_LINK));
        link.is_ok_and(|link| link == recording)
    };
    sessions.find(is_its).map(|session| session.path())
}
