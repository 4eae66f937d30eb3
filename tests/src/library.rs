//! The preload library, built as docs/usage.md says, in a target directory of its own (a shared one
//! would wait for the cargo that runs the tests).

use crate::command::cargo;
use crate::{lock, repository, target_directory};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The library's path. The first caller of a test run builds it; cargo finds out fast when there is
/// nothing to do.
///
/// # Panics
/// If it does not build.
#[must_use]
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(build)
}

fn build() -> PathBuf {
    let target = target_directory().join("preload");
    lock::once_a_run("preload", || {
        let status = cargo()
            .args(["build", "--release", "--quiet"])
            .current_dir(repository().join("preload"))
            .env("CARGO_TARGET_DIR", &target)
            .env_remove("RUSTFLAGS")
            .status()
            .unwrap_or_else(|error| panic!("cargo: {error}"));
        assert!(
            status.success(),
            "the preload library does not build: {status}"
        );
    });
    target.join("release/librsunwind_preload.so")
}
