//! `rsunwind record` as a child: it has the program, and goes on with it whatever becomes of us.
//!
//! Not here: how what it writes is read ([`super::windows`]).
//!
//! # Safety
//! What is done between fork and exec are system calls only.
#![allow(unsafe_code)]

use super::Args;
use super::course::Course;
use crate::kept;
use crate::processes::{self, Stat};
use crate::record::signals::Inherited;
use crate::underway::{Guardian, Orphaned, Target, limit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How the recording is called.
pub(super) const NAME: &str = "agent.rsu";
/// So much more it may write before we look at it again, bytes: if we are gone, the recording ends
/// there, and the program runs on.
const LEASH: u64 = 64 << 20;

/// A place with less room than this, bytes, is taken only if there is none with more: the recording
/// would soon end there.
const ROOM: u64 = 16 << 20;

/// How often it is looked whether it has ended.
const GLANCE: Duration = Duration::from_millis(10);

/// A recording that goes on.
#[derive(Debug)]
pub(super) struct Recorder {
    folder: TempDir,
    child: Child,
    /// What it has started, once that is known.
    program: Option<i32>,
    /// How long the recording may become, as was said last, bytes.
    limit: u64,
    /// Does what is left to do when we have ended.
    guardian: Guardian,
}

impl Recorder {
    /// Starts it, in shared memory where there is some, with signals as we found them.
    ///
    /// # Errors
    /// As spawn, and if there is no room for its folder.
    pub(super) fn start(args: &Args, course: &Course, inherited: Inherited) -> io::Result<Self> {
        let folder = folder()?;
        let output = folder.path().join(NAME);
        let target = Target {
            pid: course.pid.clone(),
            ..args.target.clone()
        };
        let share = course.share.map(|share| format!("--max-overhead={share}"));
        let mut more = vec!["--can-wait"];
        more.extend(share.as_deref());
        more.extend(args.all.then_some("--all"));
        let mut command = target.record(&course.rate.to_string(), &output, &more);
        let then = match args.is_running() {
            true => {
                command.stdin(Stdio::null());
                Orphaned::Ends
            }
            false => Orphaned::GoesOn,
        };
        // SAFETY: it only makes system calls.
        unsafe { command.pre_exec(move || inherited.restore().map_err(Into::into)) };
        let mut guardian = Guardian::start(folder.path(), then)?;
        let child = command.spawn()?;
        guardian.is_for(child.id());
        Ok(Self {
            folder,
            child,
            program: None,
            limit: 0,
            guardian,
        })
    }

    /// Where everything is that is there only as long as we are.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program that it has started, once it has.
    pub(super) fn program(&mut self) -> Option<i32> {
        let recorder = self.child.id();
        let is_its = |pid: &i32| {
            let stat = u32::try_from(*pid).ok().and_then(Stat::read);
            stat.is_some_and(|stat| stat.parent() == Some(recorder))
        };
        self.program = self.program.or_else(|| processes::all().find(is_its));
        self.program
    }

    /// The status to exit with, if it has ended.
    pub(super) fn ended(&mut self) -> Option<u8> {
        let status = self.child.try_wait().ok()??;
        self.guardian.is_for_nobody();
        let signalled = status.signal().map(|signal| 128 + signal);
        let status = status.code().or(signalled).unwrap_or(1);
        Some(u8::try_from(status).unwrap_or(1))
    }

    /// Ends a recording of processes that run. Gives its status if it has ended by then.
    pub(super) fn end_by(&mut self, deadline: Instant) -> Option<u8> {
        self.signal(Signal::SIGTERM);
        loop {
            let ended = self.ended();
            if ended.is_some() || deadline <= Instant::now() {
                return ended;
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Passes a signal on.
    pub(super) fn signal(&self, signal: Signal) {
        // It is not waited for before it has ended, so the number is its own.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// Lets the recording, which has that length, grow on. Not before its program was started,
    /// which must not have the limit.
    pub(super) fn extend(&mut self, length: u64) {
        if let Some(limit) = anew(self.limit, length) {
            self.limit = limit;
            limit::file_size(self.child.id(), limit);
        }
    }
}

/// How long the recording, which has that length, may become, if that is worth saying anew.
fn anew(said: u64, length: u64) -> Option<u64> {
    let limit = length.saturating_add(LEASH);
    (said < limit.saturating_sub(LEASH / 32)).then_some(limit)
}

fn folder() -> io::Result<TempDir> {
    let mut failure = io::ErrorKind::NotFound.into();
    let mut places = kept::places();
    places.sort_by_key(|place| kept::room_in(place) < ROOM);
    for place in places {
        let made = tempfile::Builder::new()
            .prefix("rsunwind.agent-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(place);
        match made {
            Ok(folder) => return Ok(folder),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a window is read, which may take a minute, nothing is said.
    #[test]
    fn at_any_time_a_recording_may_grow_by_nearly_all_of_the_leash() {
        let mut said = 0;
        for length in (0..4 * LEASH).step_by(100_000) {
            said = anew(said, length).unwrap_or(said);
            let left = said - length;
            assert!(
                left <= LEASH && left > LEASH / 16 * 15,
                "{left} at {length}"
            );
        }
    }
}
