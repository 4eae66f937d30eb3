//! What a process is called whose executable has several names: `redis-server` and
//! `redis-check-rdb` are one file, and the kernel tells but the last of the links that led to it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The name that the process has itself, as the kernel's name of it or its first argument, if a
/// file of that name beside its executable is the same one. A longer name that begins with it says
/// more: `python3.11` is not called `python3`.
pub(super) fn find(pid: i32, executable: &Path, command: &[u8]) -> Option<Vec<u8>> {
    let first = command.split(|byte| *byte == 0).next().unwrap_or_default();
    // Programs that write what they do into their arguments put it behind the name.
    let first = first.split(|byte| matches!(byte, b' ' | b':')).next()?;
    let name = super::name(pid, pid);
    let mut names = [&name[..], last(first)].into_iter();
    let known = executable.file_name()?;
    names.find_map(|name| another_name(pid, executable, known, name))
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

fn another_name(pid: i32, executable: &Path, known: &OsStr, name: &[u8]) -> Option<Vec<u8>> {
    if name.is_empty() || known.as_bytes().starts_with(name) {
        return None;
    }
    let beside = executable.with_file_name(OsStr::from_bytes(name));
    let beside = beside.strip_prefix("/").ok()?;
    let file = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino()))
    };
    let own = file(Path::new(&format!("/proc/{pid}/exe")))?;
    let root = format!("/proc/{pid}/root");
    (file(&Path::new(&root).join(beside)) == Some(own)).then(|| name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// What a process is called that is started by that path, with that first argument.
    fn called(path: &Path, first: &str) -> Option<String> {
        let mut child = Command::new(path).arg0(first).arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        // The last that exec does; we go on before that.
        let command = loop {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            if command.ends_with(b"\x0060\0") {
                break command;
            }
            std::thread::yield_now();
        };
        let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        let found = find(pid, &executable, &command);
        child.kill().unwrap();
        child.wait().unwrap();
        found.map(|name| String::from_utf8(name).unwrap())
    }

    #[test]
    fn one_file_of_several_names_is_called_as_it_was_started() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::copy("/bin/sleep", at("checks1.2")).unwrap();
        for name in ["serves", "checks1"] {
            symlink("checks1.2", at(name)).unwrap();
        }
        assert_eq!(called(&at("serves"), "what").as_deref(), Some("serves"));
        let path = at("serves");
        let first = format!("{} *:6379", path.display());
        assert_eq!(called(&at("checks1.2"), &first).as_deref(), Some("serves"));
        assert_eq!(called(&at("checks1.2"), "no-such-file"), None);
        assert_eq!(called(&at("checks1"), "checks1"), None);
    }
}
