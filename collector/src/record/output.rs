//! Where the profile goes: a recording, or a file of another format that is made of one when it is
//! done. The place is tried before the program is started, and an older file is untouched until
//! there is something to put in its place.
//!
//! Not here: writing a recording ([`super::writer`]) and other formats ([`crate::output`]).

use super::error::Error;
use super::writer::Writer;
use crate::output;
use nix::sys::statvfs::fstatvfs;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The file written when none is named.
pub const DEFAULT: &str = "rsunwind.rsu";
/// Name and extension of recordings among the formats.
const RECORDING: &str = "rsu";
/// Standard output, among files.
const STANDARD_OUTPUT: &str = "-";

/// An output that can be written.
#[derive(Debug)]
pub struct Output {
    destination: Destination,
    file: File,
    /// Removes a file that was made for trying, if nothing comes of it.
    made: Option<Made>,
}

/// What is to become of the recording.
#[derive(Debug)]
pub enum Destination {
    /// It stays, at this path.
    Recording(PathBuf),
    /// It is for the time being.
    Export {
        /// The recording.
        recording: NamedTempFile,
        /// What is made of it.
        path: PathBuf,
        /// In which format, if it was named.
        format: Option<String>,
    },
}

impl Destination {
    /// Where the recording is.
    #[must_use]
    pub fn recording(&self) -> &Path {
        match self {
            Self::Recording(path) => path,
            Self::Export { recording, .. } => recording.path(),
        }
    }
}

#[derive(Debug)]
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Output {
    /// Finds out what is to be written, and tries whether it can be, without changing what is
    /// there.
    ///
    /// # Errors
    /// [`Error::Output`], [`Error::Format`].
    pub fn prepare(path: &Path, format: Option<&str>) -> Result<Self, Error> {
        if is_recording(path, format) {
            return Self::recording(path);
        }
        output::choose(format, path).map_err(|error| {
            let line =
                "rsu          .rsu                   recording, for rsunwind report and export";
            Error::Format(format!("{error}\n  {line}"))
        })?;
        Self::export(path, format)
    }

    fn recording(path: &Path) -> Result<Self, Error> {
        if path == Path::new(STANDARD_OUTPUT) {
            let why = "a recording cannot go to standard output, where the program's own output goes: name a file with -o FILE";
            return Err(Error::Format(why.into()));
        }
        let (file, made) = open(path).map_err(|source| Error::output(path, source))?;
        let destination = Destination::Recording(path.to_owned());
        Ok(Self {
            destination,
            file,
            made,
        })
    }

    fn export(path: &Path, format: Option<&str>) -> Result<Self, Error> {
        let tried = |source| Error::output(path, source);
        if path != Path::new(STANDARD_OUTPUT) {
            open(path).map_err(tried)?; // what it made goes at once
        }
        let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
        name.push(".");
        let directory = place_beside(path);
        let recording = tempfile::Builder::new()
            .prefix(&name)
            .suffix(".rsu")
            .tempfile_in(&directory);
        let recording = recording.map_err(|source| Error::output(&directory, source))?;
        let file = recording.reopen().map_err(tried)?;
        let format = format.map(str::to_owned);
        let destination = Destination::Export {
            recording,
            path: path.to_owned(),
            format,
        };
        Ok(Self {
            destination,
            file,
            made: None,
        })
    }

    /// The program runs: the file is the recording's now.
    #[must_use]
    pub fn begin(self) -> (Destination, Writer) {
        // The file stays, whatever becomes of the recording.
        if let Some(made) = self.made {
            std::mem::forget(made);
        }
        (self.destination, Writer::new(self.file))
    }
}

/// Beside the profile, where there is room for the recording if anywhere, and where whoever looks
/// for it after a crash finds it. What is no file, such as `/dev/stdout`, is in no such place.
fn place_beside(path: &Path) -> PathBuf {
    let file = path != Path::new(STANDARD_OUTPUT) && (path.is_file() || !path.exists());
    let absolute = std::path::absolute(path).ok().filter(|_| file);
    let parent = absolute.as_deref().and_then(Path::parent);
    parent.map_or_else(std::env::temp_dir, Path::to_owned)
}

/// Whether a recording is meant: by its format, its extension, or a name without any.
fn is_recording(path: &Path, format: Option<&str>) -> bool {
    match format {
        Some(format) => format == RECORDING,
        None => path
            .extension()
            .is_none_or(|extension| extension == RECORDING),
    }
}

/// Opens a file for writing, which it must allow and have room for.
fn open(path: &Path) -> io::Result<(File, Option<Made>)> {
    let open = |new: bool| OpenOptions::new().write(true).create_new(new).open(path);
    let (file, made) = match open(true) {
        Ok(file) => (file, Some(Made(path.to_owned()))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (open(false)?, None),
        Err(error) => return Err(error),
    };
    if has_room(&file) {
        Ok((file, made))
    } else {
        Err(io::ErrorKind::StorageFull.into())
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
        drop(Output::prepare(&path, None).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let (_, mut writer) = Output::prepare(&path, None).unwrap().begin();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        writer.begin().unwrap();
        assert!(fs::read(&path).unwrap().starts_with(b"RSUNWIND"));
    }

    #[test]
    fn a_file_made_for_trying_goes_if_nothing_came_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new.rsu");
        drop(Output::prepare(&path, None).unwrap());
        assert!(!path.exists());
        drop(Output::prepare(&path, None).unwrap().begin());
        assert!(path.exists());
        let error = Output::prepare(&directory.path().join("no/such.rsu"), None).unwrap_err();
        assert!(error.to_string().contains("-o FILE"), "{error}");
    }

    #[test]
    fn the_format_is_that_of_the_option_or_else_of_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let is_export = |name: &str, format| {
            let output = Output::prepare(&directory.path().join(name), format).unwrap();
            matches!(output.destination, Destination::Export { .. })
        };
        assert!(!is_export("a.rsu", None));
        assert!(!is_export("noextension", None));
        assert!(!is_export("a.svg", Some("rsu")));
        assert!(is_export("a.svg", None));
        assert!(is_export("a.pb.gz", None));
        assert!(is_export("a.rsu", Some("folded")));
        for (name, format) in [("a.doc", None), ("a.svg", Some("nonsense"))] {
            let error = Output::prepare(&directory.path().join(name), format).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            assert!(
                error.to_string().contains(".svg") && error.to_string().contains(".rsu"),
                "{error}"
            );
        }
        assert_eq!(
            Output::prepare(Path::new("-"), None)
                .unwrap_err()
                .exit_status(),
            2
        );
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            0,
            "trying leaves nothing"
        );
    }

    #[test]
    fn the_recording_of_an_export_lies_beside_it_for_the_time_being() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        fs::write(&path, "old").unwrap();
        let (destination, mut writer) = Output::prepare(&path, None).unwrap().begin();
        writer.begin().unwrap();
        let recording = destination.recording().to_owned();
        assert_eq!(recording.parent(), Some(directory.path()));
        assert!(
            recording
                .extension()
                .is_some_and(|extension| extension == "rsu")
        );
        assert!(fs::read(&recording).unwrap().starts_with(b"RSUNWIND"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(destination);
        assert!(!recording.exists());
    }
}
