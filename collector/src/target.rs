//! Processes that run already and that a user means by `-p`: by number or by name; and why one of
//! them cannot be looked at, in a sentence with the remedy.
//!
//! Not here: what is done with them (`record/attach.rs`), and what `/proc` says of a process
//! ([`crate::processes`]).

use crate::processes::{self, Stat};
use nix::unistd::{Pid, getuid};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A process that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its number.
    pub pid: Pid,
    /// Its name, as the kernel keeps it.
    pub name: String,
    /// When it began, which tells it from others that get its number later.
    start_ticks: Option<u64>,
}

impl Target {
    /// Whether any thread of it runs on: the first may have ended before the others.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let pid = self.pid.as_raw();
        let stat = Stat::read(pid.cast_unsigned());
        stat.is_some_and(|stat| {
            stat.start_ticks() == self.start_ticks
                && (!stat.has_ended() || processes::threads(pid).len() > 1)
        })
    }

    /// Whether another process has its number by now.
    #[must_use]
    pub fn is_another(&self) -> bool {
        let stat = Stat::read(self.pid.as_raw().cast_unsigned());
        stat.is_some_and(|stat| stat.start_ticks() != self.start_ticks)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.pid)
    }
}

/// Why there is nothing to look at.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An empty list, or an empty word in it.
    #[error("-p takes numbers or names of processes, with commas between them: -p 4711,nginx")]
    Nothing,
    /// An empty name.
    #[error("the name of a process is empty: give its number, or its name")]
    Nameless,
    /// No such number.
    #[error("no process has the number {0}: ps -e lists those that run")]
    NoProcess(i32),
    /// No such name.
    #[error("no process is called {0}: ps -e lists those that run")]
    NoName(String),
    /// A zombie.
    #[error("process {0} has ended already, and its parent has not asked for its status yet")]
    Ended(Target),
    /// It has no user mode.
    #[error("{0} is a kernel thread, which runs no program")]
    KernelThread(Target),
    /// A thread that is not its process's first.
    #[error("{tid} is a thread of process {of}, and processes are looked at whole: give {}", of.pid)]
    Thread {
        /// The number that was given.
        tid: i32,
        /// Whose it is.
        of: Target,
    },
    /// The caller.
    #[error("{0} is this rsunwind itself")]
    Own(Target),
    /// We may not look at it.
    #[error("{target} may not be looked at: {why}")]
    Closed {
        /// Which.
        target: Target,
        /// Why, and what helps.
        why: String,
    },
}

/// The processes of a list of numbers and names; each once, in the order of their numbers.
///
/// # Errors
/// Any [`Error`] for a number; for a name if no process that runs has it, or one of those that do
/// may not be looked at.
pub fn find(list: &str) -> Result<Vec<Target>, Error> {
    let mut pids = BTreeSet::new();
    for word in list.split(',').map(str::trim) {
        match word.parse() {
            Ok(pid) => drop(pids.insert(pid)),
            Err(_) if word.is_empty() => return Err(Error::Nothing),
            Err(_) => pids.extend(called(word)?),
        }
    }
    pids.into_iter().map(look_at).collect()
}

/// The process of that number, in whatever state it is; or those of that name, by number.
///
/// # Errors
/// If there is none; or if it is a thread of another one.
pub fn find_any(word: &str) -> Result<Vec<i32>, Error> {
    let Ok(pid) = word.parse() else {
        let mut pids = called(word)?;
        pids.sort_unstable();
        return Ok(pids);
    };
    match processes::group(pid) {
        None => Err(Error::NoProcess(pid)),
        Some(group) if group == pid => Ok(vec![pid]),
        Some(group) => {
            let of = target(group).ok_or(Error::NoProcess(pid))?;
            Err(Error::Thread { tid: pid, of })
        }
    }
}

/// What there is to say of one number.
fn look_at(pid: i32) -> Result<Target, Error> {
    let target = target(pid).ok_or(Error::NoProcess(pid))?;
    if pid == std::process::id().cast_signed() {
        return Err(Error::Own(target));
    }
    let group = processes::group(pid).ok_or(Error::NoProcess(pid))?;
    if group != pid {
        let of = self::target(group).ok_or(Error::NoProcess(pid))?;
        return Err(Error::Thread { tid: pid, of });
    }
    let stat = Stat::read(pid.cast_unsigned()).ok_or(Error::NoProcess(pid))?;
    if stat.is_kernel_thread() {
        return Err(Error::KernelThread(target));
    }
    if stat.has_ended() && processes::threads(pid).len() < 2 {
        return Err(Error::Ended(target));
    }
    match why_closed(pid) {
        Some(why) => Err(Error::Closed { target, why }),
        None => Ok(target),
    }
}

