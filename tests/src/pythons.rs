//! The Pythons that tests have: Debian's `python3` is always there, those of pyenv where it is, and
//! later ones of Debian's unstable suite, where that can be reached; which are missing is said.

use crate::command::{output, text};
use crate::{lock, repository, target_directory};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian has its own.
pub const DEBIANS: &str = "/usr/bin/python3";

/// Where pyenv has a minor version of Python 3, and a file of it, if it is there.
pub fn pyenv(minor: u32, file: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")))?;
    let versions = root.join("versions").read_dir().ok()?;
    let wanted = format!("3.{minor}.");
    let of_minor = versions.flatten().filter(|version| {
        let name = version.file_name();
        name.to_string_lossy().starts_with(&wanted)
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

/// A Python of the unstable suite, with a word of what it says of itself changed: the one of that
/// place in the table at the beginning of `_PyRuntime`.
pub fn unstable_that_says(minor: u32, to: &Path, place: usize, word: u64) -> Option<PathBuf> {
    let program = unstable(minor)?;
    let directory = program.parent()?.parent()?;
    let original = directory.join(format!("root/usr/bin/python3.{minor}"));
    let mut file = std::fs::read(&original).ok()?;
    // The cookie is in the interpreter's code, too; behind the table's is the version.
    let version = [0, 0, minor as u8, 3, 0, 0, 0, 0];
    let is_table = |bytes: &[u8]| bytes.starts_with(b"xdebugpy") && bytes[10..] == version[2..];
    let table = file.windows(16).position(is_table)?;
    let at = table.checked_add(place.checked_mul(8)?)?;
    file.get_mut(at..)?
        .first_chunk_mut()
        .map(|bytes| *bytes = word.to_le_bytes())?;
    let changed = to.join("python");
    std::fs::write(&changed, file).ok()?;
    let wrapper = std::fs::read_to_string(&program).ok()?;
    // Its argument zero, by which it finds its library, stays.
    let (head, _) = wrapper.rsplit_once(original.to_str()?)?;
    let wrapped = to.join("wrapper");
    std::fs::write(&wrapped, format!("{head}{} \"$@\"\n", changed.display())).ok()?;
    for path in [&changed, &wrapped] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).ok()?;
    }
    Some(wrapped)
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
