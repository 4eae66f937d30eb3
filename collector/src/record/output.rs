//! Where the profile goes. The place is tried before the program is started, and an older file is untouched until it has been.

use super::error::Error;
use super::writer::Writer;
use nix::sys::statvfs::fstatvfs;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The file written when none is named.
pub const DEFAULT: &str = "rsunwind.rsu";

/// An output that can be written.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
    /// Removes a file that was made for trying, if nothing comes of it.
    made: Option<Made>,
}

#[derive(Debug)]
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Output {
    /// Opens `path` for writing, without changing what is in it.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub fn prepare(path: &Path) -> Result<Self, Error> {
        let open = |new: bool| OpenOptions::new().write(true).create_new(new).open(path);
        let opened = match open(true) {
            Ok(file) => Ok((file, Some(Made(path.to_owned())))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                open(false).map(|file| (file, None))
            }
            Err(error) => Err(error),
        };
        let tried = opened.and_then(|(file, made)| {
            if has_room(&file) {
                Ok((file, made))
            } else {
                Err(io::ErrorKind::StorageFull.into())
            }
        });
        let (file, made) = tried.map_err(|source| Error::output(path, source))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            made,
        })
    }

    /// The program runs: the file is the recording's now.
    #[must_use]
    pub fn begin(self) -> (PathBuf, Writer) {
        // The file stays, whatever becomes of the recording.
        if let Some(made) = self.made {
            std::mem::forget(made);
        }
        (self.path, Writer::new(self.file))
    }
}

/// Whether the file system has any room at all. Devices and pipes have.
fn has_room(file: &File) -> bool {
    let regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
    !regular || fstatvfs(file).is_ok_and(|system| system.blocks_free() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_file_stays_until_the_recording_begins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old.rsu");
        fs::write(&path, "old").unwrap();
        drop(Output::prepare(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let (_, mut writer) = Output::prepare(&path).unwrap().begin();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        writer.begin().unwrap();
        assert!(fs::read(&path).unwrap().starts_with(b"RSUNWIND"));
    }

    #[test]
    fn a_file_made_for_trying_goes_if_nothing_came_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new.rsu");
        drop(Output::prepare(&path).unwrap());
        assert!(!path.exists());
        drop(Output::prepare(&path).unwrap().begin());
        assert!(path.exists());
        let error = Output::prepare(&directory.path().join("no/such.rsu")).unwrap_err();
        assert!(error.to_string().contains("-o FILE"), "{error}");
    }
}
