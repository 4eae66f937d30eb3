//! [`Error`]: why a command could not do its work.

use crate::visible::Shown;
use std::io;
use std::path::PathBuf;

use sframe::Address;

/// Why `rsunwind sframe` could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.shown())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.shown())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    /// The file is no ELF file that can be read.
    #[error("{}: {source}", path.shown())]
    Elf {
        /// The file.
        path: PathBuf,
        /// Why.
        source: object::Error,
    },
    /// The file is of a kind the command does not work on.
    #[error("{}: {why}", path.shown())]
    Unsuitable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// The file has no such section.
    #[error("{} has no {section}", path.shown())]
    NoSection {
        /// The file.
        path: PathBuf,
        /// The section.
        section: &'static str,
    },
    /// The `.sframe` section is malformed.
    #[error("{}: .sframe at {address}: {source}", path.shown())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where the section lies.
        address: Address,
        /// What is wrong.
        source: sframe::Error,
    },
    /// The section cannot be written.
    #[error("{}: {source}", path.shown())]
    Encode {
        /// The file.
        path: PathBuf,
        /// Why.
        source: sframe::EncodeError,
    },
}
