//! A file that a process has mapped: where it is to be found, and whether it is still the same
//! later. It is not kept open, since its file system is to be unmounted as soon as its processes
//! have ended.

use crate::binary;
use crate::processes::FileId;
use crate::symbolize::{Version, own_vdso, version, version_of};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The path under which the kernel reports its own code in a process.
const VDSO: &[u8] = b"[vdso]";

/// As a process calls a file, which is another one in another container, or by and by.
pub(super) type Key = (Vec<u8>, FileId);

/// A file as it was found.
#[derive(Debug)]
pub(super) struct Source {
    key: Key,
    /// `None` of the kernel's code.
    version: Option<Version>,
}

impl Source {
    /// Opens a file of a process, which need not live any more.
    pub(super) fn open(pid: i32, key: &Key) -> Option<(Self, File)> {
        let (version, file) = match key.0 == VDSO {
            true => (None, vdso()?),
            false => places(pid, key).find_map(|place| {
                let (Place::There(path) | Place::Here(path)) = &place;
                let file = binary::open(path).ok()?;
                let version = version_of(&file.metadata().ok()?);
                is_meant(&place, key, &version).then_some((Some(version), file))
            })?,
        };
        let key = key.clone();
        Some((Self { key, version }, file))
    }

    /// Whether a file that a process calls by that name is another one than this.
    pub(super) fn is_another(&self, pid: i32) -> bool {
        let as_found = |place: Place| {
            let (Place::There(path) | Place::Here(path)) = &place;
            version(path).filter(|version| is_meant(&place, &self.key, version))
        };
        let now = || places(pid, &self.key).find_map(as_found);
        self.version.is_some() && now().is_some_and(|now| self.version != Some(now))
    }
}

/// Where a file of a process may be: as the process sees it, which may live in a root directory of
/// its own; if it is gone, as we do.
fn places(pid: i32, (path, _): &Key) -> impl Iterator<Item = Place> {
    let path = Path::new(OsStr::from_bytes(path));
    let mut there = PathBuf::from(format!("/proc/{pid}/root")).into_os_string();
    there.push(path);
    let both = [Place::There(there.into()), Place::Here(path.into())];
    both.into_iter().filter(|_| path.is_absolute())
}

enum Place {
    There(PathBuf),
    Here(PathBuf),
}

/// Whether a file that was found there is the one that is meant: at the same path we may have
/// another one.
fn is_meant(place: &Place, (_, file): &Key, version: &Version) -> bool {
    match place {
        Place::There(_) => true,
        // Devices have other numbers in some file systems.
        Place::Here(_) => *file == FileId::default() || version.1 == file.inode,
    }
}

/// The kernel's code as a file.
fn vdso() -> Option<File> {
    let bytes = own_vdso().ok()?;
    let mut file = File::from(memfd_create("vdso", MFdFlags::MFD_CLOEXEC).ok()?);
    file.write_all(&bytes).ok()?;
    Some(file)
}
