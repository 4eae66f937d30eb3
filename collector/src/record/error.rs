//! Why a recording could not be made. Each sentence names the thing and the remedy; each has an
//! exit status of its own kind.

use crate::cpu_rings::Refusal;
use crate::export;
use crate::inside;
use crate::target;
use crate::visible::Shown;
use nix::errno::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why `rsunwind record` failed. Once the program runs nothing but the loss of its profile is an
/// error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No command on the command line.
    #[error("no program to record: rsunwind record [OPTIONS] -- COMMAND [ARGUMENTS]")]
    NoCommand,
    /// `--pid`: no such process, or none that may be looked at.
    #[error("{0}")]
    Target(#[from] target::Error),
    /// `--pid` with something that a process that runs already cannot have.
    #[error("{0}")]
    NotForRunning(&'static str),
    /// `--pid`: perf events were refused.
    #[error("{targets} cannot be recorded: {refusal}")]
    Attach {
        /// Who was to be recorded.
        targets: String,
        /// Why not.
        refusal: Refusal,
    },
    /// `--how inside`.
    #[error(
        "{target} cannot be recorded from inside: {refusal}; without --how inside it is recorded by copies of its stacks"
    )]
    Inside {
        /// Who was to be recorded.
        target: String,
        /// Why not.
        refusal: inside::Refusal,
    },
    /// `-e`.
    #[error("{0}")]
    Event(String),
    /// In no directory of `PATH`, or no such file.
    #[error("{name}: command not found{hint}")]
    NotFound {
        /// As typed.
        name: String,
        /// What else may be wrong.
        hint: String,
    },
    /// There, but it cannot be run.
    #[error("{}: cannot be run: {why}", path.shown())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The reason, with the remedy.
        why: String,
    },
    /// The kernel refused to make a process.
    #[error("{what}: {source}{}", launch_remedy(source))]
    Launch {
        /// What was attempted.
        what: &'static str,
        /// errno.
        source: io::Error,
    },
    /// The output cannot be written: found before the program is started.
    #[error("{}: cannot be written: {source}; name another file with -o FILE (the program was not started)", path.shown())]
    Output {
        /// The file.
        path: PathBuf,
        /// errno.
        source: io::Error,
    },
    /// `--format` or the extension.
    #[error("{0}")]
    Format(String),
    /// No directory can hold the session's shared memory.
    #[error(
        "no place for the session's shared memory: {tried}; make one of them writable, or set TMPDIR to a directory that is"
    )]
    Session {
        /// Each directory and its errno.
        tried: String,
    },
    /// The preload library cannot be put where programs can load it.
    #[error(
        "no place for the preload library: {tried}; set XDG_CACHE_HOME to a directory that is writable, not mounted noexec, and whose path has no spaces, colons, commas or dollars"
    )]
    Library {
        /// Each directory and what is wrong with it.
        tried: String,
    },
    /// The recording broke off; what was written before is intact.
    #[error("{}: the recording is cut short after {length} bytes: {source}; what was written until then can be read; free some space, or name another place with -o FILE", path.shown())]
    Recording {
        /// The file.
        path: PathBuf,
        /// errno.
        source: io::Error,
        /// Bytes that were written.
        length: u64,
        /// The exit status of the program.
        status: u8,
    },
    /// The recording is done, and cannot get its name.
    #[error("{}: cannot be written: {source}; the recording is in {}", path.shown(), kept.shown())]
    Name {
        /// errno.
        source: io::Error,
        /// The name.
        path: PathBuf,
        /// Where it is.
        kept: PathBuf,
        /// The exit status of the program.
        status: u8,
    },
    /// The profile could not be made of the recording, which is kept.
    #[error("{source}; the recording is kept: rsunwind export {} -o FILE", kept.shown())]
    Export {
        /// Why.
        source: export::Error,
        /// The recording.
        kept: PathBuf,
        /// The exit status of the program.
        status: u8,
    },
}

/// What helps where no process can be made.
fn launch_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => "; raise the limit with ulimit -n (the program was not started)",
        Some(Errno::EAGAIN) => "; raise the limit with ulimit -u (the program was not started)",
        _ => "",
    }
}

impl Error {
    /// 127 and 126 as the shell has them, 2 for what the user typed, 1 for the rest.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::NoCommand | Self::NotForRunning(_) | Self::Event(_) | Self::Format(_) => 2,
            Self::Recording {
                status: status @ 1..,
                ..
            }
            | Self::Name {
                status: status @ 1..,
                ..
            }
            | Self::Export {
                status: status @ 1..,
                ..
            } => *status,
            _ => 1,
        }
    }

    pub(super) fn launch(what: &'static str, errno: Errno) -> Self {
        Self::Launch {
            what,
            source: errno.into(),
        }
    }

    pub(super) fn output(path: &Path, source: io::Error) -> Self {
        Self::Output {
            path: path.to_owned(),
            source,
        }
    }
}
