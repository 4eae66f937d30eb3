//! Shows text on a terminal page by page, as git does: through `$PAGER`, or `less` with `LESS=FRX`
//! unless the user has set his own. Anywhere else it is just written.

use crate::interrupt::keys_are_for_pager;
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
    keys_are_for_pager(true);
    if let Some(mut input) = child.stdin.take() {
        quiet(input.write_all(text.as_bytes()))?;
    }
    // Also when it has ended: a key of before may still be on its way.
    let has_shown = child.wait()?.code() != Some(127);
    keys_are_for_pager(has_shown);
    Ok(has_shown)
}

fn quiet(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
