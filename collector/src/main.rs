//! The `rsunwind` command: hands its arguments to [`rsunwind_collector::cli`] and turns what comes
//! back into an exit status. Nothing else in the program exits.

use clap::Parser;
use rsunwind_collector::cli::{Cli, elsewhere};
use rsunwind_collector::visible::say;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            let command = std::env::args_os().nth(1).unwrap_or_default();
            let here = elsewhere::hint(&error, &command.to_string_lossy());
            elsewhere::without_guesses(&mut error, here.is_some());
            // Help and the version are "errors" of status 0, and go to stdout.
            let _ = error.print();
            if let Some(here) = here {
                say(format_args!("{here}"));
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match cli.run() {
        Ok(status) => status,
        Err(error) => {
            say(format_args!("{error}"));
            ExitCode::from(error.exit_status())
        }
    }
}
