//! Starts the program as a plain exec would: same descriptors, directory, signals, group and
//! terminal, its environment in the same order, with the two variables of ours added.
//!
//! Not here: finding the file ([`super::executable`]) and waiting for the program
//! ([`super::watch`]).
//!
//! # Safety
//! `fork`: rsunwind has one thread at this point, and the child calls nothing but system calls on
//! what was prepared before.
#![allow(unsafe_code)]

use super::error::Error;
use super::executable::Executable;
use super::inherited;
use super::signals::Inherited;
use crate::jit_options::Variable;
use crate::processes::LIBRARY_NAME;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::{ForkResult, Pid, execve, fork, pipe2, read, write};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Everything that exec needs, made before the fork.
struct Image {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// The shell and its arguments, for a script without a first line that names an interpreter:
    /// what execvp does.
    shell: CString,
    shell_arguments: Vec<CString>,
}

/// Starts `executable`, and gives its pid once it runs. The new process waits for `before_exec`
/// before it becomes the program.
///
/// # Errors
/// [`Error::NotExecutable`], [`Error::NotFound`] (the interpreter), or [`Error::Launch`]; then
/// nothing runs.
pub fn launch(
    executable: &Executable,
    environment: Vec<OsString>,
    signals: &Inherited,
    before_exec: impl FnOnce(Pid),
) -> Result<Pid, Error> {
    let image = Image::new(executable, environment).map_err(|source| Error::Launch {
        what: "the program's arguments",
        source,
    })?;
    let failed = |what| move |errno| Error::launch(what, errno);
    let (report, reporter) = pipe2(OFlag::O_CLOEXEC).map_err(failed("a pipe could not be made"))?;
    let (gate, opener) = pipe2(OFlag::O_CLOEXEC).map_err(failed("a pipe could not be made"))?;
    // SAFETY: see the top of the file.
    match unsafe { fork() }.map_err(failed("no process could be made"))? {
        ForkResult::Child => {
            drop(opener);
            wait_at(&gate);
            let errno = image.become_it(signals);
            let _ = write(&reporter, &(errno as i32).to_ne_bytes());
            // SAFETY: ends the child without running anything of ours.
            unsafe { libc::_exit(127) }
        }
        ForkResult::Parent { child } => {
            drop(reporter);
            before_exec(child);
            drop(opener);
            match refusal(&report) {
                None => Ok(child),
                Some(errno) => {
                    let _ = nix::sys::wait::waitpid(child, None);
                    Err(executable.explain(errno))
                }
            }
        }
    }
}

impl Image {
    fn new(executable: &Executable, environment: Vec<OsString>) -> io::Result<Self> {
        let path = CString::new(executable.path.as_os_str().as_bytes())?;
        let arguments: Vec<CString> = executable
            .arguments
            .iter()
            .map(|argument| CString::new(argument.as_bytes()))
            .collect::<Result<_, _>>()?;
        let shell = c"/bin/sh".to_owned();
        let shell_arguments = [shell.clone(), path.clone()]
            .into_iter()
            .chain(arguments.iter().skip(1).cloned())
            .collect();
        let environment = environment
            .into_iter()
            .map(|entry| CString::new(entry.into_vec()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            path,
            arguments,
            environment,
            shell,
            shell_arguments,
        })
    }

    /// Replaces the calling process; gives back why it could not.
    fn become_it(&self, signals: &Inherited) -> Errno {
        if let Err(errno) = signals.restore() {
            return errno;
        }
        for descriptor in inherited::closed_descriptors() {
            // SAFETY: it was closed when rsunwind started; what is there now is the runtime's
            // /dev/null.
            unsafe { libc::close(descriptor) };
        }
        match execve(&self.path, &self.arguments, &self.environment) {
            Err(Errno::ENOEXEC) => execve(&self.shell, &self.shell_arguments, &self.environment),
            other => other,
        }
        .err()
        .unwrap_or(Errno::ENOEXEC)
    }
}

/// Waits until the other end is closed, by whatever.
fn wait_at(gate: &OwnedFd) {
    while read(gate, &mut [0]) == Err(Errno::EINTR) {}
}

/// What the child says before it ends; nothing if exec closed its end.
fn refusal(report: &OwnedFd) -> Option<Errno> {
    let mut bytes = [0; 4];
    loop {
        match read(report, &mut bytes) {
            Err(Errno::EINTR) => {}
            Ok(4) => return Some(Errno::from_raw(i32::from_ne_bytes(bytes))),
            _ => return None,
        }
    }
}

