//! A recording takes its name when it is done, whole: until then it lies beside, under a name of
//! its own that ends in `.rsu` too, so that it is found if nobody lives to rename it.
//!
//! Where an older one is to be kept, it becomes NAME.old. Several recordings may end at once in one
//! directory, and none may be lost: a file is only ever taken away by who has renamed it to a name
//! that nobody else knows, and a name is only taken where it is free. What became NAME.old while a
//! recording ran is of another that ran beside it; the next free of NAME.old.2, NAME.old.3 … is
//! used then.
//!
//! In `/tmp` others can put something under the name meanwhile: what a link stands for is found out
//! once, at the beginning, and is never asked again.

use crate::temporary;
use nix::libc;
use nix::unistd::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempPath};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// Mode of a directory such as `/tmp`: all may write, and each takes away only what is his own.
const OPEN_TO_ALL: u32 = 0o1002;

/// A recording on its way.
#[derive(Debug)]
pub(crate) struct Begun {
    path: TempPath,
    /// Seconds and ns of the file system's clock when it began.
    since: (i64, i64),
}

/// Begins a recording that is to be called `name`. It is locked as long as the file is open.
///
/// # Errors
/// As open.
pub(crate) fn begin(name: &Path) -> io::Result<(Begun, File)> {
    make(name, ".rsu")
}

fn make(name: &Path, suffix: &str) -> io::Result<(Begun, File)> {
    let directory = directory_of(name);
    let mut prefix = name.file_name().map_or_else(OsString::new, OsString::from);
    prefix.push(".");
    let (file, path) = temporary::make(directory, &prefix, suffix)?.into_parts();
    let _ = file.try_lock();
    let since = changed(&file.metadata()?);
    Ok((Begun { path, since }, file))
}

