//! The system call in which a thread sleeps: with its arguments as people write them, and what it
//! waits for.

use super::descriptor;
use super::futex;
use super::syscalls;
use super::target::Target;
use crate::numbers::duration;
use crate::processes;
use crate::remote_memory::RemoteMemory;
use crate::visible::visible;
use crate::whereabouts::Call;
use engine::interpreter::memory::Memory as _;
use nix::libc;
use nix::time::{ClockId, clock_gettime};
use std::fs;

/// What a thread waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decoded {
    /// The system call's name.
    pub(super) name: String,
    /// With its arguments: `poll(1 descriptor, 5.00 s)`.
    pub(super) text: String,
    /// What would end the wait, if that is known.
    pub(super) waits_for: Option<String>,
    /// The thread of the process that would, if it is one.
    pub(super) owner: Option<u32>,
}

impl Decoded {
    fn new(name: &str, arguments: &str, waits_for: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            text: format!("{name}({arguments})"),
            waits_for,
            owner: None,
        }
    }
}

/// Says what a call is, of a thread that is in it.
pub(super) fn decode(target: &mut Target, tid: u32, call: Call) -> Decoded {
    let Some(name) = syscalls::name(call.number) else {
        let name = format!("system call {}", call.number);
        return Decoded {
            text: name.clone(),
            name,
            ..Decoded::default()
        };
    };
    let memory = target.memory;
    let pid = target.pid;
    let [a, b, c, d, e, _] = call.arguments;
    let new = |arguments: String, waits: Option<String>| Decoded::new(name, &arguments, waits);
    match name {
        "futex" => {
            let (arguments, waits_for, owner) = futex::decode(target, a, b, c, d);
            Decoded {
                owner,
                ..Decoded::new(name, &arguments, waits_for)
            }
        }
        "poll" => polled(name, target, (a, b), milliseconds(c)),
        "ppoll" => polled(name, target, (a, b), timeout(memory, c)),
        "select" | "pselect6" => {
            let time = if name == "select" {
                timeval(memory, e)
            } else {
                timeout(memory, e)
            };
            let sets = [(b, "to read"), (c, "to write"), (d, "for errors")];
            let selected = sets.map(|(set, what)| (selected(memory, a, set), what));
            let parts = selected.iter().filter(|(set, _)| !set.is_empty());
            let parts: Vec<_> = parts
                .map(|(set, what)| format!("{what}: {}", descriptors(target, set)))
                .collect();
            new(
                format!("{a}, …, {time}"),
                (!parts.is_empty()).then(|| parts.join("; ")),
            )
        }
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => {
            let time = match name {
                "epoll_pwait2" => timeout(memory, d),
                _ => milliseconds(d),
            };
            let watched = descriptor::watched(pid, a);
            let what = format!(
                "{}: {}",
                plural(watched.len()),
                descriptors(target, &watched)
            );
            new(format!("{a}, …, {time}"), Some(what))
        }
        "nanosleep" => new(timeout(memory, a), None),
        "clock_nanosleep" => {
            let time = match b & 1 {
                0 => timeout(memory, c),
                _ => until(memory, a, c),
            };
            new(time, None)
        }
        "wait4" => new(signed(a).to_string(), children(pid, signed(a))),
        "waitid" => {
            let child = if a == u64::from(libc::P_PID) {
                signed(b)
            } else {
                -1
            };
            new(format!("{a}, {}", signed(b)), children(pid, child))
        }
        "flock" | "fcntl" => {
            let waits = open_file(target, a).map(|name| with_holders(pid, tid, a, name));
            new(format!("{a}, {b}"), waits)
        }
        "read" | "readv" | "pread64" | "preadv" | "write" | "writev" | "pwrite64" | "recvfrom"
        | "recvmsg" | "recvmmsg" | "sendto" | "sendmsg" | "accept" | "accept4" | "connect"
        | "fsync" | "fdatasync" | "ioctl" | "close" | "ftruncate" | "fallocate" | "getdents64"
        | "splice" | "copy_file_range" | "io_uring_enter" => {
            new(format!("{a}, …"), open_file(target, a))
        }
        "sendfile" => new(format!("{a}, {b}, …"), open_file(target, a)),
        "rt_sigtimedwait" => new(
            format!("…, {}", timeout(memory, c)),
            Some("a signal".into()),
        ),
        "rt_sigsuspend" | "pause" => new(String::new(), Some("a signal".into())),
        "vfork" => new(String::new(), children(pid, -1)),
        "semop" | "semtimedop" => new(
            format!("{a}, …"),
            Some(format!("the System V semaphores {}", signed(a))),
        ),
        "msgrcv" | "msgsnd" => new(
            format!("{a}, …"),
            Some(format!("the System V message queue {}", signed(a))),
        ),
        "restart_syscall" => new(
            String::new(),
            Some("what it waited for before it was stopped".into()),
        ),
        _ => new("…".into(), None),
    }
}

fn signed(argument: u64) -> i32 {
    argument as u32 as i32
}

fn plural(count: usize) -> String {
    crate::numbers::plural(count as u64, "descriptor", "descriptors")
}

