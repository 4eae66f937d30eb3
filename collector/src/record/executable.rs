//! The program to record: where it is, and what a refused exec of it means.
//!
//! Not here: starting it ([`super::launch`]), and whether the preload library gets into it
//! ([`crate::obstacle`]).

use super::error::Error;
use crate::obstacle::{Nature, Obstacle};
use crate::visible::Shown;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What `PATH` is where there is none (as execvp has it).
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// A program that can be started.
#[derive(Debug)]
pub struct Executable {
    /// The file to execute.
    pub path: PathBuf,
    /// Its arguments, the first as typed.
    pub arguments: Vec<OsString>,
    /// Why it will not be profiled, if so.
    pub obstacle: Option<Obstacle>,
    /// The interpreter of a script; the program's own loader otherwise.
    interpreter: Option<PathBuf>,
}

impl Executable {
    /// Finds the program that `command` names, as a shell would.
    ///
    /// # Errors
    /// [`Error::NoCommand`], [`Error::NotFound`], [`Error::NotExecutable`].
    pub fn resolve(command: &[OsString]) -> Result<Self, Error> {
        let name = command
            .first()
            .filter(|name| !name.is_empty())
            .ok_or(Error::NoCommand)?;
        let path = if name.as_bytes().contains(&b'/') {
            usable(Path::new(name))?
        } else {
            search(
                name,
                &std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()),
            )?
        };
        let nature = Nature::of(&path);
        Ok(Self {
            path,
            arguments: command.to_vec(),
            obstacle: nature.obstacle,
            interpreter: nature.interpreter,
        })
    }

    /// What a refused exec means.
    #[must_use]
    pub fn explain(&self, errno: Errno) -> Error {
        let why = match (errno, &self.interpreter) {
            (Errno::ENOENT | Errno::ENOTDIR, Some(interpreter)) => {
                format!("its interpreter {} does not exist: install it, or correct the program's first line", interpreter.shown())
            }
            (Errno::EACCES, _) => "permission denied: it, its interpreter or the file system (noexec) does not allow execution".into(),
            (Errno::ETXTBSY, _) => "somebody is writing to it: try again when that is done".into(),
            (Errno::E2BIG, _) => "its arguments and environment are too long for the kernel: shorten them".into(),
            (Errno::ENOEXEC, _) => "it is not in a format that the kernel can execute".into(),
            (errno, _) => errno.desc().into(),
        };
        Error::NotExecutable {
            path: self.path.clone(),
            why,
        }
    }
}

fn search(name: &OsStr, path: &OsStr) -> Result<PathBuf, Error> {
    let mut refused = None;
    for directory in std::env::split_paths(path) {
        let candidate = if directory.as_os_str().is_empty() {
            Path::new(".").join(name)
        } else {
            directory.join(name)
        };
        match usable(&candidate) {
            Ok(found) => return Ok(found),
            Err(error @ Error::NotExecutable { .. }) => refused = refused.or(Some(error)),
            Err(_) => {}
        }
    }
    let here = Path::new(".").join(name);
    let hint = match usable(&here) {
        Ok(_) => format!(" (did you mean {}?)", here.shown()),
        Err(_) => ": it is in no directory of PATH; check the spelling or give its path".into(),
    };
    Err(refused.unwrap_or(Error::NotFound {
        name: name.to_string_lossy().into_owned(),
        hint,
    }))
}

/// `path`, if it is a file that may be executed.
fn usable(path: &Path) -> Result<PathBuf, Error> {
    let refused = |why: &str| {
        Err(Error::NotExecutable {
            path: path.to_owned(),
            why: why.into(),
        })
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            refused("permission denied on the way to it")
        }
        Err(_) => Err(Error::NotFound {
            name: path.shown().to_string(),
            hint: ": no such file; check the path".into(),
        }),
        Ok(metadata) if metadata.is_dir() => refused("it is a directory: name a program in it"),
        Ok(metadata) if !metadata.is_file() => refused("it is not a file"),
        Ok(_) if access(path, AccessFlags::X_OK).is_err() => {
            refused("it is not executable: chmod +x makes it so")
        }
        Ok(_) => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::obstacle::tests::executable;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = std::env::join_paths([first.path(), second.path()]).unwrap();
        let here = executable(first.path(), "tool", b"");
        fs::set_permissions(&here, fs::Permissions::from_mode(0o644)).unwrap();
        let there = executable(second.path(), "tool", b"");
        assert_eq!(search(OsStr::new("tool"), &path).unwrap(), there);
        fs::remove_file(&there).unwrap();
        assert_eq!(
            search(OsStr::new("tool"), &path).unwrap_err().exit_status(),
            126
        );
        fs::remove_file(&here).unwrap();
        let error = search(OsStr::new("tool"), &path).unwrap_err();
        assert_eq!(error.exit_status(), 127);
        assert!(
            error.to_string().contains("tool: command not found"),
            "{error}"
        );
        assert_eq!(usable(first.path()).unwrap_err().exit_status(), 126);
    }
}
