//! Shows text on a terminal page by page, as git does: through `$PAGER`, or `less` with `LESS=FRX`
//! unless the user has set his own. Anywhere else it is just written.

use crate::interrupt::leave_to_pager;
use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

/// Shows `text`. A reader that goes away before the end is no error.
pub(crate) fn show(text: &str, plain: bool) -> io::Result<()> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    let paged = !plain && io::stdout().is_terminal() && !pager.is_empty() && pager != "cat";
    if paged && through(&pager, text)? {
        return Ok(());
    }
    let written = io::stdout().lock().write_all(text.as_bytes());
    quiet(written.and_then(|()| io::stdout().flush()))
}

/// Gives `false` if there is no such pager.
fn through(pager: &str, text: &str) -> io::Result<bool> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else {
        return Ok(false);
    };
    let status = leave_to_pager(|| {
        if let Some(mut input) = child.stdin.take() {
            quiet(input.write_all(text.as_bytes()))?;
        }
        child.wait()
    })?;
    Ok(status.code() != Some(127))
}

fn quiet(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