fn milliseconds(argument: u64) -> String {
    match u64::try_from(signed(argument)) {
        Ok(ms) => duration(ms.saturating_mul(1_000_000)),
        Err(_) => "for ever".to_owned(),
    }
}

/// Seconds and nanoseconds.
fn time_ns(memory: RemoteMemory, at: u64) -> Option<u64> {
    let seconds = memory.load(at)?;
    Some(
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(memory.at(at, 8)?),
    )
}

pub(super) fn timeout(memory: RemoteMemory, at: u64) -> String {
    match at {
        0 => "for ever".to_owned(),
        _ => time_ns(memory, at).map_or_else(|| "…".to_owned(), duration),
    }
}

fn timeval(memory: RemoteMemory, at: u64) -> String {
    let read = || Some((memory.load(at)?, memory.at(at, 8)?));
    match (at, read()) {
        (0, _) => "for ever".to_owned(),
        (_, Some((s, us))) => duration(
            s.saturating_mul(1_000_000_000)
                .saturating_add(us.saturating_mul(1000)),
        ),
        (_, None) => "…".to_owned(),
    }
}

/// How long it is until a time of a clock.
pub(super) fn until(memory: RemoteMemory, clock: u64, at: u64) -> String {
    let left = || {
        let now = clock_gettime(ClockId::from_raw(signed(clock))).ok()?;
        let now = (now.tv_sec() as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add(now.tv_nsec() as u64);
        Some(time_ns(memory, at)?.saturating_sub(now))
    };
    match at {
        0 => "for ever".to_owned(),
        _ => left().map_or_else(|| "…".to_owned(), |ns| format!("{} more", duration(ns))),
    }
}

fn polled(name: &str, target: &Target, (at, count): (u64, u64), time: String) -> Decoded {
    /// Descriptors that are looked at.
    const MOST: u64 = 1024;
    let each =
        (0..count.min(MOST)).filter_map(|index| target.memory.half(at.checked_add(index * 8)?));
    let wanted: Vec<u64> = each.filter(|fd| *fd as i32 >= 0).map(u64::from).collect();
    let waits_for = (!wanted.is_empty()).then(|| descriptors(target, &wanted));
    let count = plural(usize::try_from(count).unwrap_or(usize::MAX));
    Decoded::new(name, &format!("{count}, {time}"), waits_for)
}

/// The descriptors of a set.
fn selected(memory: RemoteMemory, count: u64, set: u64) -> Vec<u64> {
    /// A set has no more.
    const MOST: u64 = 1024;
    if set == 0 {
        return Vec::new();
    }
    let is_in = |fd: &u64| {
        let word = memory.at(set, fd / 64 * 8).unwrap_or(0);
        word >> (fd % 64) & 1 != 0
    };
    (0..count.min(MOST)).filter(is_in).collect()
}

fn open_file(target: &Target, fd: u64) -> Option<String> {
    descriptor::name(target.pid, &target.sockets, fd)
}

/// The first few of them by name.
fn descriptors(target: &Target, all: &[u64]) -> String {
    /// More are counted only.
    const SHOWN: usize = 6;
    let shown = all.iter().take(SHOWN);
    let mut names: Vec<_> = shown
        .map(|fd| open_file(target, *fd).unwrap_or_else(|| fd.to_string()))
        .collect();
    if all.len() > SHOWN {
        names.push(format!("{} more", all.len() - SHOWN));
    }
    names.join(", ")
}

/// Children that are waited for: the one, or all.
fn children(pid: u32, wanted: i32) -> Option<String> {
    let of = |tid: i32| {
        fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default()
    };
    let lists: String = processes::threads(pid.cast_signed())
        .into_iter()
        .map(of)
        .collect();
    let numbers = lists
        .split_ascii_whitespace()
        .filter_map(|word| word.parse::<i32>().ok());
    // Of another PID namespace they have other numbers.
    let is_wanted = |child: &i32| {
        let inner = processes::inner_number(*child, *child).map(u32::cast_signed);
        wanted <= 0 || wanted == inner.unwrap_or(*child)
    };
    let names: Vec<_> = numbers
        .filter(is_wanted)
        .map(|child| {
            format!(
                "{child} ({})",
                visible(&String::from_utf8_lossy(&processes::name(child, child)))
            )
        })
        .collect();
    match names.len() {
        0 => Some("a child, of which there is none any more".to_owned()),
        1 => Some(format!("the end of child {}", names[0])),
        _ => Some(format!(
            "the end of one of its children: {}",
            names.join(", ")
        )),
    }
}

/// A file, with the processes that have it locked.
fn with_holders(pid: u32, tid: u32, fd: u64, name: String) -> String {
    let holders = descriptor::lock_holders(pid, fd);
    let holders: Vec<_> = holders
        .into_iter()
        .filter(|holder| *holder != tid.cast_signed())
        .map(|holder| {
            format!(
                "process {holder} ({})",
                visible(&String::from_utf8_lossy(&processes::name(holder, holder)))
            )
        })
        .collect();
    match holders.is_empty() {
        true => name,
        false => format!("{name}, locked by {}", holders.join(", ")),
    }
}
