//! The preload library: carried inside this program, and put where any program can load it.
//!
//! Its file is named by its content, so builds live side by side; a file that is there is compared
//! before it is used. It must outlive the recording: descendants of the program may start others
//! later, and their loader would complain about a file that is gone.
//!
//! Who may write to a directory on the way to it could put another library in its place, which
//! would then run with our rights: all of them must be ours or root's.

use super::error::Error;
use crate::preload_library::CONTENT;
use crate::processes::LIBRARY_NAME;
use crate::visible::{Shown, say};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file that a build of the library has.
fn file_name() -> String {
    format!("{LIBRARY_NAME}-{}.so", env!("RSUNWIND_PRELOAD_ID"))
}

/// Puts the library where it can stay, and gives its path.
///
/// # Errors
/// [`Error::Library`].
pub fn installed() -> Result<PathBuf, Error> {
    hand_out(None, |line| say(format_args!("{line}")))
}

/// Puts the library into the first directory that will do, and gives its path. `session` is the
/// last resort. `tell` is given a sentence for each that would do if it could be trusted.
///
/// # Errors
/// [`Error::Library`] with each directory and what is wrong with it.
pub fn hand_out(session: Option<&Path>, tell: impl Fn(&str)) -> Result<PathBuf, Error> {
    let user = geteuid();
    let mut tried = Vec::new();
    for directory in candidates(
        |name| std::env::var_os(name).map(PathBuf::from),
        user.is_root(),
        user.as_raw(),
        session,
    ) {
        let placed = if Some(&*directory) == session {
            place(&directory, CONTENT, false)
        } else {
            made_safely(&directory)
                .inspect_err(|error| {
                    if error.kind() == io::ErrorKind::PermissionDenied && error.get_ref().is_some()
                    {
                        let place = directory.shown();
                        tell(&format!(
                            "the preload library is not put into {place}: {error}"
                        ));
                    }
                })
                .and_then(|directory| place(&directory, CONTENT, user.is_root()))
        };
        match placed {
            Ok(path) => return Ok(path),
            Err(error) => tried.push(format!("{}: {error}", directory.shown())),
        }
    }
    Err(Error::Library {
        tried: tried.join("; "),
    })
}

/// Makes a directory, and those above it that are missing, if nobody else can put another in its
/// place. Gives its path without links.
///
/// # Errors
/// `PermissionDenied`, with the directory that somebody else may change, and as `mkdir`.
fn made_safely(directory: &Path) -> io::Result<PathBuf> {
    if fs::symlink_metadata(directory).is_ok_and(|metadata| metadata.is_symlink()) {
        return Err(io::Error::other("it is a link"));
    }
    let there = directory.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    let missing = directory.strip_prefix(there).unwrap_or(Path::new(""));
    let real = fs::canonicalize(there)?;
    for above in real.ancestors() {
        let metadata = fs::symlink_metadata(above)?;
        let why = if !is_trusted(&metadata) {
            format!("belongs to user {}", metadata.uid())
        } else if others_may_write(&metadata) {
            "can be written to by others".to_owned()
        } else {
            continue;
        };
        let refused = format!("{} {why}", above.shown());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused));
    }
    let made = if missing.as_os_str().is_empty() {
        real
    } else {
        real.join(missing)
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&made)?;
    Ok(made)
}

/// In a sticky directory nobody removes or renames what is another's.
fn others_may_write(metadata: &Metadata) -> bool {
    metadata.mode() & 0o022 != 0 && metadata.mode() & 0o1000 == 0
}

/// Where to try, best first. Root's own cache is no place: programs that give up root's rights must
/// reach the file.
fn candidates(
    variable: impl Fn(&str) -> Option<PathBuf>,
    root: bool,
    user: u32,
    session: Option<&Path>,
) -> Vec<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let mut places = Vec::new();
    places.extend(absolute("XDG_CACHE_HOME").map(|cache| cache.join("rsunwind")));
    if root {
        places.push("/var/cache/rsunwind".into());
    }
    places.extend(absolute("HOME").map(|home| home.join(".cache/rsunwind")));
    for shared in [
        absolute("TMPDIR"),
        Some("/var/tmp".into()),
        Some("/tmp".into()),
    ]
    .into_iter()
    .flatten()
    {
        places.push(shared.join(format!("rsunwind-{user}")));
    }
    places.extend(session.map(Path::to_owned));
    places
}

