//! When a recording is done: what is said about it and made of it, on standard error, since
//! standard output is the program's.

use super::drain::Drain;
use super::error::Error;
use super::output::Destination;
use super::units::Rate;
use crate::kept::Begun;
use crate::profile::Profile;
use crate::symbolize::Places;
use crate::visible::{Shown, say};
use crate::{export, output, summary};
use engine::wire::offer::CPU_EVENT;
use std::io;
use std::path::Path;

/// Of programs that should have unwound themselves.
pub const NOT_LOADED: &str = "nothing was recorded: no program loaded the preload library (statically linked and setuid programs \
     cannot, and one that fails to start does not)";

/// A recording that is done.
#[derive(Debug)]
pub struct Recorded {
    destination: Destination,
    /// Bytes written.
    length: u64,
    /// Program runs in it.
    runs: u64,
    /// The longest sampling period in force, ns, where it is longer than asked.
    lowered_to_ns: Option<u64>,
    /// What there is to say if nothing was recorded.
    empty: &'static str,
    /// Files that were not believed, in sentences.
    refused: Vec<String>,
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
        asked: Rate,
        empty: &'static str,
        result: io::Result<()>,
    ) -> Self {
        Self {
            destination,
            length: drain.writer().length(),
            runs: drain.runs(),
            lowered_to_ns: drain
                .period_ns()
                .filter(|period| *period > asked.period_ns()),
            empty,
            refused: drain.refusals().sentences(),
            result,
        }
    }

    /// Says what was recorded and where it is; makes of it what was asked for.
    ///
    /// # Errors
    /// [`Error::Recording`] if it broke off, [`Error::Export`]. `status` is the program's, for the
    /// exit status then.
    pub fn publish(self, quiet: bool, status: u8) -> Result<(), Error> {
        let Self {
            destination,
            length,
            runs,
            lowered_to_ns,
            empty,
            refused,
            result,
        } = self;
        for line in refused {
            say(format_args!("{line}"));
        }
        if runs == 0 {
            say(format_args!("{empty}"));
        }
        let quiet = quiet || runs == 0;
        if let Some(period_ns) = lowered_to_ns.filter(|_| !quiet) {
            let hertz = 1_000_000_000 / period_ns.max(1);
            say(format_args!(
                "the rate was lowered to {hertz} Hz: a sample may not cost more than a quarter of its period here; a lower -F avoids this"
            ));
        }
        let (path, published) = match destination {
            Destination::Export {
                recording,
                path,
                format,
            } => {
                let published = export(recording, &path, format.as_deref(), quiet, status);
                (path, published)
            }
            // It cannot be read again.
            Destination::Stream(path) => (path, Ok(())),
            Destination::Recording {
                recording,
                path,
                keep_older,
            } => {
                let named = recording.take_name(&path, keep_older);
                let named = named.map_err(|source| Error::Name {
                    source,
                    path: path.clone(),
                    kept: recording.path().to_owned(),
                    status,
                });
                if !quiet && result.is_ok() && named.is_ok() {
                    tell(&path, Some(&path));
                    open(&path).iter().for_each(summary::print);
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

fn open(recording: &Path) -> Result<Profile, crate::recording::OpenError> {
    Profile::open(&[recording], &Places::default())
}

fn export(
    mut recording: Begun,
    path: &Path,
    format: Option<&str>,
    quiet: bool,
    status: u8,
) -> Result<(), Error> {
    let exported = write(recording.path(), path, format);
    match exported {
        Ok((mut profile, left_out)) if !quiet => {
            tell(path, None);
            if !left_out.is_empty() {
                say(format_args!(
                    "{} holds {} only: for {} record to a .rsu file, and rsunwind export --event each of them",
                    path.shown(),
                    profile.subject(),
                    left_out.join(", ")
                ));
            }
            profile.show(CPU_EVENT);
            summary::print(&profile);
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

/// Writes the profile of a recording; gives it, and the names of events that are not in the file.
fn write(
    recording: &Path,
    path: &Path,
    format: Option<&str>,
) -> Result<(Profile, Vec<String>), export::Error> {
    let mut profile = open(recording).map_err(|error| export::Error::Read(error.into()))?;
    let left_out = export::show_usual(&mut profile, output::choose(format, path)?);
    export::write(&profile, path, format)?;
    Ok((profile, left_out))
}

fn tell(path: &Path, recording: Option<&Path>) {
    let size = path.metadata().map_or(0, |file| file.len()).div_ceil(1000);
    let path = path.shown();
    match recording {
        Some(recording) => say(format_args!(
            "{path}: {size} KB; rsunwind report {} shows it",
            recording.shown()
        )),
        None => say(format_args!("{path}: {size} KB")),
    }
}
