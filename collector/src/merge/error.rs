//! Why two recordings were not joined, in sentences for people.

use crate::visible::Shown;
use crate::{export, recording};
use perf_data::Malformed;
use std::io;
use std::path::PathBuf;

/// Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused.
    #[error("cannot read {}: {error}", path.shown())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// Nothing is in it.
    #[error("{} is empty: `perf record` was not ended by a signal that it knows, or the disk was full", path.shown())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is not a perf.data file, or a damaged one.
    #[error("{}: {error}", path.shown())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What, and where.
        error: Malformed,
    },
    /// A recording stands first.
    #[error("{}: it is a recording of rsunwind: give the perf.data file first, then the recordings", path.shown())]
    Order {
        /// The file.
        path: PathBuf,
    },
    /// Samples without time or thread.
    #[error("{}: its samples have no time or no thread, by which they would be joined: record with `perf record -T` (or -a, which has both)", path.shown())]
    Undated {
        /// The file.
        path: PathBuf,
    },
    /// Its times mean nothing here.
    #[error("{}: {why}", path.shown())]
    Clock {
        /// The file.
        path: PathBuf,
        /// Why, and the remedy.
        why: String,
    },
    /// Recorded elsewhere, or at another time.
    #[error("{}: {why}", path.shown())]
    Apart {
        /// The file.
        path: PathBuf,
        /// How it is known.
        why: String,
    },
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] recording::OpenError),
    /// The result cannot be written.
    #[error(transparent)]
    Export(#[from] export::Error),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Export(error) => error.exit_status(),
            _ => 1,
        }
    }
}
