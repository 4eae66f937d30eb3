//! Which samples of a recording are shown, and how they are named: what all commands that read
//! recordings take.

use super::Error;
#[cfg(feature = "agent")]
use crate::clickhouse;
use crate::correlate;
use crate::kept;
use crate::profile::{Filter, Names, OwnFrames, Profile, Show};
use crate::recording::Recording;
use crate::symbolize::Places;
use clap::Args as ClapArgs;
use regex::Regex;
use std::path::PathBuf;

/// Headings in the help.
const WHICH: &str = "Which samples";
const NAMES: &str = "Frames and names";

/// Which samples, and where their names are from.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Selection {
    /// Only this process, by pid or name (may be given several times)
    #[arg(short, long, value_name = "PID", help_heading = WHICH)]
    pub pid: Vec<String>,

    /// Only this thread, by tid or name (may be given several times)
    #[arg(short, long, value_name = "TID", help_heading = WHICH)]
    pub thread: Vec<String>,

    /// Only samples with a function on their stack that this regular expression matches (given
    /// several times: one for each)
    #[arg(long, value_name = "REGEX", help_heading = WHICH)]
    pub focus: Vec<Regex>,

    /// No samples with a function on their stack that this regular expression matches (may be given
    /// several times)
    #[arg(long, value_name = "REGEX", help_heading = WHICH)]
    pub ignore: Vec<Regex>,

    /// Only samples taken in a binary whose name this regular expression matches: libc, ^.kernel
    /// (may be given several times)
    #[arg(long, value_name = "REGEX", help_heading = WHICH)]
    pub module: Vec<Regex>,

    /// Only samples of regions with this label, or with any value of a key (may be given several
    /// times: all of them)
    #[arg(long, value_name = "KEY[=VALUE]", help_heading = WHICH)]
    pub label: Vec<String>,

    /// Only samples from this time on, in seconds since the start
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = WHICH)]
    pub from: Option<u64>,

    /// Only samples before this time, in seconds since the start
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = WHICH)]
    pub to: Option<u64>,

    /// Samples of this event instead of CPU time: one that was recorded with -e, off-cpu, wall; cpu
    /// where wall-clock time was recorded
    #[arg(short, long, value_name = "EVENT", help_heading = WHICH)]
    pub event: Option<String>,

    /// Also look for separate debug files in DIR/.build-id (may be given several times)
    #[arg(long, value_name = "DIR", value_parser = directory, help_heading = NAMES)]
    pub debug_dir: Vec<PathBuf>,

    /// Show rsunwind's own functions where they are on a stack, and its own work where it was done,
    /// instead of in one row `[rsunwind]`
    #[arg(long, help_heading = NAMES)]
    pub own_frames: bool,

    /// Show the native frames in which interpreters run the frames of their language
    #[arg(long, help_heading = NAMES)]
    pub interpreter_frames: bool,

    /// Only the frames of this language, such as python
    #[arg(long, value_name = "LANGUAGE", help_heading = NAMES)]
    pub language: Option<String>,

    /// Only where a thread held Python's GIL or, off the CPU, waited for it
    #[arg(long)]
    pub gil: bool,

    /// Show names of functions with their template arguments and parameters
    #[arg(long, visible_alias = "full-names", help_heading = NAMES)]
    pub whole_names: bool,
}

impl Selection {
    /// Where names are looked for: the directories named, then the usual ones.
    #[must_use]
    pub fn places(&self) -> Places {
        let mut places = Places::default();
        let named = self.debug_dir.iter().cloned();
        places.debug_directories.splice(0..0, named);
        places
    }

    /// How functions are called.
    #[must_use]
    pub const fn names(&self) -> Names {
        match self.whole_names {
            true => Names::Whole,
            false => Names::Short,
        }
    }

    /// Opens recordings, without any named the newest, and leaves in them what is selected. Says on
    /// standard error what could not be read or named. If threads are all the same to whoever asks,
    /// those of a process may be one.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::NoneHere`], [`Error::Filter`], [`Error::Event`].
    pub fn open(&self, files: &[PathBuf], by_thread: bool) -> Result<Profile, Error> {
        let by_thread = by_thread || !self.thread.is_empty();
        let mut profile = match elsewhere(files, by_thread)? {
            Some(profile) => profile,
            None => self.name(correlate::read(&kept::or_newest(files)?)?),
        };
        self.filter(&mut profile)?;
        Ok(profile)
    }

    /// Names what is in a recording.
    #[must_use]
    pub fn name(&self, recording: Recording) -> Profile {
        let show = Show {
            own: match self.own_frames {
                true => OwnFrames::Shown,
                false => OwnFrames::Hidden,
            },
            interpreters: self.interpreter_frames,
        };
        Profile::with(recording, &self.places(), show)
    }

    /// Leaves in a profile what is selected.
    ///
    /// # Errors
    /// [`Error::Filter`], [`Error::Event`].
    pub fn filter(&self, profile: &mut Profile) -> Result<(), Error> {
        match &self.event {
            Some(event) => profile.show_event(event)?,
            None => profile.show_usual(),
        }
        let filter = Filter {
            processes: self.pid.clone(),
            threads: self.thread.clone(),
            gil: self.gil,
            labels: self.label.clone(),
            focus: self.focus.clone(),
            ignore: self.ignore.clone(),
            modules: self.module.clone(),
            from_ns: self.from,
            to_ns: self.to,
        };
        if !filter.is_empty() {
            profile.unfiltered = Some(profile.whole());
            filter.apply(profile)?;
        }
        if let Some(language) = &self.language {
            profile.fold_to(language)?;
        }
        Ok(())
    }
}

/// A profile that is in no file.
#[cfg(feature = "agent")]
fn elsewhere(files: &[PathBuf], by_thread: bool) -> Result<Option<Profile>, Error> {
    Ok(clickhouse::open(files, by_thread)?)
}

#[cfg(not(feature = "agent"))]
fn elsewhere(_: &[PathBuf], _: bool) -> Result<Option<Profile>, Error> {
    Ok(None)
}

/// A directory that is there.
fn directory(text: &str) -> Result<PathBuf, String> {
    match PathBuf::from(text) {
        path if path.is_dir() => Ok(path),
        _ => Err("there is no such directory".to_owned()),
    }
}

/// A time in seconds, as ns.
fn seconds(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('s').unwrap_or(text).trim();
    let seconds: f64 = number
        .parse()
        .ok()
        .filter(|seconds: &f64| (0.0..1e9).contains(seconds))
        .ok_or_else(|| format!("{text:?} is no time: give seconds since the start, such as 2.5"))?;
    Ok((seconds * 1e9) as u64)
}