/// This process's environment with `LD_PRELOAD` (ours first, then the user's, in order) and
/// `RSUNWIND`, and with `options`. Variables keep their places.
#[must_use]
pub fn environment(
    library: Option<&Path>,
    settings: &OsStr,
    options: &[Variable],
) -> Vec<OsString> {
    compose(std::env::vars_os(), library, settings, options)
}

fn compose(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    library: Option<&Path>,
    settings: &OsStr,
    options: &[Variable],
) -> Vec<OsString> {
    let mut entries = Vec::new();
    let ours = library.map(|library| {
        [
            ("LD_PRELOAD", library.as_os_str(), With::Preload),
            ("RSUNWIND", settings, With::Ours),
        ]
    });
    let options = options.iter().map(|one| {
        let with = match one.is_list {
            true => With::OursFirst,
            false => With::Theirs,
        };
        (one.name, OsStr::new(&one.value), with)
    });
    let mut wanted: Vec<_> = ours.into_iter().flatten().chain(options).collect();
    for (name, value) in own {
        let place = wanted.iter().position(|(ours, ..)| name == *ours);
        entries.push(match place.map(|place| wanted.remove(place)) {
            Some((_, library, With::Preload)) => entry(&name, &preload(library, &value)),
            Some((_, settings, With::Ours)) => entry(&name, settings),
            Some((_, options, With::OursFirst)) => {
                entry(&name, &[options, &value].join(OsStr::new(" ")))
            }
            Some((.., With::Theirs)) | None => entry(&name, &value),
        });
    }
    let rest = wanted.into_iter();
    entries.extend(rest.map(|(name, value, _)| entry(OsStr::new(name), value)));
    entries
}

/// What becomes of a variable that is there already.
enum With {
    Preload,
    Ours,
    OursFirst,
    Theirs,
}

fn entry(name: &OsStr, value: &OsStr) -> OsString {
    [name, value].join(OsStr::new("="))
}

/// Ours in front of the user's, and no other build of it.
fn preload(library: &OsStr, users: &OsStr) -> OsString {
    let others = users
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|path| !path.is_empty());
    let others = others.map(OsStr::from_bytes).filter(|path| !is_ours(path));
    std::iter::once(library)
        .chain(others)
        .collect::<Vec<_>>()
        .join(OsStr::new(":"))
}

fn is_ours(path: &OsStr) -> bool {
    Path::new(path)
        .file_name()
        .is_some_and(|name| name.as_bytes().starts_with(LIBRARY_NAME.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        text.iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    #[test]
    fn the_users_preload_is_kept_in_order_behind_ours() {
        let own = pairs(&[("B", "2"), ("LD_PRELOAD", "/x.so:/y.so /z.so"), ("A", "1")]);
        let entries = compose(own, Some(Path::new("/ours.so")), OsStr::new("rate=9"), &[]);
        assert_eq!(
            entries,
            [
                "B=2",
                "LD_PRELOAD=/ours.so:/x.so:/y.so:/z.so",
                "A=1",
                "RSUNWIND=rate=9"
            ]
        );
    }

    #[test]
    fn a_recording_inside_a_recording_loads_the_library_once() {
        let own = pairs(&[
            ("RSUNWIND", "rate=1"),
            ("LD_PRELOAD", "/c/librsunwind_preload-1.so:/x.so"),
        ]);
        let entries = compose(own, Some(Path::new("/ours.so")), OsStr::new("rate=9"), &[]);
        assert_eq!(entries, ["RSUNWIND=rate=9", "LD_PRELOAD=/ours.so:/x.so"]);
    }

    #[test]
    fn options_of_the_program_count_more_than_ours() {
        let own = pairs(&[("LIST", "-own"), ("VALUE", "0")]);
        let options = [("LIST", true), ("VALUE", false), ("NEW", false)];
        let options = options.map(|(name, is_list)| Variable {
            name,
            value: "1".to_owned(),
            is_list,
        });
        let entries = compose(own, None, OsStr::new(""), &options);
        assert_eq!(entries, ["LIST=1 -own", "VALUE=0", "NEW=1"]);
    }

    #[test]
    fn without_a_library_the_environment_stays() {
        let own = pairs(&[("LD_PRELOAD", "/x.so"), ("E", "")]);
        assert_eq!(
            compose(own, None, OsStr::new("rate=9"), &[]),
            ["LD_PRELOAD=/x.so", "E="]
        );
    }
}
