//! Processes seen from outside: what `/proc` says of one and its threads: code mapped before its
//! events were opened, CPU time, names.
//!
//! Whatever cannot be read (the process is gone, or another user's) is left out.

mod called;
mod cgroup;
mod started_with;

pub(crate) use started_with::{command, environment, environment_after_exec, setting};

use crate::clock;
use engine::wire::session::CONTROL_FILE;
use nix::unistd::{SysconfVar, sysconf};
use std::collections::BTreeSet;
use std::fs;

/// How files of the preload library are named, before the build's id.
pub(crate) const LIBRARY_NAME: &str = "librsunwind_preload";
/// A program that has used this much CPU time without having loaded the preload library does not
/// load it, ns.
pub(crate) const LOADER_NS: u64 = 30_000_000;
/// Files that are mapped before the loader maps the first library: the program's and its own.
const BEFORE_LIBRARIES: usize = 2;

/// What a file is, among those that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    /// Major and minor number.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
}

/// Code that was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    pub(crate) file: FileId,
    pub(crate) path: Vec<u8>,
}

/// Code mapped into a process.
pub(crate) fn mappings(pid: i32) -> Vec<Mapping> {
    fs::read_to_string(format!("/proc/{pid}/maps")).map_or_else(|_| Vec::new(), |text| parse(&text))
}

/// Lines `START-END rwxp OFFSET DEVICE INODE   PATH`.
pub(crate) fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let executable = words.next()?.contains('x');
    let offset = words.next()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode = words.next()?.parse().ok()?;
    let path = words.next()?.trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let of_device = |text| u32::from_str_radix(text, 16).ok();
    let start = number(start)?;
    (executable && !path.is_empty()).then_some(Mapping {
        start,
        length: number(end)?.checked_sub(start)?,
        offset: number(offset)?,
        file: FileId {
            device: (of_device(major)?, of_device(minor)?),
            inode,
        },
        path: path.as_bytes().to_owned(),
    })
}

/// CPU time of a thread, ns.
pub(crate) fn cpu_ns(pid: i32, tid: i32) -> Option<u64> {
    Some(scheduled_ns(pid, tid)?[0])
}

/// For how long a thread was ready to run and had no processor, ns.
pub(crate) fn ready_ns(pid: i32, tid: i32) -> Option<u64> {
    Some(scheduled_ns(pid, tid)?[1])
}

fn scheduled_ns(pid: i32, tid: i32) -> Option<[u64; 2]> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut words = text.split_ascii_whitespace().map(str::parse);
    Some([words.next()?.ok()?, words.next()?.ok()?])
}

/// Whether `/proc` has the processes of our PID namespace: `unshare --pid` alone leaves the old.
pub(crate) fn proc_is_ours() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// All processes, in no order.
pub(crate) fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Threads of a process.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries.into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The number of a thread in the PID namespace that it lives in, if that is not ours.
pub(crate) fn inner_number(pid: i32, tid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let mut numbers = status_words(&status, "NSpid:");
    numbers.next()?;
    numbers.next_back()?.parse().ok()
}

/// The process that a thread belongs to; none if there is no such thread.
pub(crate) fn group(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status_words(&status, "Tgid:").next()?.parse().ok()
}

/// The real user of a process.
pub(crate) fn user(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status_words(&status, "Uid:").next()?.parse().ok()
}

/// The words of a line of `status`; none if there is no such line.
fn status_words<'a>(status: &'a str, name: &str) -> std::str::SplitAsciiWhitespace<'a> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().split_ascii_whitespace()
}

/// Whether a process has other rights than who started it, and than we, in a way that even its file
/// is hidden from us.
pub(crate) fn has_rights_of_its_own(pid: i32) -> bool {
    let hidden = fs::metadata(format!("/proc/{pid}/exe"));
    let hidden = hidden.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let words = |name: &'static str| status_words(&status, name);
    // Real and effective; zeros where there are no rights.
    let differ = |name| words(name).next() != words(name).nth(1);
    let granted = words("CapPrm:").any(|mask| mask.contains(|digit| digit != '0'));
    hidden && (differ("Uid:") || differ("Gid:") || granted)
}

/// A thread's name.
pub(crate) fn name(pid: i32, tid: i32) -> Vec<u8> {
    let mut name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}

/// A process that runs, as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) threads: Vec<FoundThread>,
    pub(crate) identity: Identity,
}

/// A thread of it.
#[derive(Debug)]
pub(crate) struct FoundThread {
    pub(crate) tid: i32,
    /// CPU time that it has used, ns.
    pub(crate) cpu_ns: u64,
    /// Whether it runs, or would if it had a processor.
    pub(crate) runs: bool,
    pub(crate) name: Vec<u8>,
}