fn target(pid: i32) -> Option<Target> {
    // First: of whatever is read later it can be asked whether it was of the same process.
    let start_ticks = Stat::read(u32::try_from(pid).ok()?)?.start_ticks();
    let name = processes::name(pid, pid);
    (pid > 0 && !name.is_empty()).then(|| Target {
        pid: Pid::from_raw(pid),
        name: String::from_utf8_lossy(&name).escape_debug().to_string(),
        start_ticks,
    })
}

/// The processes that run under a name: the kernel's, or that of the file or the first argument.
fn called(name: &str) -> Result<Vec<i32>, Error> {
    if name.is_empty() {
        return Err(Error::Nameless);
    }
    let own = std::process::id().cast_signed();
    let found: Vec<i32> = processes::all()
        .filter(|pid| *pid != own && is_called(*pid, name.as_bytes()) && may_be_meant(*pid))
        .collect();
    match found.is_empty() {
        true => Err(Error::NoName(name.escape_debug().to_string())),
        false => Ok(found),
    }
}

fn is_called(pid: i32, name: &[u8]) -> bool {
    let is_it = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(name);
    let file = fs::read_link(format!("/proc/{pid}/exe"));
    let arguments = processes::command(pid);
    let first = arguments.split(|byte| *byte == 0).next();
    // The kernel cuts a long name, and a program may call itself what it likes.
    processes::name(pid, pid) == name
        || file.is_ok_and(|path| is_it(path.as_os_str().as_bytes()))
        || first.is_some_and(is_it)
}

fn may_be_meant(pid: i32) -> bool {
    let stat = Stat::read(pid.cast_unsigned());
    stat.is_some_and(|stat| !stat.is_kernel_thread() && !stat.has_ended())
}

/// Why a process may not be looked at, and what would help; `None` if it may.
#[must_use]
pub fn why_closed(pid: i32) -> Option<String> {
    let there = format!("/proc/{pid}");
    let denied = |file: &str| {
        let opened = fs::File::open(Path::new(&there).join(file));
        opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    if !denied("maps") {
        return None;
    }
    let user = processes::user(pid);
    Some(match user.filter(|user| *user != getuid().as_raw()) {
        Some(user) => format!("it belongs to user {user}: run rsunwind as that user, or as root"),
        None if getuid().is_root() => {
            "it has rights that you have not here, as processes outside of a container have"
                .to_owned()
        }
        None => {
            "it has rights that you have not, or has made itself undumpable: run rsunwind as root"
                .to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn processes_are_found_by_number_and_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("a-name-longer-than-the-kernel-keeps");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("100").spawn().unwrap();
        let pid = child.id().cast_signed();
        let found = [
            find(&pid.to_string()),
            find("a-name-longer-than-the-kernel-keeps"),
            find(&format!("a-name-longer-t, {pid}")),
        ];
        child.kill().unwrap();
        for found in found {
            let found = found.unwrap();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].to_string(), format!("a-name-longer-t ({pid})"));
        }
        // It has ended, and nobody has waited for it.
        while !Stat::read(pid.cast_unsigned()).unwrap().has_ended() {
            std::thread::yield_now();
        }
        assert!(matches!(find(&pid.to_string()), Err(Error::Ended(_))));
        assert!(matches!(find("a-name-longer-t"), Err(Error::NoName(_))));
        child.wait().unwrap();
        assert_eq!(find(&pid.to_string()), Err(Error::NoProcess(pid)));
    }

    #[test]
    fn another_process_with_the_number_is_told_from_the_one_that_was_meant() {
        let mut child = Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let target = find(&child.id().to_string()).unwrap().remove(0);
        let later = Target {
            start_ticks: target.start_ticks.map(|ticks| ticks + 1),
            ..target.clone()
        };
        let there = [&target, &later].map(|target| (target.goes_on(), target.is_another()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(there, [(true, false), (false, true)]);
        assert!(!target.goes_on() && !target.is_another());
    }

    #[test]
    fn what_is_no_process_to_look_at_is_said() {
        let own = std::process::id().cast_signed();
        assert!(matches!(find(&own.to_string()), Err(Error::Own(_))));
        let tid = nix::unistd::gettid().as_raw();
        let thread = find(&tid.to_string());
        assert!(
            tid == own
                || matches!(&thread, Err(Error::Thread { of, .. }) if of.pid.as_raw() == own),
            "{thread:?}"
        );
        for (list, part) in [
            ("", "4711"),
            ("1,,2", "4711"),
            ("999999999", "999999999"),
            ("-5", "-5"),
            ("no/such\u{1b}name", "no/such\\u{1b}name"),
        ] {
            let error = find(list).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
