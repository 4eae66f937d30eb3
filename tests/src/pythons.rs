//! The Pythons that tests have: Debian's `python3` is always there, those of pyenv where it is, and
//! later ones of Debian's unstable suite, where that can be reached; which are missing is said.

use crate::command::{output, text};
use crate::{lock, repository, target_directory};
use std::path::PathBuf;
use std::process::Command;

/// Where Debian has its own.
pub const DEBIANS: &str = "/usr/bin/python3";

/// Where pyenv has a minor version of Python 3, and a file of it, if it is there.
pub fn pyenv(minor: u32, file: &str) -> Option<PathBuf> {
    of_pyenv(minor, false, file)
}

/// A free-threaded build of pyenv's (`pyenv install 3.14t`); says so if there is none.
pub fn free_threaded(minor: u32) -> Option<PathBuf> {
    let found = of_pyenv(minor, true, &format!("bin/python3.{minor}t"));
    if found.is_none() {
        eprintln!("NOT TESTED: pyenv has no free-threaded Python 3.{minor}");
    }
    found
}

/// Free-threaded builds end with `t`; they have the files of others, too.
fn of_pyenv(minor: u32, is_free: bool, file: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")))?;
    let versions = root.join("versions").read_dir().ok()?;
    let wanted = format!("3.{minor}.");
    let of_minor = versions.flatten().filter(|version| {
        let name = version.file_name();
        let name = name.to_string_lossy();
        name.starts_with(&wanted) && name.ends_with('t') == is_free
    });
    let found = of_minor.map(|version| version.path().join(file));
    found.filter(|path| path.exists()).max()
}

/// The interpreter of a minor version; says so if there is none.
pub fn python(minor: u32) -> Option<PathBuf> {
    let found = pyenv(minor, &format!("bin/python3.{minor}"));
    let found = found.or_else(|| unstable(minor));
    if found.is_none() {
        eprintln!("no Python 3.{minor} in pyenv or Debian's unstable suite: not tested");
    }
    found
}

/// That of Debian's unstable suite, which is fetched if it is not there.
fn unstable(minor: u32) -> Option<PathBuf> {
    /// Earlier ones are there no more.
    const FIRST: u32 = 14;
    if minor < FIRST {
        return None;
    }
    let _lock = lock::take("suites");
    let suite = target_directory().join("sframe/suites/sid");
    let program = suite.join(format!("bin/python3.{minor}"));
    if !program.exists() {
        let mut fetch = Command::new(repository().join("tests/unpack_python"));
        fetch.arg(format!("3.{minor}")).arg(&suite);
        fetch.status().ok().filter(|status| status.success())?;
    }
    Some(program)
}

/// The minor version of Debian's.
pub fn debians_minor() -> u32 {
    let mut command = Command::new(DEBIANS);
    let result = output(command.args(["-c", "import sys; print(sys.version_info[1])"]));
    text(&result.stdout).trim().parse().expect("a number")
}

/// Debian's, and 3.13, which keeps its entries, and who has the GIL, in another way.
pub fn two() -> Vec<(u32, PathBuf)> {
    let own = (debians_minor(), PathBuf::from(DEBIANS));
    let other = python(13).map(|path| (13, path));
    std::iter::once(own).chain(other).collect()
}

/// These, and 3.9, which has no entries.
pub fn three() -> Vec<(u32, PathBuf)> {
    let oldest = python(9).map(|path| (9, path));
    two().into_iter().chain(oldest).collect()
}

/// A program of `tests/victims/python`.
pub fn script(name: &str) -> PathBuf {
    repository().join("tests/victims/python").join(name)
}