/// Looks at a process, and at those of its threads.
pub(crate) fn find(pid: i32, tids: &[i32]) -> Found {
    let thread = |tid: &i32| FoundThread {
        tid: *tid,
        cpu_ns: cpu_ns(pid, *tid).unwrap_or(0),
        runs: Stat::read(tid.cast_unsigned()).is_some_and(|stat| stat.is_running()),
        name: name(pid, *tid),
    };
    Found {
        threads: tids.iter().map(thread).collect(),
        mappings: mappings(pid),
        identity: identity(pid),
    }
}

/// Whether code is mapped from the preload library.
pub(crate) fn is_library(mapping: &Mapping) -> bool {
    let file = mapping.path.rsplit(|byte| *byte == b'/').next();
    file.is_some_and(|name| name.starts_with(LIBRARY_NAME.as_bytes()))
}

/// Whether a program will not load the preload library any more, which is the first that the loader
/// maps: it has others already, or has used enough CPU time for it. However long it takes by the
/// clock, one that had no processor may load it yet.
pub(crate) fn goes_without_library(mappings: &[Mapping], used_ns: u64) -> bool {
    let files = mappings.iter().map(|mapping| &mapping.path);
    let files: BTreeSet<_> = files.filter(|path| path.starts_with(b"/")).collect();
    let begun = files.len() > BEFORE_LIBRARIES || used_ns > LOADER_NS;
    begun && !mappings.is_empty() && !mappings.iter().any(is_library)
}

/// Whether a process has joined a session and has no place for its samples.
pub(crate) fn has_session_only(pid: i32) -> bool {
    joined(pid) == (true, false)
}

/// Whether a process has joined a session, and has a place for its samples.
pub(crate) fn writes_samples(pid: i32) -> bool {
    joined(pid) == (true, true)
}

fn joined(pid: i32) -> (bool, bool) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let any = |end: &str| maps.lines().any(|line| line.ends_with(end));
    (any(&format!("/{CONTROL_FILE}")), any(".seg"))
}

/// Identity of a process, as far as it is still there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// Arguments, each ended by a zero byte.
    pub(crate) command: Vec<u8>,
    /// The executable.
    pub(crate) executable: Vec<u8>,
    /// Field 4 of `stat`.
    pub(crate) parent: u32,
    /// Field 22 of `stat`.
    pub(crate) start_ticks: u64,
    /// `NSpid` of `status`.
    pub(crate) ns_pids: Vec<u8>,
    /// What it is called, if that is another name of the executable's file.
    pub(crate) called: Vec<u8>,
    /// The path of its cgroup.
    pub(crate) cgroup: Vec<u8>,
    /// The name of its container, if it runs in one.
    pub(crate) container: Vec<u8>,
}

/// When a process began (`CLOCK_MONOTONIC`, ns), to the tick before; none if there is no such one.
pub(crate) fn born_ns(pid: i32) -> Option<u64> {
    let ticks = Stat::read(u32::try_from(pid).ok()?)?.start_ticks()?;
    let asleep_ns = clock::boottime_ns().saturating_sub(clock::monotonic_ns());
    Some(ticks.saturating_mul(tick_ns()?).saturating_sub(asleep_ns))
}

/// The unit of times in `/proc/PID/stat`.
fn tick_ns() -> Option<u64> {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten()?;
    1_000_000_000u64.checked_div(per_second.unsigned_abs())
}

/// The line `/proc/PID/stat`, whose fields are numbered as in `proc(5)`.
pub(crate) struct Stat(String);

impl Stat {
    /// Reads it; none if there is no such process.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::at(&format!("/proc/{pid}/stat"))
    }

    /// Reads that of a thread.
    pub(crate) fn of_thread(pid: u32, tid: u32) -> Option<Self> {
        Self::at(&format!("/proc/{pid}/task/{tid}/stat"))
    }

    fn at(path: &str) -> Option<Self> {
        let line = fs::read(path).ok()?;
        Some(Self(String::from_utf8_lossy(&line).into_owned()))
    }

    /// A field behind the name, from the third one on.
    fn field(&self, number: usize) -> Option<&str> {
        // The name may hold anything, but the last parenthesis ends it.
        let (_, fields) = self.0.rsplit_once(')')?;
        fields.split_ascii_whitespace().nth(number - 3)
    }

    pub(crate) fn parent(&self) -> Option<u32> {
        self.field(4)?.parse().ok()
    }

    /// When it started, in ticks since boot.
    pub(crate) fn start_ticks(&self) -> Option<u64> {
        self.field(22)?.parse().ok()
    }

    /// One letter: R, S, D, T …
    pub(crate) fn state(&self) -> char {
        let letter = self.field(3).and_then(|word| word.chars().next());
        letter.unwrap_or('?')
    }

    /// Whether it has ended: one that has may stay for long, if nobody waits for it.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.field(3), None | Some("Z" | "X"))
    }

    /// Whether it is a thread of the kernel's (`PF_KTHREAD`).
    pub(crate) fn is_kernel_thread(&self) -> bool {
        const KERNEL_THREAD: u64 = 0x20_0000;
        let flags = self.field(9).and_then(|flags| flags.parse::<u64>().ok());
        flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
    }

    /// Whether it runs, or would if it had a processor.
    pub(crate) fn is_running(&self) -> bool {
        self.field(3) == Some("R")
    }

    /// Whether an exec has taken its old memory and not laid out the new one. Kernel threads look
    /// alike, and processes that may not be looked at.
    pub(crate) fn has_no_environment_yet(&self) -> bool {
        self.field(51) == Some("0")
    }
}

