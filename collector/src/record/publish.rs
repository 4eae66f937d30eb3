//! When a recording is done: what is said about it and made of it, on standard error, since standard output is the program's.

use super::drain::Drain;
use super::error::Error;
use crate::profile::Profile;
use crate::summary;
use crate::symbolize::Places;
use std::io;
use std::path::PathBuf;

/// A recording that is done.
#[derive(Debug)]
pub struct Recorded {
    path: PathBuf,
    /// Bytes written.
    length: u64,
    /// Program runs in it.
    runs: u64,
    /// Why it broke off, if it did.
    result: io::Result<()>,
}

impl Recorded {
    /// What a drain has written to `path`.
    #[must_use]
    pub fn new(path: PathBuf, drain: &mut Drain, result: io::Result<()>) -> Self {
        Self {
            path,
            length: drain.writer().length(),
            runs: drain.runs(),
            result,
        }
    }

    /// Says what was recorded and where it is.
    pub fn publish(&self, quiet: bool) {
        if self.runs == 0 {
            eprintln!(
                "rsunwind: nothing was recorded: no program loaded the preload library (statically linked and setuid programs \
                 cannot, and one that fails to start does not)"
            );
        } else if self.result.is_ok() && !quiet {
            let path = self.path.display();
            eprintln!(
                "rsunwind: {path}: {} KB; rsunwind report {path} shows it",
                self.length.div_ceil(1000)
            );
            self.summarize();
        }
    }

    /// A recording that went into a pipe or device cannot be read again.
    fn summarize(&self) {
        if self.path.is_file()
            && let Ok(profile) = Profile::open(&[&self.path], &Places::default())
        {
            summary::print(&profile);
        }
    }

    /// The exit status: the program's, unless the recording broke off.
    ///
    /// # Errors
    /// [`Error::Recording`].
    pub fn status(self, status: u8) -> Result<u8, Error> {
        let (path, length) = (self.path, self.length);
        self.result.map_err(|source| Error::Recording {
            path,
            source,
            length,
            status,
        })?;
        Ok(status)
    }
}
