//! Events for programs with fewer rights than rsunwind: a thread that may not sample kernel mode asks for its event here, and is sent the
//! descriptor. Only where rsunwind has the right itself.
//!
//! Whoever asks must be a thread of a process that descends from rsunwind; what is opened is an event on that thread's CPU time and
//! nothing else. rsunwind keeps nothing of it, and says so by the end of the connection.

use super::door::Door;
use crate::fallback::open_for_thread;
use engine::wire::petition::{Petition, SIZE, SOCKET_FILE};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, recv, sendmsg};
use nix::unistd::{Pid, geteuid, pipe2};
use std::fs;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Who has connected sends at once; nobody else is waited for longer, ms.
const PATIENCE_MS: u8 = 5;
/// A shorter period would leave a thread no time, ns.
const SHORTEST_PERIOD_NS: u64 = 10_000;
/// Bits of CAP_SYS_ADMIN and CAP_PERFMON in capability masks.
const RIGHTS: u64 = 1 << 21 | 1 << 38;
/// How far up to look for rsunwind among the ancestors of a process.
const MOST_GENERATIONS: usize = 256;

/// A socket on which petitions wait.
#[derive(Debug)]
pub struct Petitions(Door);

/// A thread of ours that hears them, until this is dropped.
#[derive(Debug)]
pub struct Hearing {
    _stop: OwnedFd,
}

impl Petitions {
    /// Receives those of a session's programs; `None` where rsunwind has no rights to give.
    #[must_use]
    pub fn receive(session: &Path) -> Option<Self> {
        let door = has_rights().then(|| Door::open(&session.join(SOCKET_FILE), 0o666));
        Some(Self(door?.ok()?))
    }

    /// Hears them; not before the program is started, because rsunwind forks with one thread only.
    #[must_use]
    pub fn hear(self) -> Option<Hearing> {
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).ok()?;
        let heard = std::thread::Builder::new()
            .name("petitions".into())
            .spawn(move || hear(&self.0, &stopped));
        heard.ok().map(|_| Hearing { _stop: stop })
    }
}

fn hear(door: &Door, stopped: &OwnedFd) {
    loop {
        let mut places =
            [door.as_fd(), stopped.as_fd()].map(|place| PollFd::new(place, PollFlags::POLLIN));
        // An interrupted poll is another look.
        let _ = poll(&mut places, PollTimeout::NONE);
        let [_, over] = places.map(|place| place.revents().is_some_and(|found| !found.is_empty()));
        if over {
            return;
        }
        while let Some(connection) = door.next() {
            // Who is refused sees the end of the connection, and samples as its own rights allow.
            let _ = answer(&connection);
        }
    }
}

fn answer(connection: &OwnedFd) -> Result<(), Errno> {
    let mut place = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
    poll(&mut place, PollTimeout::from(PATIENCE_MS))?;
    let mut bytes = [0; SIZE + 8];
    let length = recv(connection.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)?;
    let message = bytes.get(..length).filter(|message| message.len() == SIZE);
    let petition = message.and_then(|message| Petition::parse(message).ok());
    let petition = petition.ok_or(Errno::EINVAL)?;
    let who = getsockopt(connection, PeerCredentials)?.pid();
    let tid = i32::try_from(petition.tid).map_err(|_| Errno::ESRCH)?;
    if !is_thread_of(tid, who) || !is_ours(who) {
        return Err(Errno::EPERM);
    }
    let period_ns = petition.period_ns.max(SHORTEST_PERIOD_NS);
    let event = open_for_thread(Pid::from_raw(tid), period_ns)?;
    let descriptors = [event.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let byte = [IoSlice::new(&[0])];
    // The event is closed here before the connection is, for whose end the thread waits.
    sendmsg::<()>(connection.as_raw_fd(), &byte, &rights, flags, None).map(drop)
}

fn is_thread_of(tid: i32, pid: i32) -> bool {
    pid > 0 && Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// Whether a process descends from this one.
fn is_ours(pid: i32) -> bool {
    let own = std::process::id();
    let parent = |pid: u32| {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        // The name in parentheses may hold anything.
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let ancestors = std::iter::successors(u32::try_from(pid).ok(), |pid| parent(*pid));
    ancestors.take(MOST_GENERATIONS).any(|pid| pid == own)
}

/// Whether kernel mode may be sampled whatever the settings.
fn has_rights() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.map_or(geteuid().is_root(), |mask| mask & RIGHTS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descendants_are_ours() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        assert!(is_ours(pid) && is_thread_of(pid, pid));
        let own = std::process::id().cast_signed();
        assert!(!is_thread_of(pid, own), "another process's thread");
        let parent = std::os::unix::process::parent_id().cast_signed();
        assert!(!is_ours(parent) && !is_ours(1));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