/// Longest command line that is kept, bytes.
const LONGEST_COMMAND: usize = 32 << 10;

/// Reads it.
pub(crate) fn identity(pid: i32) -> Identity {
    use std::os::unix::ffi::OsStringExt;
    let mut command = command(pid);
    command.truncate(LONGEST_COMMAND);
    let executable = fs::read_link(format!("/proc/{pid}/exe"));
    let stat = u32::try_from(pid).ok().and_then(Stat::read);
    let stat = stat.as_ref();
    let name = name(pid, pid);
    if command.is_empty() && executable.is_err() && !name.is_empty() {
        // As ps shows those that have no program: threads of the kernel's. Who has no name either
        // is gone.
        command = [b"[", &name[..], b"]\0"].concat();
    }
    let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let ns_pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let called = executable.as_ref().ok();
    let called = called.and_then(|executable| called::find(pid, executable, &command));
    let (cgroup, container) = cgroup::find(pid);
    Identity {
        called: called.unwrap_or_default(),
        cgroup: cgroup.into_bytes(),
        container: container.into_bytes(),
        command,
        executable: executable.map_or_else(|_| Vec::new(), |path| path.into_os_string().into_vec()),
        parent: stat.and_then(Stat::parent).unwrap_or(0),
        start_ticks: stat.and_then(Stat::start_ticks).unwrap_or(0),
        ns_pids: ns_pids.map_or_else(Vec::new, |pids| pids.trim().as_bytes().to_owned()),
    }
}

/// Whether a set of signals (`SigIgn:`) in the text of `/proc/PID/status` has one; one that cannot
/// be read has.
#[must_use]
pub fn has_signal(status: &str, set: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & 1 << (signal - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_its_loader_has_hardly_begun_with_may_load_the_library_yet() {
        let code = |start: u64, path: &str| {
            format!(
                "{start:x}-{:x} r-xp 00000000 00:1d 99 {path}\n",
                start + 0x1000
            )
        };
        let begun = code(0x1000, "/bin/a") + &code(0x8000, "/lib/ld.so") + &code(0xf000, "[vdso]");
        let without = begun.clone() + &code(0x5000, "/lib/libc.so.6");
        let with = begun.clone() + &code(0x5000, "/c/librsunwind_preload-1.so");
        let goes_without = |text: &str, used_ns| goes_without_library(&parse(text), used_ns);
        assert!(!goes_without(&begun, LOADER_NS));
        assert!(goes_without(&begun, LOADER_NS + 1));
        assert!(goes_without(&without, 0));
        assert!(!goes_without(&with, 0) && !goes_without(&(with + &without), LOADER_NS + 1));
        assert!(!goes_without("", LOADER_NS + 1), "it is gone");
    }

    #[test]
    fn executable_mappings_of_files_are_listed() {
        let text = "\
00400000-00401000 r--p 00000000 00:1d 99                                 /bin/a b
00401000-00480000 r-xp 00001000 00:1d 99                                 /bin/a b
7f0000000000-7f0000001000 r-xp 00000000 00:00 0 
7fff00000000-7fff00001000 r-xp 00000000 00:00 0                          [vdso]
";
        let found = parse(text);
        let short: Vec<_> = found
            .iter()
            .map(|mapping| {
                (
                    mapping.start,
                    mapping.length,
                    mapping.offset,
                    &*mapping.path,
                )
            })
            .collect();
        assert_eq!(
            short,
            [
                (0x40_1000, 0x7_f000, 0x1000, &b"/bin/a b"[..]),
                (0x7fff_0000_0000, 0x1000, 0, b"[vdso]")
            ]
        );
    }

    #[test]
    fn a_process_finds_itself() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let identity = identity(pid);
        let own = std::env::current_exe().unwrap();
        assert_eq!(
            identity.executable,
            std::os::unix::ffi::OsStrExt::as_bytes(own.as_os_str())
        );
        assert!(identity.command.ends_with(b"\0") && identity.start_ticks > 0);
        let born_ns = born_ns(pid).unwrap();
        assert!(0 < born_ns && born_ns <= clock::monotonic_ns());
        assert_eq!(identity.parent, std::os::unix::process::parent_id());
        assert!(threads(pid).contains(&pid) && cpu_ns(pid, pid).unwrap() > 0);
        assert!(!name(pid, pid).is_empty());
        assert!(identity.ns_pids.ends_with(pid.to_string().as_bytes()));
        let numbers = identity.ns_pids.split(|byte| byte.is_ascii_whitespace());
        assert_eq!(inner_number(pid, pid).is_some(), numbers.count() > 1);
    }
}
