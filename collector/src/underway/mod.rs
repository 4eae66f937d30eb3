//! Recordings that go on: `rsunwind record` as a child, into a folder of ours, and how what it has
//! written so far is found.
//!
//! Not here: what is made of it (`top`, `agent`).

pub(crate) mod limit;

use crate::kept;
use clap::Args;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

/// Reads whom it is for, a number in each line; an empty one says that it was waited for, and that
/// the number may be another's. When there is no more, which is when we end, it ends the recording,
/// if it is to, and takes the folder away when that has ended.
const GUARDIAN: &str = r#"trap '' INT TERM HUP; while read -r line; do pid=$line; done; [ -z "$pid" ] || {
[ "$2" = no ] || kill -TERM "$pid" 2>/dev/null
while kill -0 "$pid" 2>/dev/null && ! grep -q "^State:.Z" "/proc/$pid/status"; do sleep 0.1; done; }
rm -rf "$1""#;

/// What is recorded: what runs already, or a program that is started. A command of ours that can
/// more has that in the same group, and among what it asks `record` for.
#[derive(Clone, Debug, Default, Args)]
#[group(id = "target", required = true, multiple = false)]
pub struct Target {
    /// Running processes, and what they start: pids or names, separated by commas
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<String>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Target {
    /// `rsunwind record` of it, without names, at that rate into a file that is not packed: places
    /// in it stay where they are.
    pub(crate) fn record(&self, rate: &str, output: &Path, more: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(["record", "-q", "--names=0", "--plain", "-F", rate, "-o"]);
        command.arg(output);
        command.args(more);
        if let Some(pids) = &self.pid {
            command.args(["-p", pids]);
        }
        if !self.command.is_empty() {
            command.arg("--").args(&self.command);
        }
        command
    }
}

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
/// this is dropped.
#[derive(Debug)]
pub(crate) struct Guardian(ChildStdin);

impl Guardian {
    /// Before there is a recorder: without a guardian nothing may be started.
    ///
    /// # Errors
    /// As spawn.
    pub(crate) fn start(folder: &Path, then: Orphaned) -> io::Result<Self> {
        let ends = if then == Orphaned::Ends { "yes" } else { "no" };
        let mut guardian = Command::new("/bin/sh");
        guardian
            .args(["-c", GUARDIAN, "sh"])
            .arg(folder)
            .arg(ends)
            .env_remove("pid")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("/bin/sh: {error}"));
        let mut guardian = guardian.spawn().map_err(named)?;
        let stdin = guardian.stdin.take();
        stdin
            .map(Self)
            .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// This process records.
    pub(crate) fn is_for(&mut self, recorder: u32) {
        // Without a guardian, whom somebody has ended, all goes on.
        let _ = writeln!(self.0, "{recorder}");
    }

    /// The recorder has ended and was waited for: its number may be another's from now on.
    #[cfg_attr(not(any(feature = "agent", test)), expect(dead_code))]
    pub(crate) fn is_for_nobody(&mut self) {
        let _ = writeln!(self.0);
    }
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
    let is_its = |session: &fs::DirEntry| leads_to(&session.path(), &recording);
    sessions.find(is_its).map(|session| session.path())
}

/// Whether that is the directory, which goes when the recording ends.
#[cfg_attr(not(feature = "agent"), expect(dead_code))]
pub(crate) fn is_of(recording: &Path, session: &Path) -> bool {
    fs::canonicalize(recording).is_ok_and(|recording| leads_to(session, &recording))
}

fn leads_to(session: &Path, recording: &Path) -> bool {
    let link = fs::read_link(session.join(kept::RECORDING_LINK));
    link.is_ok_and(|link| link == recording)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::time::{Duration, Instant};

    /// Drops a guardian; gives whether the process that it is for goes on when the folder is gone.
    fn goes_on(tell: impl FnOnce(&mut Guardian, u32)) -> bool {
        let folder = tempfile::tempdir().unwrap().keep();
        let mut guardian = Guardian::start(&folder, Orphaned::Ends).unwrap();
        let mut process = Command::new("/bin/sleep").arg("100").spawn().unwrap();
        tell(&mut guardian, process.id());
        assert!(folder.exists());
        drop(guardian);
        let begun = Instant::now();
        while folder.exists() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{folder:?} is still there"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let goes_on = process.try_wait().unwrap().is_none();
        process.kill().unwrap();
        let status = process.wait().unwrap();
        assert_eq!(status.signal(), Some(if goes_on { 9 } else { 15 }));
        goes_on
    }

    #[test]
    fn a_guardian_ends_whom_it_is_for_and_nobody_else() {
        assert!(!goes_on(Guardian::is_for));
        assert!(goes_on(|guardian, pid| {
            guardian.is_for(pid);
            guardian.is_for_nobody();
        }));
        assert!(goes_on(|_, _| {}), "nothing was started");
    }
}
