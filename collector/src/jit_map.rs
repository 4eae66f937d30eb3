//! `/tmp/perf-PID.map`, where JIT compilers leave the names of their code: anybody can put a file
//! there, so it is believed only from its rightful owner, and only so much of it is read.
//!
//! Not here: what the lines say (`symbolize`), and how they get into a recording (`record`).

use crate::visible::Shown;
use nix::libc;
use nix::unistd::{Whence, lseek};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Take};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Most that is read of a map, bytes: a million functions and more.
pub const LARGEST: u64 = 256 << 20;
/// How much older than its process a file may be by its time stamp, which a coarser clock gives.
const COARSE: Duration = Duration::from_secs(1);

/// Why a map that is there is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    path: PathBuf,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Owner(u32),
    Links,
    NotAFile,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not read: ", self.path.shown())?;
        match self.why {
            Why::Owner(user) => write!(f, "it belongs to user {user}, who is not the process's"),
            Why::Links => {
                f.write_str("it has a second name, so that somebody else may have put it there")
            }
            Why::NotAFile => f.write_str("it is not a regular file"),
        }
    }
}

/// The map of a process, as far as it may be read. `started_ns`: when the process started, ns since
/// the epoch; an older file belongs to an earlier process of that pid. Root's files are believed
/// too.
///
/// # Errors
/// [`Refused`]. No map, or one that cannot be opened, is none.
pub fn open(
    pid: u32,
    started_ns: u64,
    is_rightful: impl Fn(u32) -> bool,
) -> Result<Option<Take<File>>, Refused> {
    open_at(
        &PathBuf::from(format!("/tmp/perf-{pid}.map")),
        started_ns,
        is_rightful,
    )
}

fn open_at(
    path: &Path,
    started_ns: u64,
    is_rightful: impl Fn(u32) -> bool,
) -> Result<Option<Take<File>>, Refused> {
    let refused = |why| Refused {
        path: path.to_owned(),
        why,
    };
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(refused(Why::NotAFile));
        }
        Err(_) => return Ok(None),
    };
    let Ok(metadata) = file.metadata() else {
        return Ok(None);
    };
    let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(started_ns);
    let newer = metadata
        .modified()
        .is_ok_and(|time| time + COARSE >= started);
    if metadata.is_file() && !newer {
        return Ok(None);
    }
    let why = match metadata.uid() {
        _ if !metadata.is_file() => Some(Why::NotAFile),
        owner if owner != 0 && !is_rightful(owner) => Some(Why::Owner(owner)),
        _ if metadata.nlink() != 1 => Some(Why::Links),
        _ => None,
    };
    match why {
        Some(why) => Err(refused(why)),
        None => Ok(Some(readable(file))),
    }
}

/// Text has no holes: a sparse file ends where its first one begins.
fn readable(mut file: File) -> Take<File> {
    let end = lseek(&file, 0, Whence::SeekHole).ok();
    let end = end.and_then(|end| u64::try_from(end).ok());
    let _ = io::Seek::rewind(&mut file);
    file.take(end.unwrap_or(LARGEST).min(LARGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    fn long_ago() -> u64 {
        1
    }

    fn text(path: &Path) -> Result<Option<String>, Refused> {
        let own = nix::unistd::geteuid().as_raw();
        let file = open_at(path, long_ago(), |user| user == own)?;
        Ok(file.map(|mut file| {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        }))
    }

    #[test]
    fn only_the_one_name_of_a_regular_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("map");
        assert_eq!(text(&path), Ok(None));
        std::fs::write(&path, "1 2 a\n").unwrap();
        assert_eq!(text(&path), Ok(Some("1 2 a\n".into())));
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(text(&link).unwrap_err().why, Why::NotAFile);
        std::fs::hard_link(&path, directory.path().join("second")).unwrap();
        assert_eq!(text(&path).unwrap_err().why, Why::Links);
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(text(&pipe).unwrap_err().why, Why::NotAFile);
    }

    #[test]
    fn a_map_older_than_its_process_is_another_ones() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = u64::try_from(now.unwrap().as_nanos()).unwrap();
        let minute = 60_000_000_000;
        let found = |started| open_at(file.path(), started, |_| true).unwrap();
        assert!(found(now - minute).is_some());
        assert!(found(now + minute).is_none());
    }

    #[test]
    fn a_sparse_map_ends_at_its_first_hole_and_a_huge_one_somewhere() {
        let mut file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        file.write_all("1 2 a\n".repeat(1000).as_bytes()).unwrap();
        file.as_file().set_len(4 << 40).unwrap();
        let text = text(file.path()).unwrap().unwrap();
        assert!(text.starts_with("1 2 a\n1 2 a\n"));
        assert!(
            text.len() < 3 << 20,
            "{} bytes: one page of memory, huge or not",
            text.len()
        );
    }
}
