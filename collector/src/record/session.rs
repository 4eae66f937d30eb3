//! The session: a directory of shared memory where the program and its descendants find the control
//! page and put their segments.
//!
//! ```text
//! /dev/shm/rsunwind-AbCdEf/           nobody else can list it
//!     0123456789abcdef…/              128 random bits, known to processes of the session only
//!         control  rings  events  PID.KEY.seg …
//! ```
//!
//! Programs that root records may become other users, so that the inner directory is open to all;
//! its name is in the environment of the session's programs, which only they and those who may
//! trace them can read.
//!
//! Not here: reading the segments ([`super::drain`]). The control page is written with pwrite, in
//! words that nobody sees half of.

use super::error::Error;
use crate::clock;
use crate::kept::{self, RECORDING_LINK, SESSION_PREFIX};
use crate::visible::Shown;
use engine::wire::file::VERSION;
use engine::wire::session::{CONTROL_FILE, CONTROL_MAGIC, Control, OVER, RUNNING};
use nix::unistd::geteuid;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;

/// Random bytes in the inner directory's name.
const SECRET: usize = 16;

/// A running session. Dropping it ends it: programs disarm, and the directory is removed.
#[derive(Debug)]
pub struct Session {
    /// The outer directory.
    whole: tempfile::TempDir,
    /// The inner one.
    directory: PathBuf,
    control: File,
}

impl Session {
    /// Makes the directory and the control page.
    ///
    /// # Errors
    /// [`Error::Session`] with every place that was tried.
    pub fn create() -> Result<Self, Error> {
        Self::create_among(&kept::places())
    }

    fn create_among(places: &[PathBuf]) -> Result<Self, Error> {
        let mut tried = Vec::new();
        for place in places {
            match Self::create_in(place) {
                Ok(session) => return Ok(session),
                Err(error) => tried.push(format!("{}: {error}", place.shown())),
            }
        }
        Err(Error::Session {
            tried: tried.join("; "),
        })
    }

