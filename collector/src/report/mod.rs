//! `rsunwind report`: who used the CPU, as a table on the terminal.
//!
//! Start at [`run`]. Not here: what is counted (`table`), how columns are aligned (`columns`), and
//! the account of how well a recording went ([`crate::summary`]).

mod columns;
mod pager;
mod table;
#[cfg(test)]
mod tests;

use crate::correlate;
use crate::profile::{Filter, FilterError, Names, NoEvent, NoLanguage, OwnFrames, Profile, Show};
use crate::recording::{OpenError, Recording};
use crate::summary;
use crate::symbolize::Places;
use crate::visible::say;
use clap::{Args as ClapArgs, ValueEnum};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

/// Arguments of `rsunwind report`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
SELF is CPU time (or what --event names) spent in the function itself, TOTAL includes what it called; a function that calls itself is counted once.
On a terminal the table goes through $PAGER (or less).")]
pub struct Args {
    /// Recordings (.rsu), segments (.seg), or session directories; several are read as one
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// What a row stands for
    #[arg(long, value_enum, default_value_t)]
    pub by: By,

    /// What comes first
    #[arg(short, long, value_enum, default_value_t)]
    pub sort: Sort,

    /// At most this many rows
    #[arg(short = 'n', long, value_name = "ROWS")]
    pub limit: Option<usize>,

    /// How the recording went, instead of what is in it
    #[arg(long)]
    pub summary: bool,

    /// Print the table without a pager
    #[arg(long)]
    pub no_pager: bool,

    /// Which samples, and where names are looked for
    #[command(flatten)]
    pub selection: Selection,
}

/// Which samples, and where their names are from.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Selection {
    /// Only this process, by pid or name (may be given several times)
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<String>,

    /// Only this thread, by tid or name (may be given several times)
    #[arg(short, long, value_name = "TID")]
    pub thread: Vec<String>,

    /// Samples of this event instead of CPU time: one that was recorded with -e, off-cpu, wall; cpu
    /// where wall-clock time was recorded
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Also look for separate debug files in DIR/.build-id (may be given several times)
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,

    /// Show rsunwind's own functions where they are on a stack, and its own work where it was done,
    /// instead of in one row `[rsunwind]`
    #[arg(long)]
    pub own_frames: bool,

    /// Show the native frames in which interpreters run the frames of their language
    #[arg(long)]
    pub interpreter_frames: bool,

    /// Only the frames of this language, such as python
    #[arg(long, value_name = "LANGUAGE")]
    pub language: Option<String>,

    /// Show names of functions with their template arguments and parameters
    #[arg(long)]
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

    /// Opens recordings and leaves in them what is selected. Says on standard error what could not
    /// be read or named.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Filter`], [`Error::Event`].
    pub fn open(&self, files: &[PathBuf]) -> Result<Profile, Error> {
        let mut profile = self.name(correlate::read(files)?);
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
        let filter = Filter {
            processes: self.pid.clone(),
            threads: self.thread.clone(),
        };
        filter.apply(profile)?;
        if let Some(language) = &self.language {
            profile.fold_to(language)?;
        }
        match &self.event {
            Some(event) => profile.show_event(event)?,
            None => profile.show_usual(),
        }
        Ok(())
    }
}

/// What a row of the table stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A function
    #[default]
    Function,
    /// A line of a source file
    Line,
    /// A binary
    Module,
    /// A thread
    Thread,
    /// A process
    Process,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Most time in itself first
    #[default]
    #[value(name = "self")]
    Own,
    /// Most time with what it called first
    Total,
    /// By name
    Name,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A recording cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nothing is left of it.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// No such event was recorded.
    #[error(transparent)]
    Event(#[from] NoEvent),
    /// No frames of such a language were recorded.
    #[error(transparent)]
    Language(#[from] NoLanguage),
    /// Standard output cannot be written.
    #[error("the report cannot be written: {0}")]
    Write(#[from] io::Error),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Filter(_) | Self::Event(_) | Self::Language(_) => 2,
            _ => 1,
        }
    }
}

/// Prints what `args` ask for.
///
/// # Errors
/// Any [`Error`]. A reader that goes away is none.
pub fn run(args: &Args) -> Result<(), Error> {
    let mut selection = args.selection.clone();
    if args.summary {
        selection.event = Some("cpu".to_owned()); // the account is of CPU time, and has a line for each other event
    }
    let profile = selection.open(&args.files)?;
    let text = if args.summary {
        summary::text(&profile)
    } else {
        text(&profile, args)
    };
    complain(&profile);
    pager::show(&text, args.no_pager)?;
    Ok(())
}

/// Says on standard error what could not be read or named.
pub(crate) fn complain(profile: &Profile) {
    for line in summary::complaints(profile) {
        say(format_args!("{line}"));
    }
}

fn text(profile: &Profile, args: &Args) -> String {
    let mut out = heading(profile);
    if profile.weighed().next().is_none() {
        let why = match profile.shown_event {
            0 => summary::why_empty(profile),
            _ => format!("no sample of {} was taken", profile.subject()),
        };
        let _ = writeln!(out, "\n{why}");
        return out;
    }
    let mut rows = table::rows(profile, args.by, args.selection.names());
    table::sort(&mut rows, args.sort);
    let all = rows.len();
    rows.truncate(args.limit.unwrap_or(usize::MAX));
    out.push('\n');
    let amount = |amount| profile.amount(amount);
    columns::print(&mut out, &rows, args.by, table::whole(profile), amount);
    if rows.len() < all {
        let _ = writeln!(out, "… and {} more rows", all - rows.len());
    }
    out
}

fn heading(profile: &Profile) -> String {
    let mut out = String::new();
    let recording = &profile.recording;
    let command = recording.session.as_ref().map(|session| &session.command);
    let first = || recording.processes.first().map(|process| &process.command);
    if let Some(command) = command.or_else(first).filter(|command| !command.is_empty()) {
        let _ = writeln!(out, "{}", command.join(" "));
    }
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let _ = writeln!(
        out,
        "{} of {} in {}, {} and {}",
        profile.amount(table::whole(profile)),
        profile.subject(),
        count(profile.samples.len(), "sample", "samples"),
        count(recording.processes.len(), "process", "processes"),
        count(recording.threads.len(), "thread", "threads"),
    );
    out
}
