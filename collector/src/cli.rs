//! The command line: which subcommands there are. What a subcommand takes is beside what it does
//! ([`crate::record::Args`], …).

pub mod elsewhere;

#[cfg(feature = "agent")]
use crate::agent;
use crate::allocator;
use crate::cut_short;
use crate::{diff, doctor, dump, export, interrupt, merge, record, report, sframe_cmd, top, view};
use clap::{Parser, Subcommand};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// A profiler that lets programs unwind themselves.
#[derive(Debug, Parser)]
#[command(name = "rsunwind", version, propagate_version = true)]
#[command(after_help = "\
Examples:
  rsunwind record -- ./program arguments    then rsunwind report
  rsunwind record -p nginx -d 10s           a running process
  rsunwind view                             look around in the newest recording
  rsunwind diff                             what has changed since the one before it
  rsunwind dump 1234                        where a process hangs")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program and profile it and its children
    Record(record::Args),
    /// Show who used the CPU in a recording
    Report(report::Args),
    /// Compare two recordings: what has grown, what has shrunk
    Diff(diff::Args),
    /// Write a recording in another format: flame graph, pprof, Firefox Profiler, text
    Export(export::Args),
    /// Look around in a recording with a browser
    View(view::Args),
    /// Join a system-wide `perf record` with the stacks that profiled programs recorded themselves
    Merge(merge::Args),
    /// Show the stacks of all threads of a process, now, and what each waits for
    Dump(dump::Args),
    /// Show live who uses the CPU in a program or in running processes
    Top(top::Args),
    /// Record for as long as a program runs, and send a profile every 15 s to where they are kept
    #[cfg(feature = "agent")]
    Agent(agent::Args),
    /// For the agent alone
    #[cfg(feature = "agent")]
    #[command(hide = true)]
    AgentWindow,
    /// Say what can be recorded here, and what would allow more
    Doctor(doctor::Args),
    /// Print the path of the preload library, for LD_PRELOAD without `record`
    Library,
    Sframe(sframe_cmd::Arguments),
}

impl Command {
    /// Whether it makes something of recordings, and of nothing that runs.
    const fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Report(_) | Self::Diff(_) | Self::Export(_) | Self::View(_) | Self::Merge(_)
        )
    }
}

/// Why a subcommand failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `rsunwind record`.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// `rsunwind report`.
    #[error(transparent)]
    Report(#[from] report::Error),
    /// `rsunwind diff`.
    #[error(transparent)]
    Diff(#[from] diff::Error),
    /// `rsunwind export`.
    #[error(transparent)]
    Export(#[from] export::Error),
    /// `rsunwind view`.
    #[error(transparent)]
    View(#[from] view::Error),
    /// `rsunwind merge`.
    #[error(transparent)]
    Merge(#[from] merge::Error),
    /// `rsunwind dump`.
    #[error(transparent)]
    Dump(#[from] dump::Error),
    /// `rsunwind top`.
    #[error(transparent)]
    Top(#[from] top::Error),
    /// `rsunwind agent`.
    #[cfg(feature = "agent")]
    #[error(transparent)]
    Agent(#[from] agent::Error),
    /// `rsunwind doctor`.
    #[error(transparent)]
    Doctor(#[from] doctor::Error),
    /// `rsunwind library`, whose answer nobody takes.
    #[error("standard output cannot be written to: {0}")]
    Print(io::Error),
    /// `rsunwind sframe`.
    #[error(transparent)]
    Sframe(#[from] sframe_cmd::Error),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Record(error) => error.exit_status(),
            Self::Report(error) => error.exit_status(),
            Self::Diff(error) => error.exit_status(),
            Self::Export(error) => error.exit_status(),
            Self::View(error) => error.exit_status(),
            Self::Merge(error) => error.exit_status(),
            Self::Dump(error) => error.exit_status(),
            Self::Top(error) => error.exit_status(),
            #[cfg(feature = "agent")]
            Self::Agent(error) => error.exit_status(),
            Self::Doctor(error) => error.exit_status(),
            Self::Print(_) => 1,
            Self::Sframe(_) => 2,
        }
    }
}

impl Cli {
    /// Does what was asked for, and gives the status to exit with.
    ///
    /// # Errors
    /// Any [`Error`]; nothing has been said about it yet.
    pub fn run(self) -> Result<ExitCode, Error> {
        allocator::gives_back();
        cut_short::read_as_zeros();
        if self.command.only_reads() {
            interrupt::watch();
        }
        match self.command {
            Command::Record(args) => Ok(record::run(&args)?.into()),
            Command::Report(args) => {
                report::run(&args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Diff(args) => Ok(diff::run(&args)?),
            Command::Export(args) => {
                export::run(&args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::View(args) => {
                view::run(&args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Merge(args) => {
                merge::run(&args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Dump(args) => {
                dump::run(&args)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Top(args) => {
                top::run(&args)?;
                Ok(ExitCode::SUCCESS)
            }
            #[cfg(feature = "agent")]
            Command::Agent(args) => Ok(agent::run(&args)?.into()),
            #[cfg(feature = "agent")]
            Command::AgentWindow => {
                agent::read_window()?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Doctor(args) => Ok(doctor::run(&args)?),
            Command::Library => {
                let path = record::library::installed()?;
                // Not made visible: a shell hands it on as it is.
                let line = [path.as_os_str().as_bytes(), b"\n"].concat();
                io::stdout().write_all(&line).map_err(Error::Print)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Sframe(args) => Ok(sframe_cmd::run(&args)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }
}
