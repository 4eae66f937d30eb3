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
use std::io;
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

/// What the libraries are made of, from the root of the repository. `libraries` has links to all of
/// it, which cargo follows when it makes a package. There manifests have the name [`MANIFEST`]:
/// directories with manifests of their own are left out of packages.
const SOURCES: [&str; 20] = [
    "Cargo.toml",
    "inside/Cargo.toml",
    "inside/Cargo.lock",
    "inside/build.rs",
    "inside/src",
    "preload/Cargo.toml",
    "preload/Cargo.lock",
    "preload/build.rs",
    "preload/src",
    "librsunwind/Cargo.toml",
    "librsunwind/src",
    "librsunwind/wire/Cargo.toml",
    "librsunwind/wire/README.md",
    "librsunwind/wire/src",
    "librsunwind/engine/Cargo.toml",
    "librsunwind/engine/README.md",
    "librsunwind/engine/src",
    "sframe/Cargo.toml",
    "sframe/README.md",
    "sframe/src",
];

/// What a `Cargo.toml` is called in `libraries`.
const MANIFEST: &str = "manifest";

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let root = sources(&manifest, &out)?;
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

/// Where [`SOURCES`] are: the repository, or what is unpacked here from the package of this crate.
fn sources(manifest: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let packed = manifest.join("libraries");
    if packed.join(MANIFEST).is_symlink() {
        let root = manifest.parent().ok_or("links that lead nowhere")?;
        for source in SOURCES {
            let link = packed.join(source.replace("Cargo.toml", MANIFEST));
            // A path that is missing would make cargo run this script every time, too.
            if !link.exists() {
                return Err(format!("no link to {source}: {}", link.display()).into());
            }
            // Relative: absolute paths would still lead to where a repository was that has been
            // moved with its target directory.
            println!("cargo::rerun-if-changed=../{source}");
        }
        return Ok(root.to_owned());
    }
    println!("cargo::rerun-if-changed={}", packed.display());
    let root = out.join("libraries");
    unpack(&packed, &root).map_err(|error| format!("{}: {error}", packed.display()))?;
    Ok(root)
}

/// Copies a directory, with manifests under their own name.
fn unpack(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if entry.is_dir() {
            unpack(&entry, &to.join(name))?;
        } else if name == MANIFEST {
            fs::copy(&entry, to.join("Cargo.toml"))?;
        } else {
            fs::copy(&entry, to.join(name))?;
        }
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
