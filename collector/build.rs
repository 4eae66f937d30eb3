//! Builds the preload library, and the one that is brought into processes that run, and hands them
//! to the collector to embed (`preload_library.rs` and `inside/image.rs` include them).
//!
//! Each is a workspace of its own (no std, panic=abort, fat LTO), so cargo is run for it, in
//! a target directory of its own: the one of this build is locked while build scripts run. Nothing
//! that this build was asked for (flags, wrappers such as clippy's) applies to it, except the
//! architecture.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings of the outer build that must not reach the inner one.
const OUTER: [&str; 10] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CLIPPY_ARGS",
];

/// What the libraries are made of, from the root of the repository.
const SOURCES: [&str; 23] = [
    "Cargo.toml",
    "inside/Cargo.toml",
    "inside/Cargo.lock",
    "inside/build.rs",
    "inside/src",
    "preload/Cargo.toml",
    "preload/Cargo.lock",
    "preload/.cargo",
    "preload/build.rs",
    "preload/src",
    "librsunwind/Cargo.toml",
    "librsunwind/build.rs",
    "librsunwind/src",
    "librsunwind/include",
    "librsunwind/wire/Cargo.toml",
    "librsunwind/wire/build.rs",
    "librsunwind/wire/src",
    "librsunwind/engine/Cargo.toml",
    "librsunwind/engine/build.rs",
    "librsunwind/engine/src",
    "sframe/Cargo.toml",
    "sframe/build.rs",
    "sframe/src",
];

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let root = manifest
        .parent()
        .ok_or("the collector lies at the top of the file system")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // A path that is missing would make cargo run this script every time.
    for source in SOURCES.map(|source| root.join(source)) {
        if source.exists() {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");

    let target = target_directory(&out)?;
    for (name, variable) in [
        ("preload", "RSUNWIND_PRELOAD"),
        ("inside", "RSUNWIND_INSIDE"),
    ] {
        let built = build(&root.join(name), name, &target)?;
        let library = fs::read(&built).map_err(|error| format!("{}: {error}", built.display()))?;
        let embedded = out.join(format!("librsunwind_{name}.so"));
        fs::write(&embedded, &library)?;
        println!("cargo::rustc-env={variable}_SO={}", embedded.display());
        println!(
            "cargo::rustc-env={variable}_ID={:016x}",
            content_id(&library)
        );
    }
    Ok(())
}

/// `preload` beside the directory of the profile (`target/debug` and `target/release` share one),
/// so that it survives rebuilds of this crate.
fn target_directory(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let profile = out
        .ancestors()
        .find(|path| path.ends_with("build"))
        .and_then(Path::parent);
    let target = profile
        .and_then(Path::parent)
        .ok_or("OUT_DIR is not inside a target directory")?;
    Ok(target.join("preload"))
}

/// Runs cargo and gives the path of the library.
fn build(workspace: &Path, name: &str, target: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    // From its own directory, so that its own .cargo/config.toml is found.
    cargo
        .current_dir(workspace)
        .args(["build", "--release", "--quiet", "--lib", "--target-dir"])
        .arg(target);
    for setting in OUTER {
        cargo.env_remove(setting);
    }
    let mut output = target.to_path_buf();
    // One library serves programs of every libc, and a cdylib for musl cannot be had by default.
    let machine = env::var("TARGET")?.replace("-musl", "-gnu");
    if machine != env::var("HOST")? {
        cargo.args(["--target", &machine]);
        output.push(&machine);
    }
    let status = cargo
        .status()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    if !status.success() {
        return Err(format!(
            "the library in {} could not be built ({status})",
            workspace.display()
        )
        .into());
    }
    Ok(output
        .join("release")
        .join(format!("librsunwind_{name}.so")))
}

/// FNV-1a: tells builds apart. Whoever uses a file of that name compares its content.
fn content_id(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
