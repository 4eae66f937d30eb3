//! Why a recording could not be opened, and what in it could not be read, in sentences for people.
//!
//! Not here: errors of single records ([`engine::wire::WireError`]).

use crate::visible::Shown;
use engine::wire::file;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Nothing could be read from a file. Each says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file system refused.
    #[error("cannot read {}: {error}{}", path.shown(), remedy(error))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// A device, pipe or socket.
    #[error("{} is not a regular file: a recording is read from a file or from a session directory", path.shown())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// No bytes at all.
    #[error("{} is empty: the recording was never started, or the disk was full when it was", path.shown())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Shorter than a file header, and begins like one.
    #[error("{} ends after {length} bytes, inside its file header: nothing was recorded in it", path.shown())]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
    },
    /// Something else.
    #[error("{} is not a recording of rsunwind: {guess}", path.shown())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it looks like instead, and what reads it.
        guess: &'static str,
    },
    /// A format that this program is too old for.
    #[error(
        "{} has format version {version}, and this rsunwind reads up to version {}: read it with the rsunwind that wrote it, or a later one",
        path.shown(),
        file::VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A directory without a single segment.
    #[error("{} holds no recording: a session directory has files named *.seg, a recording is a file named *.rsu", path.shown())]
    NoSegments {
        /// The directory.
        path: PathBuf,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            " (check the name; `rsunwind record -o FILE -- COMMAND` makes a recording)"
        }
        io::ErrorKind::PermissionDenied => " (read it as the user who recorded it, or as root)",
        _ => "",
    }
}

/// What the first bytes of a foreign file say it is.
pub(crate) fn guess(start: &[u8]) -> &'static str {
    match start {
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => {
            "it is a perf.data file, which `perf report` reads, and `rsunwind merge` joins with a recording"
        }
        [0x1f, 0x8b, ..] => {
            "it is compressed with gzip, as exported profiles are; reports are made from the .rsu file"
        }
        [0x7f, b'E', b'L', b'F', ..] => {
            "it is a program; `rsunwind record -o FILE.rsu -- PROGRAM` records it"
        }
        [b'{', ..] => {
            "it looks like JSON, as exported profiles are; reports are made from the .rsu file"
        }
        [b'<', ..] => "it looks like SVG or HTML; reports are made from the .rsu file",
        _ => {
            "it does not begin with RSUNWIND and has no chunk of a recording in it; give the .rsu file that `rsunwind record` wrote"
        }
    }
}

/// A part of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins, in bytes from the start of the file.
    pub offset: u64,
    /// How many bytes were passed over; 0 if none were.
    pub length: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {:#x}: {}", self.offset, self.what)?;
        if self.length > 0 {
            write!(f, " ({} bytes passed over)", self.length)?;
        }
        Ok(())
    }
}

/// The damages of one file: the first ones in full, the rest counted.
#[derive(Clone, Debug, Default)]
pub struct Damages {
    /// In order of their finding.
    pub listed: Vec<Damage>,
    /// How many more there were.
    pub unlisted: u64,
}

impl Damages {
    const MOST: usize = 200;

    pub(crate) fn add(&mut self, offset: u64, length: u64, what: impl Into<String>) {
        if self.listed.len() < Self::MOST {
            self.listed.push(Damage {
                offset,
                length,
                what: what.into(),
            });
        } else {
            self.unlisted += 1;
        }
    }

    /// Adds those that were found after these.
    pub(super) fn append(&mut self, others: Self) {
        for damage in others.listed {
            self.add(damage.offset, damage.length, damage.what);
        }
        self.unlisted += others.unlisted;
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.listed.len() as u64 + self.unlisted
    }
}
