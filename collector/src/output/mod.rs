//! File formats for profiles: one file per format, each a [`Format`] in [`FORMATS`]. To add one,
//! write its file and add it to the list.
//!
//! Not here: names and stacks (`profile`), the command (`export`), and how files are replaced
//! (`atomic`).

pub(crate) mod atomic;
mod call_tree;
mod colours;
pub(crate) mod differential;
mod firefox;
mod folded;
mod page;
mod perf;
mod perf_script;
pub(crate) mod pprof;
mod speedscope;
mod svg;
#[cfg(test)]
mod tests;
pub(crate) mod unfinished;

pub use atomic::WriteError;

use crate::profile::{CallId, Frame, Names, Profile};
use crate::recording::ThreadId;
use crate::visible::Shown;
use clap::ValueEnum;
use perf::PerfData;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file format.
pub trait Format: Sync {
    /// Its name for `--format`.
    fn name(&self) -> &'static str;

    /// What it is, in a few words.
    fn about(&self) -> &'static str;

    /// How the names of such files end; the first is the usual one.
    fn extensions(&self) -> &'static [&'static str];

    /// Which of the events that were recorded it has room for.
    fn holds(&self) -> Holds {
        Holds::OneEvent
    }

    /// Writes a profile.
    ///
    /// # Errors
    /// Those of `out`.
    fn write(&self, profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()>;

    /// A file beside it that its readers need; none for most formats.
    fn companion(&self, _profile: &Profile, _options: &Options) -> Option<Companion> {
        None
    }
}

/// Which events a format has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// All.
    EveryEvent,
    /// The one that is shown.
    OneEvent,
    /// CPU time, and no other.
    CpuTime,
}

/// A file beside a profile, which names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Companion {
    /// Where.
    pub path: PathBuf,
    /// What is in it.
    pub content: Vec<u8>,
    /// What that is, in a few words.
    pub about: &'static str,
}

/// All formats.
pub static FORMATS: &[&dyn Format] = &[
    &folded::Folded,
    &svg::Svg,
    &page::Page,
    &pprof::Pprof,
    // Before Firefox's, whose extension it ends in too.
    &speedscope::Speedscope,
    &firefox::Firefox,
    &perf_script::PerfScript,
    // Before the plain form, whose extension it ends in too.
    &PerfData { deferred: true },
    &PerfData { deferred: false },
];

/// The page that a browser shows.
pub(crate) fn page() -> &'static dyn Format {
    &page::Page
}

/// What a user may choose about a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What folded stacks and flame graphs begin with.
    pub roots: Roots,
    /// How functions are called in pictures; in formats for other tools names are whole.
    pub names: Names,
    /// The file that is written; `None` if it is none.
    pub output: Option<PathBuf>,
}

/// What stands below the outermost function of a folded stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Roots {
    /// The process, if there are several
    #[default]
    Auto,
    /// Nothing: the same stacks of all processes are one
    None,
    /// The process
    Process,
    /// The process and the thread
    Thread,
}

/// A format is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// By the name given.
    #[error("there is no format {0:?}; the formats are:\n{list}", list = list())]
    Name(String),
    /// By the file's extension.
    #[error("the name {0:?} does not say which format is meant; give one with -f, or an extension:\n{list}", list = list())]
    Extension(String),
}

/// All formats, a line for each.
pub(crate) fn list() -> String {
    let of = |format: &&dyn Format| {
        let extensions = format.extensions().join(" ");
        line(format.name(), &extensions, format.about())
    };
    FORMATS.iter().map(of).collect::<Vec<_>>().join("\n")
}

/// A format's line in that list.
pub(crate) fn line(name: &str, extensions: &str, about: &str) -> String {
    format!("  {name:<18} {extensions:<22} {about}")
}

/// The format of that name, or else the one that the file's extension says.
///
/// # Errors
/// [`FormatError`], which lists the formats.
pub fn choose(name: Option<&str>, path: &Path) -> Result<&'static dyn Format, FormatError> {
    if let Some(name) = name {
        let named = |format: &&&dyn Format| {
            let dotted = |extension: &&str| extension.strip_prefix('.') == Some(name);
            format.name() == name
                || format
                    .extensions()
                    .iter()
                    .any(|one| dotted(one) || *one == name)
        };
        let found = FORMATS.iter().find(named).copied();
        return found.ok_or_else(|| FormatError::Name(name.to_owned()));
    }
    let file = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    let ends = |format: &&&dyn Format| format.extensions().iter().any(|end| file.ends_with(end));
    let found = FORMATS.iter().find(ends).copied();
    found.ok_or_else(|| FormatError::Extension(path.shown().to_string()))
}

/// A recorded frame: an address with its functions, innermost first; or a note.
pub(crate) struct Location<'a> {
    pub(crate) functions: Vec<&'a Frame>,
}

impl<'a> Location<'a> {
    /// The function that the address is in, into which the others were inlined.
    pub(crate) fn outer(&self) -> Option<&'a Frame> {
        self.functions.last().copied()
    }
}

/// The recorded frames of a stack, from the leaf: inlined functions are put together with the one
/// that they were inlined into.
pub(crate) fn locations(profile: &Profile, stack: CallId) -> Vec<Location<'_>> {
    let mut all = Vec::new();
    let mut functions = Vec::new();
    for frame in profile.walk(stack) {
        functions.push(frame);
        if !frame.inlined() {
            all.push(Location {
                functions: std::mem::take(&mut functions),
            });
        }
    }
    if !functions.is_empty() {
        all.push(Location { functions });
    }
    all
}

/// A thread's name, or its process's if it has none.
fn thread_name(profile: &Profile, id: ThreadId) -> &str {
    let thread = &profile.recording.threads[id.index()];
    if thread.name.is_empty() {
        profile.recording.processes[thread.process.index()].name()
    } else {
        &thread.name
    }
}

/// The command line that was recorded, or what is known of it.
fn command(profile: &Profile) -> String {
    let session = profile
        .recording
        .session
        .as_ref()
        .map(|session| &session.command);
    let first = || {
        profile
            .recording
            .processes
            .first()
            .map(|process| &process.command)
    };
    let command = session.filter(|command| !command.is_empty()).or_else(first);
    command.map_or_else(String::new, |command| command.join(" "))
}

/// Wall-clock time of the profile's start, ns since 1970; 0 if it is not known.
pub(crate) fn started_at(profile: &Profile) -> u64 {
    let session = profile
        .recording
        .session
        .as_ref()
        .map(|session| session.realtime_offset_ns);
    let first = || {
        profile
            .recording
            .processes
            .first()
            .map(|process| process.realtime_offset_ns)
    };
    match session.or_else(first) {
        Some(offset) if offset > 0 => offset.saturating_add(profile.start_ns()),
        _ => 0,
    }
}
