//! Where the CPU time went that the kernel charged: a row for each reason, which add up.

use super::{line, plural};
use crate::charge::{Ledger, Reason};
use crate::numbers::{duration, share};
use crate::recording::Recording;
use crate::visible::Shown;
use std::fmt::Write as _;
use std::path::Path;

/// Parts below one in this many are not shown, unless they are several sampling periods.
const SEEN: u64 = 2000;
/// So many processes are named at most.
const NAMED: usize = 5;

/// The rows of the whole recording.
pub(super) fn rows(out: &mut String, recording: &Recording, ledger: &Ledger) {
    let total = ledger.total_ns();
    if total == 0 {
        return;
    }
    let text = match ledger.is_closed {
        true => "by the kernel, until the last process ended that was waited for",
        false => "as the processes say themselves: the kernel's charge of their ends is not known",
    };
    line(out, "CPU time", &format!("{} {text}", duration(total)));
    for (reason, ns) in ledger.by_reason() {
        if ns.saturating_mul(SEEN) >= total {
            row(out, ns, total, reason.name());
        }
        if reason == Reason::NotSampled {
            strangers(out, recording, ledger, total);
            successors(out, recording, ledger, total);
        }
    }
    unwaited(out, recording, ledger);
    stolen(out, recording);
}

fn row(out: &mut String, ns: u64, total: u64, text: &str) {
    let (part, time) = (share(ns, total), duration(ns));
    line(out, "", &format!("{part:>7}  {time:>8}  {text}"));
}

/// Children that are not in the recording.
fn strangers(out: &mut String, recording: &Recording, ledger: &Ledger, total: u64) {
    let all = ledger.strangers.iter();
    let shown = all.filter(|one| is_large(one.ns, total));
    for one in shown.take(NAMED) {
        let parent = &recording.processes[one.parent.index()];
        let why = match one.refused {
            0 => "it has no samples (statically linked, of a raw clone, without libc, or where the session cannot be reached)".to_owned(),
            errno => {
                let why = std::io::Error::from_raw_os_error(errno.cast_signed());
                format!("it could not write its recording: {why}")
            }
        };
        let (pid, name) = (one.pid, parent.name());
        let text = format!("process {pid}, child of {name} ({}): {why}", parent.pid);
        line(out, "", &format!("{:>17}  {text}", duration(one.ns)));
    }
}

/// Programs that are not in the recording, of processes that are.
fn successors(out: &mut String, recording: &Recording, ledger: &Ledger, total: u64) {
    let rows = ledger.rows.iter();
    let rows = rows.filter(|row| row.reason == Reason::NotSampled && is_large(row.ns, total));
    let named = rows.filter_map(|row| {
        let process = &recording.processes[row.process?.index()];
        Some((row.ns, process, process.became()?))
    });
    for (ns, process, path) in named.take(NAMED) {
        let (name, pid, path) = (process.name(), process.pid, Path::new(path).shown());
        let text = format!(
            "process {pid}, since {name} became {path}: that program has no samples (statically linked or setuid, or the session cannot be reached)"
        );
        line(out, "", &format!("{:>17}  {text}", duration(ns)));
    }
}

/// Whether it is as much as to be named.
const fn is_large(ns: u64, total: u64) -> bool {
    ns.saturating_mul(100) >= total
}

/// Of a guest's processors. Threads cannot tell it from work; only the kernel's charge leaves it
/// out.
fn stolen(out: &mut String, recording: &Recording) {
    let Some(session) = &recording.session else {
        return;
    };
    let passed = session.end_ns.saturating_sub(session.start_ns);
    let all = passed.saturating_mul(u64::from(session.processors));
    if session.stolen_ns.saturating_mul(SEEN) < all || session.stolen_ns == 0 {
        return;
    }
    let (time, part) = (duration(session.stolen_ns), share(session.stolen_ns, all));
    let text = format!(
        "{time}, {part} of the processors' time: the hypervisor took it; samples stand for it too, \
         CPU clocks do not"
    );
    line(out, "stolen", &text);
}

/// Processes whose own account is all that is known.
fn unwaited(out: &mut String, recording: &Recording, ledger: &Ledger) {
    if ledger.unwaited.is_empty() || !ledger.is_closed {
        return;
    }
    let sum = ledger.unwaited.iter().map(|(_, ns)| ns);
    let sum = sum.fold(0u64, |sum, ns| sum.saturating_add(*ns));
    let count = plural(ledger.unwaited.len() as u64, "process", "processes");
    let mut text = format!(
        "{} of it as {count} said that nobody waited for:",
        duration(sum)
    );
    for (process, ns) in ledger.unwaited.iter().take(NAMED) {
        let process = &recording.processes[process.index()];
        let (name, pid) = (process.name(), process.pid);
        let _ = write!(text, " {name} ({pid}) {},", duration(*ns));
    }
    match ledger.unwaited.len() > NAMED {
        true => text.push_str(" …"),
        false => drop(text.pop()),
    }
    line(out, "", &text);
}
