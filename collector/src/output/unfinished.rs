//! Files under temporary names, which are taken away again unless they are finished: also when a
//! signal ends the process ([`remove`]).

use crate::temporary;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempPath;

static ALL: Mutex<Vec<TempPath>> = Mutex::new(Vec::new());

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) file: File,
    path: PathBuf,
}

impl Unfinished {
    /// A new file in that directory, with the permissions that the umask leaves.
    pub(super) fn in_directory(directory: &Path) -> io::Result<Self> {
        let mut all = all();
        let made = temporary::make(directory, ".rsunwind-".as_ref(), "")?;
        let (file, path) = made.into_parts();
        all.push(path);
        let path = all[all.len() - 1].to_path_buf();
        Ok(Self { file, path })
    }

    /// Gives it its name, in the place of an older one.
    pub(super) fn finish(self, name: &Path) -> io::Result<()> {
        let mut all = all();
        let path = take(&mut all, &self.path).ok_or(io::ErrorKind::Interrupted)?;
        path.persist(name).map_err(|failed| failed.error)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        drop(take(&mut all(), &self.path));
    }
}

/// Takes away all that there are. There are no new ones while what this gives is held.
pub(crate) fn remove() -> impl Drop {
    let mut all = all();
    all.clear();
    all
}

fn all() -> MutexGuard<'static, Vec<TempPath>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(all: &mut Vec<TempPath>, path: &Path) -> Option<TempPath> {
    let place = all.iter().position(|one| **one == *path)?;
    Some(all.swap_remove(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finished_goes_away() {
        let directory = tempfile::tempdir().unwrap();
        let count = || std::fs::read_dir(directory.path()).unwrap().count();
        let begin = || Unfinished::in_directory(directory.path()).unwrap();
        let name = directory.path().join("name");
        let (first, second, _third) = (begin(), begin(), begin());
        assert_eq!(count(), 3);
        drop(first);
        second.finish(&name).unwrap();
        assert_eq!(count(), 2);
        drop(remove());
        assert!(name.exists() && count() == 1);
        let fourth = begin();
        drop(remove());
        assert!(fourth.finish(&name).is_err());
    }
}
