//! Which recording is meant where none is named: the newest of this directory. If it is what a
//! killed rsunwind has left, the rest of it, in the session's memory, belongs to it.

use super::abandoned::{abandoned, recording_of};
use super::place::old_name;
use crate::visible::{Shown, say};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// There is no recording to be taken.
#[derive(Debug, thiserror::Error)]
#[error("{}: name one, or make one with rsunwind record -- COMMAND", match .0 {
    0 => "there is no recording (*.rsu) in this directory",
    _ => "there is no second recording (*.rsu) in this directory to compare with",
})]
pub struct NoneHere(usize);

/// The files that were named, or else the newest recording, which is said; of a name that is not
/// there what a killed rsunwind has left of it.
///
/// # Errors
/// [`NoneHere`].
pub(crate) fn or_newest(files: &[PathBuf]) -> Result<Vec<PathBuf>, NoneHere> {
    match files {
        [] => Ok(vec![newest_but(&[])?]),
        files => Ok(files.iter().map(|file| found(file)).collect()),
    }
}

/// A file that was named; if there is none, what was to become it when rsunwind was killed.
pub(crate) fn found(file: &Path) -> PathBuf {
    let left = || left_of(file).map(whole);
    match file.exists() {
        true => file.to_owned(),
        false => left().unwrap_or_else(|| file.to_owned()),
    }
}

/// Letters that a temporary name has before its end.
const RANDOM: usize = 6;

/// The newest file beside it whose name is the temporary one of a recording that is called so.
fn left_of(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?;
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    let found = by_age(directory.unwrap_or(Path::new(".")));
    found.into_iter().find(|path| {
        let of_path = path.file_name().and_then(|it| it.to_str());
        let middle = of_path.and_then(|it| it.strip_prefix(name)?.strip_suffix(".rsu"));
        middle.is_some_and(|middle| middle.len() == 1 + RANDOM && middle.starts_with('.'))
    })
}

/// The newest recording that is none of these, which is said.
///
/// # Errors
/// [`NoneHere`].
pub(crate) fn newest_but(others: &[&Path]) -> Result<PathBuf, NoneHere> {
    let others: Vec<_> = others
        .iter()
        .filter_map(|it| it.canonicalize().ok())
        .collect();
    let is_other = |path: &Path| path.canonicalize().is_ok_and(|it| others.contains(&it));
    let found = by_age(Path::new("."));
    let newest = found.into_iter().find(|path| !is_other(path));
    let newest = newest.ok_or(NoneHere(others.len()))?;
    Ok(whole(newest))
}

/// The newest recording, after the one before it: the older one that was kept when it was made, or
/// else the second newest. Both are said.
///
/// # Errors
/// [`NoneHere`].
pub(crate) fn two_newest() -> Result<[PathBuf; 2], NoneHere> {
    let all = by_age(Path::new("."));
    let newest = all.first().ok_or(NoneHere(0))?;
    let kept = Some(old_name(newest, 1)).filter(|old| old.is_file());
    let before = kept.or_else(|| all.get(1).cloned());
    let before = before.ok_or(NoneHere(1))?;
    Ok([whole(before), whole(newest.clone())])
}

/// Recordings that are not being written, the newest first.
fn by_age(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = files.map(|entry| match directory == Path::new(".") {
        true => entry.file_name().into(),
        false => entry.path(),
    });
    let mut found: Vec<(SystemTime, PathBuf)> = paths
        .filter(|path: &PathBuf| path.extension().is_some_and(|end| end == "rsu"))
        .filter_map(|path| {
            let file = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            (file.len() > 0 && !is_written(&path)).then(|| Some((file.modified().ok()?, path)))?
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

fn is_written(path: &Path) -> bool {
    let lock = File::open(path).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

/// A recording, or the session that it is a part of.
fn whole(recording: PathBuf) -> PathBuf {
    let own = recording.canonicalize().ok();
    let mut sessions = abandoned().into_iter();
    let session = sessions.find(|session| own.is_some() && recording_of(session) == own);
    match session {
        Some(session) => {
            say(format_args!(
                "reading {}, whose recording was killed, with what was left of it in {}",
                recording.shown(),
                session.shown()
            ));
            session
        }
        None => {
            say(format_args!("reading {}", recording.shown()));
            recording
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_being_written_is_passed_over_and_the_newest_is_first() {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let make = |name: &str, age: u64, content: &str| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
            (path, file)
        };
        let (old, _) = make("b.rsu", 30, "x");
        let (new, _) = make("a.rsu", 20, "x");
        let (_, written) = make("c.rsu", 10, "x");
        make("d.rsu", 5, "");
        make("e.svg", 1, "x");
        written.try_lock().unwrap();
        assert_eq!(by_age(directory.path()), [new.clone(), old]);
        let (left, _) = make("lost.rsu.AbCdEf.rsu", 40, "x");
        let named = |name: &str| found(&directory.path().join(name));
        assert_eq!(named("lost.rsu"), left);
        assert_eq!(named("a.rsu"), new);
        let nothing = directory.path().join("lost");
        assert_eq!(found(&nothing), nothing);
    }
}
