//! Where the profile goes: a recording, or a file of another format that is made of one when it is
//! done. The place is tried before the program is started, and an older file is untouched until
//! there is a whole one to put in its place.
//!
//! Not here: writing a recording ([`super::writer`]), names and how they are taken
//! ([`crate::kept`]), and other formats ([`crate::output`]).

use super::error::Error;
use super::writer::Writer;
use crate::kept::{self, Begun};
use crate::output;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::statvfs::fstatvfs;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name and extension of recordings among the formats.
const RECORDING: &str = "rsu";
/// Standard output, among files.
const STANDARD_OUTPUT: &str = "-";

/// An output that can be written.
#[derive(Debug)]
pub struct Output {
    destination: Destination,
    file: File,
}

/// What is to become of the recording.
#[derive(Debug)]
pub enum Destination {
    /// It stays where it is written: a device, or a pipe.
    Stream(PathBuf),
    /// It gets this name when it is done.
    Recording {
        /// The recording.
        recording: Begun,
        /// Its name.
        path: PathBuf,
        /// The file that the name stood for at the beginning; itself where an older one is kept.
        real: PathBuf,
        /// An older one is kept, under another name.
        keep_older: bool,
    },
    /// It is for the time being.
    Export {
        /// The recording.
        recording: Begun,
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
            Self::Stream(path) => path,
            Self::Recording { recording, .. } | Self::Export { recording, .. } => recording.path(),
        }
    }
}

impl Output {
    /// Finds out what is to be written, and tries whether it can be, without changing what is
    /// there. Without a name it is the usual one.
    ///
    /// # Errors
    /// [`Error::Output`], [`Error::Format`].
    pub fn prepare(path: Option<&Path>, format: Option<&str>) -> Result<Self, Error> {
        let keep_older = path.is_none();
        let path = path.unwrap_or(Path::new(kept::DEFAULT));
        if is_recording(path, format) {
            return Self::recording(path, keep_older);
        }
        output::choose(format, path).map_err(|error| {
            let about = "recording, for rsunwind report and export";
            let line = output::line(RECORDING, ".rsu", about);
            Error::Format(format!("{error}\n{line}"))
        })?;
        Self::export(path, format)
    }

    fn recording(path: &Path, keep_older: bool) -> Result<Self, Error> {
        let tried = |source| Error::output(path, source);
        if path == Path::new(STANDARD_OUTPUT) {
            let why = "a recording cannot go to standard output, where the program's own output goes: name a file with -o FILE";
            return Err(Error::Format(why.into()));
        }
        let meant = kept::real(path).map_err(tried)?;
        if let Some(older) = open(path).map_err(tried)?
            && !is_regular(&older)
        {
            return Ok(Self {
                destination: Destination::Stream(path.to_owned()),
                file: older,
            });
        }
        // A link's file is replaced, beside which there is room if anywhere. But where the older
        // one is kept that is the link, and a name with letters filled in is another than the
        // link's.
        let real = match keep_older || kept::expanded(path, 0) != path {
            true => path.to_owned(),
            false => meant,
        };
        let (recording, file) = begin(&real).map_err(tried)?;
        Ok(Self {
            destination: Destination::Recording {
                recording,
                path: path.to_owned(),
                real,
                keep_older,
            },
            file,
        })
    }

    fn export(path: &Path, format: Option<&str>) -> Result<Self, Error> {
        let tried = |source| Error::output(path, source);
        if path != Path::new(STANDARD_OUTPUT) {
            kept::real(path).and_then(|_| open(path)).map_err(tried)?;
        }
        let beside = place_beside(path);
        let directory = beside.parent().unwrap_or(Path::new("."));
        let begun = begin(&beside).map_err(|source| Error::output(directory, source));
        let (recording, file) = begun?;
        Ok(Self {
            destination: Destination::Export {
                recording,
                path: path.to_owned(),
                format: format.map(str::to_owned),
            },
            file,
        })
    }

    /// The program runs, as that process: what is recorded stays from now on.
    #[must_use]
    pub fn begin(self, pid: u32) -> (Destination, Writer) {
        let Self {
            mut destination,
            file,
        } = self;
        match &mut destination {
            Destination::Stream(_) => {}
            Destination::Recording {
                recording,
                path,
                real,
                ..
            } => {
                recording.stays();
                let name = kept::expanded(path, pid);
                if name != *path {
                    // The link, if there was one, has another name.
                    real.clone_from(&name);
                }
                *path = name;
            }
            Destination::Export { path, .. } => *path = kept::expanded(path, pid),
        }
        (destination, Writer::new(file))
    }
}

