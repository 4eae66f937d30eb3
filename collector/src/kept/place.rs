//! A recording takes its name when it is done, whole: until then it lies beside, under a name of
//! its own that ends in `.rsu` too, so that it is found if nobody lives to rename it.
//!
//! Where an older one is to be kept, it becomes NAME.old. Several recordings may end at once in one
//! directory, and none may be lost: a file is only ever taken away by who has renamed it to a name
//! that nobody else knows, and a name is only taken where it is free. What became NAME.old while a
//! recording ran is of another that ran beside it; the next free of NAME.old.2, NAME.old.3 … is
//! used then.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempPath};

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
    let directory = directory_of(name);
    let mut prefix = name.file_name().map_or_else(OsString::new, OsString::from);
    prefix.push(".");
    let made = Builder::new()
        .prefix(&prefix)
        .suffix(".rsu")
        .permissions(Permissions::from_mode(0o666)) // what the umask leaves of it
        .tempfile_in(directory);
    let made = made.map_err(|error| {
        let number = error.raw_os_error();
        number.map_or(error, io::Error::from_raw_os_error)
    })?;
    let (file, path) = made.into_parts();
    let _ = file.try_lock();
    let since = changed(&file.metadata()?);
    Ok((Begun { path, since }, file))
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

    /// It stays where it is, whatever happens, until it is renamed.
    pub(crate) fn stays(&mut self) {
        self.path.disable_cleanup(true);
    }

    /// Takes its name.
    ///
    /// # Errors
    /// As rename; it then stays where it is.
    pub(crate) fn take_name(&self, name: &Path, keep_older: bool) -> io::Result<()> {
        match keep_older {
            true => self.keep_older(name),
            false => self.replace(name),
        }
    }

    /// An older file of that name goes, but its permissions are kept.
    fn replace(&self, name: &Path) -> io::Result<()> {
        // A symbolic link stays one: what it points to is replaced.
        let name = fs::canonicalize(name).unwrap_or_else(|_| name.to_owned());
        if let Ok(old) = fs::metadata(&name) {
            let _ = fs::set_permissions(&self.path, old.permissions());
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
            let Some(stale) = fs::metadata(&old).ok().filter(|it| changed(it) < since) else {
                break;
            };
            if let Some(taken) = take(&old)? {
                // Another may have been quicker, and put another file there.
                match fs::metadata(&taken)?.ino() == stale.ino() {
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
        recorded(&link, "new").take_name(&link, false).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
    }
}