/// The file that a name stands for: a link's, where there is one.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if it leads through a link or to a pipe that another user can
/// have put there for us; of links in a circle `ELOOP`.
pub(crate) fn real(name: &Path) -> io::Result<PathBuf> {
    let mut real = name.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(found) = fs::symlink_metadata(&real) else {
            return Ok(name.to_owned()); // nothing is there: what was named is made
        };
        let kind = found.file_type();
        if (kind.is_symlink() || kind.is_fifo()) && is_planted(&real, &found) {
            let why = "another user's link or pipe in a directory that all can write to";
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        if !kind.is_symlink() {
            return Ok(real);
        }
        real = directory_of(&real).join(fs::read_link(&real)?);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Whether a file, in a directory that all can write to, is neither ours nor of who has the
/// directory. What the kernel asks itself where `fs.protected_symlinks` and `protected_fifos` are
/// set.
fn is_planted(name: &Path, file: &fs::Metadata) -> bool {
    fs::metadata(directory_of(name)).is_ok_and(|directory| {
        directory.mode() & OPEN_TO_ALL == OPEN_TO_ALL
            && ![geteuid().as_raw(), directory.uid()].contains(&file.uid())
    })
}

/// The directory that a name is in.
fn directory_of(name: &Path) -> &Path {
    match name.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Begun {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Another file for the same recording, which is to be called `name`. Until then it is not
    /// found: this one is whole.
    ///
    /// # Errors
    /// As open.
    pub(crate) fn once_more(&self, name: &Path) -> io::Result<(Self, File)> {
        let (mut other, file) = make(name, ".part")?;
        other.since = self.since;
        Ok((other, file))
    }

    /// It is not needed any more.
    pub(crate) fn goes(mut self) {
        self.path.disable_cleanup(false);
    }

    /// It stays where it is, whatever happens, until it is renamed.
    pub(crate) fn stays(&mut self) {
        self.path.disable_cleanup(true);
    }

    /// Takes its name, as [`real`] has given it where an older one is replaced.
    ///
    /// # Errors
    /// As rename; it then stays where it is.
    pub(crate) fn take_name(&self, name: &Path, keep_older: bool) -> io::Result<()> {
        match keep_older {
            true => self.keep_older(name),
            false => self.replace(name),
        }
    }

    /// An older file of that name goes, but its permissions are kept if it was ours. So goes a
    /// link that is there only now: nobody knows who made it, and for what.
    fn replace(&self, name: &Path) -> io::Result<()> {
        let ours = |old: &fs::Metadata| old.is_file() && old.uid() == geteuid().as_raw();
        if let Some(old) = fs::symlink_metadata(name).ok().filter(ours) {
            let mode = Permissions::from_mode(old.mode() & 0o777);
            let _ = fs::set_permissions(&self.path, mode);
        }
        fs::rename(&self.path, name)
    }

    /// An older file of that name becomes NAME.old.
    fn keep_older(&self, name: &Path) -> io::Result<()> {
        while !moved(&self.path, name)? {
            if let Some(taken) = take(name)? {
                put_aside(taken, name, self.since)?;
            }
        }
        Ok(())
    }
}

/// Gives a file that nobody else has any more a name made of `name`.
fn put_aside(mut file: PathBuf, name: &Path, since: (i64, i64)) -> io::Result<()> {
    for number in 1.. {
        let old = old_name(name, number);
        loop {
            if moved(&file, &old)? {
                return Ok(());
            }
            let is_stale = |it: &fs::Metadata| !it.is_dir() && changed(it) < since;
            let Some(stale) = fs::symlink_metadata(&old).ok().filter(is_stale) else {
                break;
            };
            if let Some(taken) = take(&old)? {
                // Another may have been quicker, and put another file there.
                match fs::symlink_metadata(&taken)?.ino() == stale.ino() {
                    true => fs::remove_file(taken)?,
                    false => {
                        put_aside(file, name, since)?;
                        file = taken;
                    }
                }
            }
        }
    }
    Ok(())
}

/// NAME.old, NAME.old.2 …
pub(super) fn old_name(name: &Path, number: u32) -> PathBuf {
    let mut old = name.as_os_str().to_owned();
    old.push(".old");
    if number > 1 {
        old.push(format!(".{number}"));
    }
    old.into()
}

/// Renames a file where no other has the name; `false` if one has.
fn moved(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        // File systems without links.
        Err(_) if fs::symlink_metadata(to).is_ok() => Ok(false),
        Err(_) => fs::rename(from, to).map(|()| true),
    }
}

/// Renames a file so that it is only ours; `None` if it is gone.
fn take(file: &Path) -> io::Result<Option<PathBuf>> {
    let mut prefix = file.file_name().map_or_else(OsString::new, OsStr::to_owned);
    prefix.push(".");
    let ours = Builder::new()
        .prefix(&prefix)
        .suffix(".rsu")
        .tempfile_in(directory_of(file))?
        .into_temp_path();
    match fs::rename(file, &ours) {
        Ok(()) => Ok(Some(ours.keep().map_err(|error| error.error)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// When its content, or its name, was changed.
fn changed(file: &fs::Metadata) -> (i64, i64) {
    (file.ctime(), file.ctime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::thread;

    fn recorded(name: &Path, content: &str) -> Begun {
        let (mut begun, mut file) = begin(name).unwrap();
        begun.stays();
        file.write_all(content.as_bytes()).unwrap();
        begun
    }

    /// Names and contents.
    fn all(directory: &Path) -> Vec<(String, String)> {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let mut all: Vec<_> = files
            .map(|file| {
                let name = file.file_name().into_string().unwrap();
                (name, fs::read_to_string(file.path()).unwrap())
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn the_older_one_is_kept_and_one_before_it_goes() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("a.rsu");
        for content in ["1", "2", "3"] {
            recorded(&name, content).take_name(&name, true).unwrap();
            // Until the file system's clock has gone on, the next one runs beside this one.
            let placed = changed(&fs::metadata(&name).unwrap());
            while begin(&name).unwrap().0.since <= placed {}
        }
        let there = [("a.rsu", "3"), ("a.rsu.old", "2")];
        assert_eq!(
            all(directory.path()),
            there.map(|(n, c)| (n.into(), c.into()))
        );
        recorded(&name, "4").take_name(&name, false).unwrap();
        let there = [("a.rsu", "4"), ("a.rsu.old", "2")];
        assert_eq!(
            all(directory.path()),
            there.map(|(n, c)| (n.into(), c.into()))
        );
    }

    #[test]
    fn none_is_lost_where_many_end_at_once() {
        const MANY: usize = 12;
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("a.rsu");
        fs::write(&name, "old").unwrap();
        let begun: Vec<_> = (0..MANY)
            .map(|number| recorded(&name, &number.to_string()))
            .collect();
        thread::scope(|scope| {
            for one in begun {
                let name = &name;
                scope.spawn(move || one.take_name(name, true).unwrap());
            }
        });
        let contents: BTreeSet<_> = all(directory.path()).into_iter().map(|(_, c)| c).collect();
        let expected = (0..MANY).map(|number| number.to_string());
        assert_eq!(contents, expected.chain(["old".into()]).collect());
        let names = all(directory.path()).into_iter().map(|(name, _)| name);
        let named = |name: &String| name == "a.rsu" || name.starts_with("a.rsu.old");
        assert_eq!(names.filter(named).count(), MANY + 1);
    }

    #[test]
    fn what_was_only_tried_goes_and_links_and_modes_stay() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        drop(begin(&real).unwrap());
        assert_eq!(all(directory.path()), []);
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let meant = super::real(&link).unwrap();
        recorded(&meant, "new").take_name(&meant, false).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_link_that_comes_while_it_is_recorded_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (name, other) = (directory.path().join("a.rsu"), directory.path().join("b"));
        fs::write(&other, "other").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o666)).unwrap();
        let meant = real(&name).unwrap();
        let begun = recorded(&meant, "new");
        std::os::unix::fs::symlink(&other, &name).unwrap();
        begun.take_name(&meant, false).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"other");
        let placed = fs::symlink_metadata(&name).unwrap();
        assert!(placed.is_file() && fs::read(&name).unwrap() == b"new");
        assert_eq!(
            placed.mode() & 0o002,
            0,
            "the mode is not that of the other"
        );
    }

    #[test]
    fn links_of_others_are_refused_where_all_can_write() {
        let directory = tempfile::tempdir().unwrap();
        let (name, other) = (directory.path().join("a.rsu"), directory.path().join("b"));
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink("b", &name).unwrap();
        assert_eq!(real(&name).unwrap(), other);
        let circle = directory.path().join("c");
        std::os::unix::fs::symlink("c", &circle).unwrap();
        assert_eq!(real(&circle).unwrap_err().raw_os_error(), Some(libc::ELOOP));

        if !geteuid().is_root() {
            return; // who else could own the link?
        }
        std::os::unix::fs::lchown(&name, Some(65534), Some(65534)).unwrap();
        assert_eq!(real(&name).unwrap(), other, "here only we can write");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        let error = real(&name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let pipe = directory.path().join("d.rsu");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(real(&pipe).unwrap(), pipe, "it is ours");
        std::os::unix::fs::chown(&pipe, Some(65534), Some(65534)).unwrap();
        assert_eq!(real(&pipe).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_directory_in_the_way_of_the_older_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("a.rsu");
        fs::write(&name, "old").unwrap();
        fs::create_dir(directory.path().join("a.rsu.old")).unwrap();
        let placed = changed(&fs::metadata(directory.path().join("a.rsu.old")).unwrap());
        while begin(&name).unwrap().0.since <= placed {}
        recorded(&name, "new").take_name(&name, true).unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"new");
        assert_eq!(fs::read(old_name(&name, 2)).unwrap(), b"old");
    }
}