/// Beside the profile, where there is room for the recording if anywhere, and where whoever looks
/// for it after a crash finds it. What is no file, such as `/dev/stdout`, is in no such place.
fn place_beside(path: &Path) -> PathBuf {
    let file = path != Path::new(STANDARD_OUTPUT) && (path.is_file() || !path.exists());
    let absolute = std::path::absolute(path).ok().filter(|_| file);
    absolute.unwrap_or_else(|| std::env::temp_dir().join(path.file_name().unwrap_or_default()))
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

/// Begins a recording beside a name, where there must be room for one.
fn begin(name: &Path) -> io::Result<(Begun, File)> {
    let (begun, file) = kept::begin(name)?;
    match fstatvfs(&file).is_ok_and(|system| system.blocks_free() > 0) {
        true => Ok((begun, file)),
        false => Err(io::ErrorKind::StorageFull.into()),
    }
}

/// Opens an older file, or a device, which must allow to be written. Waits only for who reads a
/// pipe of ours.
fn open(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let options = options.write(true);
    match options.custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => {
            fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
            Ok(Some(file))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            options.custom_flags(0).open(path).map(Some)
        }
        Err(error) => Err(error),
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_older_file_stays_and_what_was_tried_goes_until_the_program_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a%p.rsu");
        let count = || fs::read_dir(directory.path()).unwrap().count();
        drop(Output::prepare(Some(&path), None).unwrap());
        assert_eq!(count(), 0);
        fs::write(&path, "old").unwrap();
        let (destination, mut writer) = Output::prepare(Some(&path), None).unwrap().begin(7);
        writer.begin().unwrap();
        let begun = destination.recording().to_owned();
        let Destination::Recording { path: name, .. } = &destination else {
            panic!("{destination:?}");
        };
        assert_eq!(*name, directory.path().join("a7.rsu"));
        drop(destination);
        assert!(fs::read(begun).unwrap().starts_with(b"RSUNWIND"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let error = Output::prepare(Some(&directory.path().join("no/such.rsu")), None).unwrap_err();
        assert!(error.to_string().contains("-o FILE"), "{error}");
    }

    #[test]
    fn what_a_link_stands_for_is_found_out_at_the_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("far")).unwrap();
        fs::write(path("far/b.rsu"), "old").unwrap();
        for (link, becomes, beside) in [
            ("a.rsu", "far/b.rsu", "far"),
            ("%p.rsu", "7.rsu", ""), // its name is another
        ] {
            std::os::unix::fs::symlink("far/b.rsu", path(link)).unwrap();
            let output = Output::prepare(Some(&path(link)), None).unwrap();
            let (destination, _) = output.begin(7);
            let directory = destination.recording().parent().unwrap();
            assert_eq!(
                directory.canonicalize().unwrap(),
                path(beside).canonicalize().unwrap()
            );
            let Destination::Recording { real, .. } = destination else {
                panic!("{destination:?}");
            };
            assert_eq!(real, path(becomes));
        }
        // The older one that is kept is the link; what it stands for may be on another disk.
        let kept = Output::recording(&path("a.rsu"), true).unwrap();
        let (destination, _) = kept.begin(7);
        assert_eq!(destination.recording().parent(), Some(directory.path()));
    }

    #[test]
    fn a_pipe_of_ours_is_written_when_somebody_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rsu");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        let (destination, mut writer) = Output::prepare(Some(&path), None).unwrap().begin(1);
        assert!(matches!(destination, Destination::Stream(_)));
        writer.begin().unwrap();
        drop(writer);
        assert!(reader.join().unwrap().starts_with(b"RSUNWIND"));
    }

    #[test]
    fn the_format_is_that_of_the_option_or_else_of_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let is_export = |name: &str, format| {
            let output = Output::prepare(Some(&directory.path().join(name)), format).unwrap();
            matches!(output.destination, Destination::Export { .. })
        };
        assert!(!is_export("a.rsu", None));
        assert!(!is_export("noextension", None));
        assert!(!is_export("a.svg", Some("rsu")));
        assert!(is_export("a.svg", None));
        assert!(is_export("a.pb.gz", None));
        assert!(is_export("a.rsu", Some("folded")));
        for (name, format) in [("a.doc", None), ("a.svg", Some("nonsense"))] {
            let error = Output::prepare(Some(&directory.path().join(name)), format).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            assert!(
                error.to_string().contains(".svg") && error.to_string().contains(".rsu"),
                "{error}"
            );
        }
        assert_eq!(
            Output::prepare(Some(Path::new("-")), None)
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
        let (destination, mut writer) = Output::prepare(Some(&path), None).unwrap().begin(1);
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
