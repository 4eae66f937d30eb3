//! When a recording is done: what is said about it and made of it, on standard error, since
//! standard output is the program's.

use super::args::Args;
use super::drain::Drain;
use super::error::Error;
use super::naming::{Done, NoNames, is_told_to_end, patiently};
use super::output::Destination;
use super::packing::pack;
use super::signals::Signals;
use crate::kept::Begun;
use crate::output::unfinished;
use crate::profile::Profile;
use crate::symbolize::Places;
use crate::visible::{Shown, say};
use crate::{export, output, summary};
use engine::wire::offer::CPU_EVENT;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Of programs that should have unwound themselves.
pub const NOT_LOADED: &str = "nothing was recorded: no program loaded the preload library (statically linked and setuid programs \
     cannot, and one that fails to start does not)";

/// How long a summary may take for which no names are stored.
const FOR_SUMMARY: Duration = Duration::from_secs(30);

/// A recording that is done.
#[derive(Debug)]
pub struct Recorded {
    destination: Destination,
    /// Bytes written.
    length: u64,
    /// Program runs in it.
    runs: u64,
    /// What there is to say if nothing was recorded.
    empty: &'static str,
    /// Files that were not believed, in sentences.
    refused: Vec<String>,
    /// How long names may take; nothing if none are wanted.
    patience: Option<Duration>,
    /// The recording is to stay as it was written.
    plain: bool,
    /// Whether the whole summary is wanted.
    verbose: bool,
    /// Why it broke off, if it did.
    result: io::Result<()>,
}

impl Recorded {
    /// What a drain has written, of a recording at the rate given; `empty` is said if that is
    /// nothing.
    #[must_use]
    pub fn new(
        destination: Destination,
        drain: &mut Drain,
        args: &Args,
        empty: &'static str,
        result: io::Result<()>,
    ) -> Self {
        Self {
            destination,
            length: drain.writer().length(),
            runs: drain.runs(),
            empty,
            refused: drain.refusals().sentences(),
            patience: Some(args.names).filter(|time| !time.is_zero()),
            plain: args.plain,
            verbose: args.verbose,
            result,
        }
    }

    /// Says what was recorded and where it is; makes of it what was asked for. `signals` that would
    /// end rsunwind end its work on that and on names.
    ///
    /// # Errors
    /// [`Error::Recording`] if it broke off, [`Error::Export`]. `status` is the program's, for the
    /// exit status then.
    pub fn publish(self, quiet: bool, status: u8, signals: &Signals) -> Result<(), Error> {
        let Self {
            destination,
            length,
            runs,
            empty,
            refused,
            patience,
            plain,
            verbose,
            result,
        } = self;
        for line in refused {
            say(format_args!("{line}"));
        }
        if runs == 0 {
            say(format_args!("{empty}"));
        }
        let quiet = quiet || runs == 0;
        let (path, published) = match destination {
            Destination::Export {
                recording,
                path,
                format,
            } => {
                let written = write(recording.path(), &path, format, signals);
                let published = exported(written, recording, &path, (quiet, verbose), status);
                (path, published)
            }
            // It cannot be read again.
            Destination::Stream(path) => (path, Ok(())),
            Destination::Recording {
                recording,
                path,
                real,
                keep_older,
            } => {
                let mut told = false;
                let mut go_on = || {
                    told |= is_told_to_end(signals);
                    !told
                };
                let recording = match plain || result.is_err() {
                    true => recording,
                    false => pack(recording, &real, &mut go_on),
                };
                // Under its name there may soon be another.
                let done = Done::at(recording.path(), &path);
                let named = recording.take_name(&real, keep_older);
                let named = named.map_err(|source| Error::Name {
                    source,
                    path: path.clone(),
                    kept: recording.path().to_owned(),
                    status,
                });
                if result.is_ok() && named.is_ok() {
                    let profile = match told {
                        true => {
                            complain(&path, &NoNames::Stopped);
                            None
                        }
                        false => name(&path, done, patience, signals, quiet),
                    };
                    if !quiet {
                        summarise(&path, Some(&path), profile.as_ref(), verbose);
                    }
                }
                (path, named)
            }
        };
        result
            .map_err(|source| Error::Recording {
                path,
                source,
                length,
                status,
            })
            .and(published)
    }
}

