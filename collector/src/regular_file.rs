//! Files whose names come from others: a program's binaries, a compiler's sources. Opening one that
//! is no regular file might wait for ever (a pipe), or do something (a device).

use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens one, and nothing else.
///
/// # Errors
/// As open; `InvalidInput` if it is no regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // With this nothing is opened yet, and what was looked at is what is opened then.
    let mut place = OpenOptions::new();
    place.read(true).custom_flags(OFlag::O_PATH.bits());
    let place = place.open(path)?;
    if !place.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// Reads all of a file that somebody named, or of a pipe.
///
/// # Errors
/// As open and read; `InvalidInput` for a device, which might have no end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a device, not a file",
        ));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_are_opened_and_links_to_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::write(path("file"), "content").unwrap();
        symlink("file", path("link")).unwrap();
        for name in ["file", "link"] {
            let mut text = String::new();
            open(&path(name))
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            assert_eq!(text, "content");
        }
        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        for name in ["pipe", "device", "."] {
            let refused = open(&path(name)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        let device = read(&path("device")).unwrap_err();
        assert_eq!(device.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read(&path("link")).unwrap(), b"content");
        let missing = open(&path("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