/// Makes sure that `directory` holds the library, readable by whoever must read it.
fn place(directory: &Path, content: &[u8], for_everybody: bool) -> io::Result<PathBuf> {
    let unusable = |why: &str| Err(io::Error::other(why.to_owned()));
    if directory
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :,$\n\t".contains(byte))
    {
        return unusable("the loader cannot be given a path with such characters");
    }
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir() || !is_trusted(&metadata) || others_may_write(&metadata) {
        return unusable("it is not a directory that belongs to you alone");
    }
    if statvfs(directory).is_ok_and(|system| system.flags().contains(FsFlags::ST_NOEXEC)) {
        return unusable("it is mounted noexec");
    }
    if for_everybody && !directory.ancestors().all(everybody_passes) {
        return unusable("other users cannot reach it");
    }
    let path = directory.join(file_name());
    if !is_intact(&path, content) {
        write(directory, &path, content)?;
    }
    Ok(path)
}

fn everybody_passes(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.mode() & 0o001 != 0)
}

fn is_trusted(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() || metadata.uid() == 0
}

/// Whether the file is there, is nobody else's, can be read by all and says what it should.
fn is_intact(path: &Path, content: &[u8]) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return false;
    };
    let mode_is_right = metadata.mode() & 0o022 == 0 && metadata.mode() & 0o444 == 0o444;
    if !metadata.is_file()
        || !is_trusted(&metadata)
        || !mode_is_right
        || metadata.len() != content.len() as u64
    {
        return false;
    }
    let mut found = Vec::with_capacity(content.len());
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut found))
        .is_ok()
        && found == content
}

/// Writes the file under another name first, so that nobody ever loads half of it.
fn write(directory: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut draft = tempfile::Builder::new()
        .prefix(".librsunwind_preload.")
        .tempfile_in(directory)?;
    draft.write_all(content)?;
    draft
        .as_file()
        .set_permissions(Permissions::from_mode(0o755))?;
    draft.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_writable_or_missing_file_is_replaced_and_an_intact_one_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = place(directory.path(), b"content", false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(place(directory.path(), b"content", false).unwrap(), path);
        assert_eq!(
            fs::metadata(&path).unwrap().ino(),
            inode,
            "an intact file is used as it is"
        );

        fs::write(&path, b"c0ntent").unwrap();
        place(directory.path(), b"content", false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        place(directory.path(), b"content", false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "no draft is left"
        );
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a b", "a:b", "$ORIGIN", "a,b"] {
            fs::create_dir(directory.path().join(name)).unwrap();
            assert!(
                place(&directory.path().join(name), b"x", false).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_place_that_others_cannot_reach_is_no_place_for_roots_programs() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(place(directory.path(), b"x", true).is_err());
        assert!(place(directory.path(), b"x", false).is_ok());
    }

    #[test]
    fn a_place_below_another_users_directory_is_refused_and_nothing_is_made_there() {
        let directory = tempfile::tempdir().unwrap();
        let (theirs, shared) = (
            directory.path().join("theirs"),
            directory.path().join("shared"),
        );
        for path in [&theirs, &shared] {
            fs::create_dir_all(path.join("mine")).unwrap();
        }
        std::os::unix::fs::chown(&theirs, Some(65_534), None)
            .expect("this test gives a directory away, and must run as root");
        fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(theirs.join("mine"), directory.path().join("link")).unwrap();
        for (place, named) in [
            (theirs.join("rsunwind"), &theirs),
            (theirs.join("mine/a/rsunwind"), &theirs),
            (directory.path().join("link/rsunwind"), &theirs),
            (shared.join("mine/rsunwind"), &shared),
        ] {
            let error = made_safely(&place).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{place:?}");
            assert!(
                error.to_string().contains(named.to_str().unwrap()),
                "{error}"
            );
            assert!(!place.exists());
        }
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        let made = made_safely(&shared.join("mine/a/rsunwind")).unwrap();
        assert!(
            made.is_dir(),
            "nobody renames what is ours in a sticky directory"
        );
    }

    #[test]
    fn the_cache_comes_first_and_the_session_last() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/u"));
        let places = candidates(home, false, 7, Some(Path::new("/s")));
        assert_eq!(
            places.first(),
            Some(&PathBuf::from("/home/u/.cache/rsunwind"))
        );
        assert_eq!(places.last(), Some(&PathBuf::from("/s")));
        let cache = |name: &str| (name == "XDG_CACHE_HOME").then(|| PathBuf::from("/c"));
        assert_eq!(
            candidates(cache, true, 0, None)[..2],
            [PathBuf::from("/c/rsunwind"), "/var/cache/rsunwind".into()]
        );
        let relative = |_: &str| Some(PathBuf::from("c"));
        assert_eq!(
            candidates(relative, false, 7, None).first(),
            Some(&PathBuf::from("/var/tmp/rsunwind-7"))
        );
    }
}