/// Stores names in the recording of that name, if they are wanted, and gives what is in it, if that
/// is to be shown.
fn name(
    path: &Path,
    done: io::Result<Done>,
    wanted: Option<Duration>,
    signals: &Signals,
    quiet: bool,
) -> Option<Profile> {
    let done = done.map_err(|error| NoNames::Failed(error.to_string()));
    let named = match wanted {
        Some(limit) => done.and_then(|done| done.append(limit, signals)),
        None if quiet => return None,
        None => return done.and_then(|done| done.read(FOR_SUMMARY, signals)).ok(),
    };
    named.inspect_err(|why| complain(path, why)).ok()
}

fn complain(path: &Path, why: &NoNames) {
    say(format_args!(
        "{}: names of functions are not stored in it: {why}; they are looked up when it is read, in the programs that are here then",
        path.shown()
    ));
}

fn open(recording: &Path) -> Result<Profile, crate::recording::OpenError> {
    Profile::open(&[recording], &Places::default())
}

fn exported(
    written: Result<Written, export::Error>,
    mut recording: Begun,
    path: &Path,
    (quiet, verbose): (bool, bool),
    status: u8,
) -> Result<(), Error> {
    match written {
        Ok((mut profile, left_out)) if !quiet => {
            if !left_out.is_empty() {
                say(format_args!(
                    "{} holds {} only: for {} record to a .rsu file, and rsunwind export --event each of them",
                    path.shown(),
                    profile.subject(),
                    left_out.join(", ")
                ));
            }
            profile.show(CPU_EVENT);
            summarise(path, None, Some(&profile), verbose);
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(source) => {
            // The samples must not be lost with the file.
            recording.stays();
            let kept = recording.path().to_owned();
            Err(Error::Export {
                source,
                kept,
                status,
            })
        }
    }
}

/// A profile that was written, and the names of events that are not in the file.
type Written = (Profile, Vec<String>);

/// Writes the profile of a recording. A signal that would end rsunwind ends that.
fn write(
    recording: &Path,
    path: &Path,
    format: Option<String>,
    signals: &Signals,
) -> Result<Written, export::Error> {
    let (from, to) = (recording.to_owned(), path.to_owned());
    let work = move || {
        let mut profile = open(&from).map_err(|error| export::Error::Read(error.into()))?;
        let chosen = output::choose(format.as_deref(), &to)?;
        let left_out = export::show_usual(&mut profile, chosen);
        export::write(&profile, &to, format.as_deref())?;
        Ok((profile, left_out))
    };
    let written = patiently(Duration::MAX, signals, move || Ok(work()));
    written.unwrap_or_else(|why| {
        drop(unfinished::remove());
        let path = path.to_owned();
        let why = match why {
            NoNames::Failed(why) => why,
            NoNames::Stopped | NoNames::TooLong(_) => "a signal came first".to_owned(),
        };
        Err(export::Error::Stopped { path, why })
    })
}

/// Says how it went: in three lines, or in full.
fn summarise(path: &Path, recording: Option<&Path>, profile: Option<&Profile>, verbose: bool) {
    let size = path.metadata().map_or(0, |file| file.len()).div_ceil(1000);
    let begin = format!("{}: {size} KB", path.shown());
    let recording = recording.map(|path| path.shown().to_string());
    match profile {
        Some(profile) if !verbose => summary::print_brief(profile, &begin, recording.as_deref()),
        profile => {
            let shows = recording.map(|path| format!("; rsunwind report {path} shows it"));
            say(format_args!("{begin}{}", shows.unwrap_or_default()));
            profile.iter().copied().for_each(summary::print);
        }
    }
}
