//! The recording behind the picture: `rsunwind record` as a child, into a folder that is gone when
//! we are, however we end.

use super::{Args, Error};
use crate::clock;
use crate::correlate;
use crate::profile::Profile;
use crate::recording::names::StoredNames;
use crate::symbolize::Places;
use crate::underway::{self, Guardian, Orphaned, limit};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A recording that goes on.
#[derive(Debug)]
pub(super) struct Recorder {
    directory: PathBuf,
    /// It is not waited for, so that its number stays its own until we end.
    child: Child,
    /// Does what is left to do when we have ended.
    _guardian: Guardian,
}

impl Recorder {
    pub(super) fn start(args: &Args) -> Result<Self, Error> {
        let directory = tempfile::tempdir().map_err(Error::System)?;
        let said = File::create(directory.path().join(SAID)).map_err(Error::System)?;
        let output = directory.path().join(NAME);
        let more = [(args.off_cpu, "--off-cpu"), (args.all, "--all")];
        let more = more
            .iter()
            .filter_map(|(asked, option)| asked.then_some(*option));
        let more: Vec<_> = more.collect();
        let mut command = args.target.record(&args.rate, &output, &more);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said);
        command.process_group(0);
        let guardian = Guardian::start(directory.path(), Orphaned::Ends);
        let mut guardian = guardian.map_err(Error::System)?;
        let child = command.spawn().map_err(Error::System)?;
        guardian.is_for(child.id());
        Ok(Self {
            directory: directory.keep(),
            child,
            _guardian: guardian,
        })
    }

    /// Where to read it from.
    pub(super) fn source(&self) -> Source {
        Source {
            directory: self.directory.clone(),
            session: None,
            names: StoredNames::default(),
        }
    }

    /// Keeps the recording from growing for ever. Only once it is there: what `rsunwind record`
    /// starts must not have the limit.
    pub(super) fn limit(&self) {
        limit::file_size(self.child.id(), MOST_BYTES);
    }

    /// Whether the recording is about as long as it may be.
    pub(super) fn is_full(&self) -> bool {
        let recording =
            underway::recording_in(&self.directory, NAME).and_then(|path| fs::metadata(path).ok());
        recording.is_some_and(|file| file.len() >= MOST_BYTES / 16 * 15)
    }

    /// Whether it has ended; then what it said, if that was the reason.
    pub(super) fn has_ended(&self) -> Option<String> {
        let pid = Id::Pid(Pid::from_raw(self.child.id().cast_signed()));
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let status = waitid(pid, flags).ok()?;
        let said = fs::read_to_string(self.directory.join(SAID)).unwrap_or_default();
        match status {
            WaitStatus::StillAlive => None,
            WaitStatus::Exited(_, 0) => Some(String::new()),
            _ => Some(said),
        }
    }
}

const SAID: &str = "said";

/// How long the recording may grow, bytes: all of it is read each time.
const MOST_BYTES: u64 = 1 << 30;

/// How the recording is called; while it is written, the beginning of that.
const NAME: &str = "top.rsu";

/// A recording that is being written, and the session that it is of.
#[derive(Clone, Debug)]
pub(super) struct Source {
    directory: PathBuf,
    session: Option<PathBuf>,
    /// What was found the last time: nothing is looked up twice.
    names: StoredNames,
}

impl Source {
    /// Everything so far, with names, and when that was (`CLOCK_MONOTONIC`, ns): names may take
    /// seconds. `None` if there is nothing yet.
    pub(super) fn read(&mut self) -> Option<(Profile, u64)> {
        let now_ns = clock::monotonic_ns();
        let path = underway::recording_in(&self.directory, NAME)?;
        if self.session.is_none() {
            self.session = underway::session_of(&path);
        }
        let with_session = self
            .session
            .as_ref()
            .and_then(|session| correlate::read(&[session]).ok());
        let mut recording = with_session.or_else(|| correlate::read(&[&path]).ok())?;
        recording.names = std::mem::take(&mut self.names);
        let mut profile = Profile::new(recording, &Places::default());
        self.names = profile.symbols.to_be_stored(&profile.recording);
        self.names.retain(|owner, _| owner.lasts());
        profile.show_usual();
        // Whoever only waits has no CPU time.
        let is_something = !profile.samples.is_empty() || !profile.aside.is_empty();
        is_something.then_some((profile, now_ns))
    }
}
