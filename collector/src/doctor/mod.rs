//! `rsunwind doctor`: what can be recorded here, and what would make it more.
//!
//! Start at [`run`]. It asks the kernel rather than its settings where it can: an event that opens
//! is permitted, whatever a level says.

mod finding;
mod machine;
mod process;

use crate::target;
use clap::Args as ClapArgs;
use finding::{State, section};
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Arguments of `rsunwind doctor`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Each line says whether something works (ok), works in part (less) or does not (no), and below it what would change that.
The exit status is 0 if nothing is missing altogether, 1 otherwise.

Examples:
  rsunwind doctor            this machine, for this user
  rsunwind doctor $$         and one process: what a recording of its program would have
  rsunwind doctor nginx      and all processes of that name
  sudo rsunwind doctor       what root may, beside what you may")]
pub struct Args {
    /// Look at this process, or those of this name, too: what a recording would have
    #[arg(value_name = "PID|NAME")]
    pub process: Option<String>,
}

/// Why `rsunwind doctor` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such process.
    #[error(transparent)]
    Target(#[from] target::Error),
    /// What was found could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Target(_) => 2,
            Self::Output(_) => 1,
        }
    }
}

/// Looks, and prints what it found.
///
/// # Errors
/// Any [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let mut sections = vec![(
        "this machine, for this user".to_owned(),
        machine::findings(),
    )];
    let pids = args.process.as_deref().map(target::find_any).transpose()?;
    for pid in pids.unwrap_or_default() {
        sections.push((format!("process {pid}"), process::findings(pid)));
    }
    let text: String = sections
        .iter()
        .map(|(heading, findings)| section(heading, findings))
        .collect();
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough: `rsunwind doctor | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    let mut findings = sections.iter().flat_map(|(_, findings)| findings);
    let is_missing = findings.any(|finding| finding.state == State::No);
    Ok(ExitCode::from(u8::from(is_missing)))
}
