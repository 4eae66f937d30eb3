//! What stands above a table: of which command, and how much of what is shown.

use super::look::{Look, width_of, without_end};
use crate::intern::HashSet;
use crate::numbers::{plural, share};
use crate::profile::{Names, Profile};
use std::fmt::Write as _;

/// The command line, and sums of what is shown.
pub(super) fn text(profile: &Profile, look: Look) -> String {
    let mut out = String::new();
    let recording = &profile.recording;
    let command = recording.session.as_ref().map(|session| &session.command);
    let first = || recording.processes.first().map(|process| &process.command);
    if let Some(command) = command.or_else(first).filter(|command| !command.is_empty()) {
        let command = command.join(" ");
        let fitted = look.width.map(|width| without_end(&command, width));
        let _ = writeln!(out, "{}", fitted.as_deref().unwrap_or(&command));
    }
    let (mut processes, mut threads) = (recording.processes.len(), recording.threads.len());
    if profile.unfiltered.is_some() {
        let seen: HashSet<_> = profile.weighed().map(|sample| sample.thread).collect();
        let owners: HashSet<_> = seen.iter().map(|id| profile.process_of(*id)).collect();
        (processes, threads) = (owners.len(), seen.len());
    }
    let whole = profile.whole();
    let processes = plural(processes as u64, "process", "processes");
    let threads = plural(threads as u64, "thread", "threads");
    let mut sums = format!(
        "{} of {} in {}",
        profile.amount(whole),
        profile.subject(),
        plural(profile.number(), "sample", "samples"),
    );
    let mut all = recording.threads.iter();
    // Else nobody has asked which there were (`Selection::open`).
    let are_told = all.any(|thread| !thread.name.is_empty() || thread.tid > 0);
    let _ = match are_told || recording.threads.is_empty() {
        true => write!(sums, ", {processes} and {threads}"),
        false => write!(sums, " of {processes}"),
    };
    out.push_str(&sums);
    if let Some(unfiltered) = profile.unfiltered {
        let (part, all) = (share(whole, unfiltered), profile.amount(unfiltered));
        let part = format!(": {part} of the {all} recorded");
        match look.width {
            Some(width) if width_of(&sums) + width_of(&part) > width => {
                let _ = write!(out, "\n{}", part.trim_start_matches(": "));
            }
            _ => out.push_str(&part),
        }
    }
    out.push('\n');
    out
}

/// Own functions that are named.
const NAMED: usize = 3;

/// For which of the program's own functions most of it was spent; nothing if there is none.
pub(super) fn own(profile: &Profile, names: Names) -> Option<String> {
    let whole = profile.whole();
    let own = profile.own_functions(names).into_iter().take(NAMED);
    let named = own.map(|(id, amount)| {
        let name = profile.functions[id.index()].called(names);
        format!("{} {name}", share(amount, whole))
    });
    let named: Vec<_> = named.collect();
    let named = Some(named).filter(|named| !named.is_empty())?;
    Some(format!(
        "for the program's own functions (--by own): {}",
        named.join(", ")
    ))
}
