//! `rsunwind export`: a recording as a file of another format.
//!
//! Start at [`run`]. Not here: the formats themselves ([`crate::output`]).

use crate::kept;
use crate::output::atomic::{self, Begun};
use crate::output::{self, Format, FormatError, Holds, Options, Roots, WriteError};
use crate::profile::{Profile, is_time};
use crate::progress;
use crate::progress_bar::Working;
use crate::report::{self, Selection};
use crate::visible::{Shown, say};
use clap::Args as ClapArgs;
use engine::wire::offer::CPU_EVENT;
use engine::wire::source::WALL;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  rsunwind export -o flame.svg                              the newest recording here, as a flame graph
  rsunwind export prog.rsu -o prog.html --from 2 --to 5     a page of three seconds of it
  rsunwind export prog.rsu -f folded -o - | grep parse      stacks as text on standard output";

fn after_help() -> String {
    let formats = output::list();
    format!("Formats, and the extensions that choose them:\n{formats}\n\n{EXAMPLES}")
}

/// Arguments of `rsunwind export`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = after_help())]
pub struct Args {
    /// Recordings (.rsu), segments (.seg), or session directories; several are read as one
    /// [default: the newest recording here]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The file to write; - is standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// Its format [default: by the extension of OUT]
    #[arg(short, long)]
    pub format: Option<String>,

    /// What folded stacks and flame graphs begin with
    #[arg(long, value_enum, default_value_t)]
    pub roots: Roots,

    /// Which samples, and where names are looked for
    #[command(flatten)]
    pub selection: Selection,
}

/// Why nothing was exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The format is not known.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The recording cannot be read, or nothing in it is what was asked for.
    #[error(transparent)]
    Read(#[from] report::Error),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It was not waited for.
    #[error("{} was not written: {why}", path.shown())]
    Stopped {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// It is one of those to be read.
    #[error("{} is the recording itself: name another file with -o", path.shown())]
    Itself {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Format(_) | Self::Itself { .. } => 2,
            Self::Read(error) => error.exit_status(),
            Self::Write(_) | Self::Stopped { .. } => 1,
        }
    }
}

/// Does what `args` ask for.
///
/// # Errors
/// Any [`Error`].
pub fn run(args: &Args) -> Result<(), Error> {
    // Before the recording is read, which may take a while.
    let format = output::choose(args.format.as_deref(), &args.output)?;
    let files = kept::or_newest(&args.files).map_err(report::Error::from)?;
    let same = files.iter().find(|file| is_same(file, &args.output));
    if let Some(path) = same {
        return Err(Error::Itself { path: path.clone() });
    }
    let begun = Begun::at(&args.output)?;
    let working = Working::begin();
    let mut profile = args.selection.open(&files, true)?;
    let mut left_out = Vec::new();
    if args.selection.event.is_none() {
        left_out = show_usual(&mut profile, format);
    }
    let options = Options {
        roots: args.roots,
        names: args.selection.names(),
        output: None,
    };
    finish(&profile, begun, format, options)?;
    drop(working);
    if format.holds() == Holds::CpuTime && !left_out.is_empty() {
        let (path, events) = (args.output.shown(), left_out.join(", "));
        say(format_args!(
            "{path}: CPU time only: {events} needs another format (.html and .pb.gz hold all)"
        ));
    }
    report::complain(&profile);
    if profile.samples.is_empty() {
        say(format_args!("{}", crate::summary::why_empty(&profile)));
    }
    profile.leave();
    Ok(())
}

/// Writes a profile; the format is the one named, or else that of the file's extension. The file is
/// replaced as a whole or not at all.
///
/// # Errors
/// [`Error::Format`], [`Error::Write`].
pub fn write(profile: &Profile, path: &Path, format: Option<&str>) -> Result<(), Error> {
    write_with(profile, path, format, Options::default())
}

pub(crate) fn write_with(
    profile: &Profile,
    path: &Path,
    format: Option<&str>,
    options: Options,
) -> Result<(), Error> {
    let format = output::choose(format, path)?;
    finish(profile, Begun::at(path)?, format, options)
}

fn finish(
    profile: &Profile,
    begun: Begun,
    format: &dyn Format,
    mut options: Options,
) -> Result<(), Error> {
    let path = begun.path();
    let is_file = path != Path::new("-") && (path.is_file() || !path.exists());
    options.output = std::path::absolute(path).ok().filter(|_| is_file);
    progress::begin("writing", 0);
    begun.write(|out| format.write(profile, &options, out))?;
    if let Some(companion) = format.companion(profile, &options) {
        atomic::write(&companion.path, |out| out.write_all(&companion.content))?;
        let path = companion.path.shown();
        say(format_args!("{path}: {}", companion.about));
    }
    Ok(())
}

/// Shows what the recording was made to show, as far as a format has room for it. Gives the names
/// of the events that it has none for.
pub(crate) fn show_usual(profile: &mut Profile, format: &dyn Format) -> Vec<String> {
    match format.holds() {
        Holds::CpuTime => profile.show(CPU_EVENT),
        Holds::EveryEvent | Holds::OneEvent => profile.show_usual(),
    }
    if format.holds() == Holds::EveryEvent {
        return Vec::new();
    }
    let in_it = |event: u32| profile.shown_event == WALL && is_time(event);
    let others = profile.other_events().into_iter();
    let others = others.filter(|event| *event != WALL && !in_it(*event));
    others.map(|event| profile.event_name(event)).collect()
}

fn is_same(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok().filter(|file| file.is_file())?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(a).is_some_and(|a| Some(a) == identity(b))
}
