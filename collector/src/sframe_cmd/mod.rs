//! `rsunwind sframe`: prints, checks and makes `.sframe` sections of ELF files. No part of
//! recording or reading profiles; the format itself is the crate `sframe`.

mod add_section;
mod check;
mod convert;
mod dump;
mod error;
mod program;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

pub use error::Error;
use program::Program;

/// Look at, check and make SFrame stack-trace tables
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print a program's .sframe as a table
    ///
    /// One line per row: the address at which it begins, then how to find the CFA, the frame
    /// pointer and the return address. c-8 is the word 8 bytes below the CFA, (fp+0) the word at
    /// the frame pointer, u what is unchanged. Other registers have their DWARF numbers. `[m]`
    /// marks rows that hold in every block of a linkage table, `[s]` return addresses that are
    /// signed.
    Dump {
        /// An ELF program or shared library
        file: PathBuf,
    },
    /// Compare every row of a program's .sframe with its .eh_frame
    ///
    /// Says where they disagree, and which code .sframe leaves out. The exit status is 1 if they
    /// disagree anywhere.
    Check {
        /// An ELF program or shared library
        file: PathBuf,
    },
    /// Make .sframe from a program's .eh_frame
    Convert(convert::Arguments),
}

/// Does what the command line says; prints to standard output.
///
/// # Errors
/// A file that cannot be read or written, or holds no table to work on.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = run_to(arguments, &mut out).and_then(|code| {
        out.flush().map_err(Error::Output)?;
        Ok(code)
    });
    match result {
        // Whoever read the output has read enough.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ExitCode::SUCCESS)
        }
        result => result,
    }
}

/// Like [`run`], but prints to `out`.
///
/// # Errors
/// Those of [`run`].
pub fn run_to(arguments: &Arguments, out: &mut impl Write) -> Result<ExitCode, Error> {
    match &arguments.command {
        Command::Dump { file } => {
            let program = Program::read(file)?;
            dump::dump(&program, out)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Check { file } => {
            let program = Program::read(file)?;
            let agree = check::check(&program, out)?;
            Ok(if agree {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Convert(arguments) => {
            convert::convert(arguments, out)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
