//! Victims: small programs in `tests/victims`, each written for one hazard, compiled when their
//! source, or the way of compiling, changes.

use crate::{lock, repository, target_directory};
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a victim is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// gcc for glibc.
    C,
    /// g++ for glibc.
    Cpp,
    /// gcc for musl, which is installed as `musl-gcc`.
    MuslC,
    /// rustc, with the standard library.
    Rust,
}

impl Compiler {
    fn command(self) -> Command {
        match self {
            Self::C => with(Command::new("gcc"), &["-O2", "-g", "-pthread"]),
            Self::Cpp => with(Command::new("g++"), &["-O2", "-g", "-pthread"]),
            Self::MuslC => with(Command::new("musl-gcc"), &["-O2", "-g", "-pthread"]),
            Self::Rust => with(Command::new("rustc"), &["-O", "-g", "--edition=2024"]),
        }
    }
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

/// Compiles a C victim: `name` is the file's name.
#[must_use]
pub fn c(name: &str) -> PathBuf {
    compile(Compiler::C, name, &[])
}

/// Compiles a C++ victim.
#[must_use]
pub fn cpp(name: &str) -> PathBuf {
    compile(Compiler::Cpp, name, &[])
}

/// Compiles a C file of the victims to a shared library.
#[must_use]
pub fn shared(name: &str) -> PathBuf {
    compile(Compiler::C, name, &["-shared", "-fPIC"])
}

/// Compiles a victim, with more arguments for the compiler after the source.
///
/// # Panics
/// If it does not compile.
#[must_use]
pub fn compile(compiler: Compiler, name: &str, arguments: &[&str]) -> PathBuf {
    let source = repository().join("tests/victims").join(name);
    let text = fs::read(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    let mut hasher = DefaultHasher::new();
    (&text, compiler, arguments).hash(&mut hasher);
    let directory = target_directory().join("victims");
    let stem = Path::new(name)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let output = directory.join(format!("{stem}-{:016x}", hasher.finish()));
    let _lock = lock::take(&format!("victim-{stem}"));
    if !output.exists() {
        fs::create_dir_all(&directory).unwrap_or_else(|error| panic!("{error}"));
        let part = output.with_extension("part");
        let mut command = compiler.command();
        command.arg(&source).args(arguments).arg("-o").arg(&part);
        let status = command
            .status()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(status.success(), "{command:?}: {status}");
        fs::rename(&part, &output).unwrap_or_else(|error| panic!("{error}"));
    }
    output
}
