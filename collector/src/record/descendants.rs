//! Descendants of the command that outlive it: who they are. Nobody is made their parent for this,
//! which they could see; they are known by the session that stands in their environment, and by
//! segments of theirs.
//!
//! Not here: those that have taken the session out of their environment before they ever had a
//! segment.

use super::drain::Drain;
use crate::processes::{Stat, environment_after_exec};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// So many are named.
const NAMED: usize = 5;

/// The pids of those that run.
pub fn running(session: &Path, drain: &Drain) -> BTreeSet<u32> {
    let setting = [b"session=", session.as_os_str().as_bytes()].concat();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = pids.filter(|pid| {
        environment_after_exec(*pid)
            .windows(setting.len())
            .any(|window| window == setting)
    });
    let mut found: BTreeSet<u32> = named.collect();
    found.extend(drain.living().filter(|pid| runs(*pid)));
    found.remove(&std::process::id());
    found
}

/// Whether a process has not ended.
fn runs(pid: u32) -> bool {
    Stat::read(pid).is_some_and(|stat| !stat.has_ended())
}

/// What is said of them.
pub fn run_on(pids: &BTreeSet<u32>) -> String {
    let name = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let printable = name.trim_end().chars().filter(|c| !c.is_control());
        format!("{} ({pid})", printable.collect::<String>())
    };
    let names: Vec<String> = pids.iter().take(NAMED).map(name).collect();
    let others = match pids.len() > NAMED {
        true => ", …",
        false => "",
    };
    let (what, they) = match pids.len() {
        1 => ("a descendant runs on", "it"),
        _ => ("descendants run on", "them"),
    };
    format!(
        "{what}, from here on unprofiled: {}{others}; record --wait waits for {they}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_run_on_are_named() {
        let own = std::process::id();
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        let said = run_on(&BTreeSet::from([own]));
        assert_eq!(
            said,
            format!(
                "a descendant runs on, from here on unprofiled: {} ({own}); record --wait waits for it",
                name.trim_end()
            )
        );
        let many = BTreeSet::from_iter(4_000_000_000..4_000_000_009);
        assert!(run_on(&many).contains("descendants run on"));
        assert!(run_on(&many).ends_with(" (4000000004), …; record --wait waits for them"));
    }
}
