//! What live tests share: the preload library built once, victims compiled once, programs run with
//! and without profiling, and the recordings that they leave, read back through the wire contract
//! alone.
//!
//! Not here: any assertion about a profile, but how near two times must be ([`account`]). Tests
//! state those.

pub mod account;
pub mod agent;
pub mod at_once;
pub mod attach;
pub mod beside;
pub mod command;
pub mod far_headers;
pub mod imports;
pub mod interpreted;
pub mod language;
pub mod library;
pub mod lock;
pub mod native;
pub mod nodes;
pub mod paranoid;
pub mod profiles;
pub mod pythons;
pub mod receiver;
pub mod recording;
pub mod run;
pub mod statistics;
pub mod suite;
pub mod symbols;
pub mod tables;
pub mod terminal;
pub mod traced;
pub mod truth;
pub mod victim;
pub mod waits;

use std::path::PathBuf;

/// The directory that cargo builds into.
#[must_use]
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => repository().join("target"),
    }
}

/// The top of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}
