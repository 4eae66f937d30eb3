//! Writes a file as a whole or not at all: into a temporary one beside it, which then takes its
//! name. What is no regular file (a pipe, a terminal, `/dev/null`) is written as it is.

use super::unfinished::Unfinished;
use crate::visible::Shown;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file could not be written; the old one, if there was one, is as it was.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {error}{}", path.shown(), remedy(error))]
pub struct WriteError {
    path: PathBuf,
    error: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (make room, or write it to another disk)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (name a file in a directory that you may write to)"
        }
        io::ErrorKind::NotFound => " (the directory does not exist; make it, or name another)",
        io::ErrorKind::IsADirectory => " (name a file, not a directory)",
        _ => "",
    }
}

/// A file that is going to be written: it is known that it can be.
#[derive(Debug)]
pub(crate) struct Begun {
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    StandardOutput,
    /// No regular file.
    There(File),
    /// It is written beside the file whose name it takes.
    Beside(Unfinished, PathBuf),
}

impl Begun {
    /// Begins to write the file at `path`; `-` is standard output.
    ///
    /// # Errors
    /// [`WriteError`].
    pub(crate) fn at(path: &Path) -> Result<Self, WriteError> {
        let place = match path.to_str() {
            Some("-") => Ok(Place::StandardOutput),
            _ => place(path),
        };
        let path = path.to_owned();
        match place {
            Ok(place) => Ok(Self { path, place }),
            Err(error) => Err(WriteError { path, error }),
        }
    }

    /// Where it is going to be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has `write` write it.
    ///
    /// # Errors
    /// [`WriteError`]; a reader of a pipe that goes away is none.
    pub(crate) fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        let written = match self.place {
            Place::StandardOutput => directly(io::stdout().lock(), write),
            Place::There(file) => directly(file, write),
            Place::Beside(unfinished, path) => replace(unfinished, &path, write),
        };
        let path = self.path;
        written.map_err(|error| WriteError { path, error })
    }
}

/// The same at once.
///
/// # Errors
/// As both.
pub(crate) fn write(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    Begun::at(path)?.write(write)
}

fn directly(
    out: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let written = write(&mut out).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // What is left in the buffer has nowhere to go.
            let _ = out.into_parts();
            Ok(())
        }
        other => other,
    }
}

fn place(path: &Path) -> io::Result<Place> {
    // A symbolic link stays one: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&path).ok();
    if old.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        let there = File::options().write(true).open(&path)?;
        return Ok(Place::There(there));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let unfinished = Unfinished::in_directory(directory)?;
    if let Some(old) = old {
        unfinished.file.set_permissions(old.permissions())?;
    }
    Ok(Place::Beside(unfinished, path))
}

fn replace(
    unfinished: Unfinished,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(&unfinished.file);
    write(&mut out)?;
    out.flush()?;
    drop(out);
    unfinished.finish(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.svg");
        write(&path, |out| out.write_all(b"old")).unwrap();
        let error = write(&path, |out| {
            out.write_all(b"new")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("out.svg") && error.contains("another disk"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_stay_and_modes_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("real");
        let link = directory.path().join("link");
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
    }

    #[test]
    fn places_that_cannot_be_written_are_named_with_a_remedy() {
        let refuse = |path: &str| write(Path::new(path), |_| Ok(())).unwrap_err().to_string();
        let missing = refuse("/nonexistent/out.svg");
        assert!(
            missing.contains("/nonexistent/out.svg") && missing.contains("make it"),
            "{missing}"
        );
        assert!(refuse("/tmp").contains("not a directory"));
        let full = write(Path::new("/dev/full"), |out| out.write_all(b"x")).unwrap_err();
        assert!(full.to_string().contains("make room"), "{full}");
        write(Path::new("/dev/null"), |out| out.write_all(b"x")).unwrap();
    }
}