    fn create_in(place: &Path) -> io::Result<Self> {
        if place.as_os_str().as_bytes().contains(&b',') {
            return Err(io::Error::other("settings cannot name a path with a comma"));
        }
        let whole = tempfile::Builder::new()
            .prefix(SESSION_PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(place)?;
        // Programs that give up root's rights go on writing segments; nobody else can find, list or
        // remove them.
        let (outer_mode, inner_mode, control_mode) = if geteuid().is_root() {
            (0o711, 0o1733, 0o644)
        } else {
            (0o700, 0o700, 0o600)
        };
        let directory = whole.path().join(secret()?);
        fs::create_dir(&directory)?;
        fs::set_permissions(&directory, Permissions::from_mode(inner_mode))?;
        fs::set_permissions(whole.path(), Permissions::from_mode(outer_mode))?;
        let path = directory.join(CONTROL_FILE);
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(control_mode)
            .open(path)?;
        control.set_permissions(Permissions::from_mode(control_mode))?; // whatever the umask
        // Held for as long as we live: in another PID namespace our number says nothing. Without
        // locks in this file system the number is all there is.
        let _ = control.try_lock();
        let session = Self {
            whole,
            directory,
            control,
        };
        session.fill()?;
        Ok(session)
    }

    fn fill(&self) -> io::Result<()> {
        // Every byte is written, so that no reader of the page meets a hole on a full disk.
        self.control.write_all_at(&[0; PAGE as usize], 0)?;
        self.word(offset_of!(Control, version), VERSION)?;
        self.word(offset_of!(Control, collector_pid), std::process::id())?;
        self.word(offset_of!(Control, state), RUNNING)?;
        self.beat()?;
        self.long(offset_of!(Control, magic), CONTROL_MAGIC)
    }

    /// Says that rsunwind lives.
    ///
    /// # Errors
    /// As pwrite.
    pub fn beat(&self) -> io::Result<()> {
        self.long(offset_of!(Control, heartbeat_ns), clock::monotonic_ns())
    }

    /// Says that the session is over: programs disarm at their next sample.
    ///
    /// # Errors
    /// As pwrite.
    pub fn end(&self) -> io::Result<()> {
        self.word(offset_of!(Control, state), OVER)
    }

    /// The directory in which its programs find all.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Leaves a link to `recording`, for whoever finds the directory after rsunwind was killed.
    pub fn link(&self, recording: &Path) {
        if let Ok(recording) = fs::canonicalize(recording) {
            let _ = std::os::unix::fs::symlink(recording, self.path().join(RECORDING_LINK));
        }
    }

    /// Ends the session, but lets `kept`, a file in the directory, and so the directory, stay for
    /// programs that may still need it.
    pub fn close(mut self, kept: Option<&Path>) {
        let Some(kept) = kept else { return };
        self.whole.disable_cleanup(true);
        for entry in fs::read_dir(self.path()).into_iter().flatten().flatten() {
            if entry.path() != kept {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn word(&self, offset: usize, value: u32) -> io::Result<()> {
        self.control
            .write_all_at(&value.to_le_bytes(), offset as u64)
    }

    fn long(&self, offset: usize, value: u64) -> io::Result<()> {
        self.control
            .write_all_at(&value.to_le_bytes(), offset as u64)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A name that nobody guesses.
fn secret() -> io::Result<String> {
    let mut bytes = [0; SECRET];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn word(page: &[u8], offset: usize) -> u32 {
        u32::from_le_bytes(page[offset..offset + 4].try_into().unwrap())
    }

    fn long(page: &[u8], offset: usize) -> u64 {
        u64::from_le_bytes(page[offset..offset + 8].try_into().unwrap())
    }

    #[test]
    fn the_control_page_says_who_runs_the_session_and_that_it_lives() {
        let place = tempfile::tempdir().unwrap();
        let session = Session::create_in(place.path()).unwrap();
        let directory = session.path().to_owned();
        let page = fs::read(directory.join(CONTROL_FILE)).unwrap();
        assert_eq!(page.len(), 4096);
        assert_eq!(long(&page, offset_of!(Control, magic)), CONTROL_MAGIC);
        assert_eq!(word(&page, offset_of!(Control, version)), VERSION);
        assert_eq!(word(&page, offset_of!(Control, state)), RUNNING);
        assert_eq!(
            word(&page, offset_of!(Control, collector_pid)),
            std::process::id()
        );
        let first = long(&page, offset_of!(Control, heartbeat_ns));
        assert!(first > 0 && first <= clock::monotonic_ns());
        session.beat().unwrap();
        let page = fs::read(directory.join(CONTROL_FILE)).unwrap();
        assert!(long(&page, offset_of!(Control, heartbeat_ns)) > first);

        let open = File::open(directory.join(CONTROL_FILE)).unwrap();
        assert!(open.try_lock_shared().is_err(), "it is held");
        drop(session);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let mut page = [0; 4096];
        open.read_exact_at(&mut page, 0).unwrap();
        assert_eq!(
            word(&page, offset_of!(Control, state)),
            OVER,
            "who has the page mapped is told"
        );
    }

    #[test]
    fn a_library_that_others_still_need_stays() {
        let place = tempfile::tempdir().unwrap();
        let session = Session::create_in(place.path()).unwrap();
        let (directory, kept) = (session.path().to_owned(), session.path().join("library.so"));
        fs::write(&kept, b"").unwrap();
        session.close(Some(&kept));
        let left: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(left, [kept]);
    }

    #[test]
    fn the_first_place_that_will_do_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let places = ["/proc".into(), "/a,b".into(), place.path().to_owned()];
        let session = Session::create_among(&places).unwrap();
        assert!(session.path().starts_with(place.path()));
        let error = Session::create_among(&places[..2]).unwrap_err().to_string();
        assert!(
            error.contains("/proc: ") && error.contains("/a,b: ") && error.contains("TMPDIR"),
            "{error}"
        );
    }

    #[test]
    fn who_was_not_told_cannot_find_the_way_in() {
        let place = tempfile::tempdir().unwrap();
        let sessions = [(); 2].map(|()| Session::create_in(place.path()).unwrap());
        let names = sessions
            .each_ref()
            .map(|session| session.path().file_name().unwrap().to_owned());
        assert_ne!(names[0], names[1]);
        assert_eq!(names[0].len(), 2 * SECRET);
        for session in &sessions {
            let mode = fs::metadata(session.whole.path()).unwrap().mode();
            assert_eq!(mode & 0o066, 0, "nobody lists or fills it: {mode:o}");
        }
    }
}
