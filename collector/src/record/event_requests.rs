//! Events for programs with fewer rights than rsunwind: a thread that may not sample kernel mode
//! asks for its event here, and is sent the descriptor. Only where rsunwind has the right itself.
//!
//! Whoever asks must be a thread of a process that descends from rsunwind, which is looked at
//! first; what is opened is an event on that thread's CPU time and nothing else. rsunwind keeps
//! nothing of it, and says so by the end of the connection. Who connects and says nothing is waited
//! for, but keeps nobody else waiting.

use super::listener::Listener;
use crate::perf_event::{self, ANY_PROCESSOR};
use crate::processes::Stat;
use engine::perf_event::{Attributes, kind, software};
use engine::wire::event_request::{EventRequest, PATIENCE_MS, SIZE, SOCKET_FILE};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, recv, sendmsg};
use nix::unistd::{Pid, geteuid, pipe2};
use std::collections::VecDeque;
use std::fs;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Who has connected sends at once: the others are not waited for any longer, nor does the thread.
const PATIENCE: Duration = Duration::from_millis(PATIENCE_MS);
/// Connections whose message is on its way, at most; of more the oldest have had their time.
const MOST_PENDING: usize = 256;
/// A shorter period would leave a thread no time, ns.
const SHORTEST_PERIOD_NS: u64 = 10_000;
/// Bits of CAP_SYS_ADMIN and CAP_PERFMON in capability masks.
const RIGHTS: u64 = 1 << 21 | 1 << 38;
/// How far up to look for rsunwind among the ancestors of a process.
const MOST_GENERATIONS: usize = 256;

/// A socket on which requests wait.
#[derive(Debug)]
pub struct EventRequests(Listener);

/// A thread of ours that answers them, until this is dropped.
#[derive(Debug)]
pub struct Serving {
    _stop: OwnedFd,
}

impl EventRequests {
    /// Receives those of a session's programs; `None` where rsunwind has no rights to give.
    #[must_use]
    pub fn receive(session: &Path) -> Option<Self> {
        let listener = has_rights().then(|| Listener::open(&session.join(SOCKET_FILE), 0o666));
        Some(Self(listener?.ok()?))
    }

    /// Answers them; not before the program is started, because rsunwind forks with one thread
    /// only.
    #[must_use]
    pub fn serve(self) -> Option<Serving> {
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).ok()?;
        let begun = std::thread::Builder::new()
            .name("event-requests".into())
            .spawn(move || serve(&self.0, &stopped));
        begun.ok().map(|_| Serving { _stop: stop })
    }
}

fn serve(listener: &Listener, stopped: &OwnedFd) {
    let mut pending: VecDeque<(OwnedFd, Instant)> = VecDeque::new();
    loop {
        let connections = pending.iter().map(|(connection, _)| connection.as_fd());
        let places = [listener.as_fd(), stopped.as_fd()]
            .into_iter()
            .chain(connections);
        let mut places: Vec<_> = places
            .map(|place| PollFd::new(place, PollFlags::POLLIN))
            .collect();
        let first = pending.front().map(|(_, until)| *until);
        // An interrupted poll is another look.
        let _ = poll(&mut places, timeout(first));
        if places[1].any().unwrap_or(true) {
            return;
        }
        let now = Instant::now();
        // Who is refused sees the end of the connection, and samples as its own rights allow.
        pending
            .retain(|(connection, until)| answer(connection) == Err(Errno::EAGAIN) && *until > now);
        while let Some(connection) = listener.next() {
            if !peer(&connection).is_ok_and(is_ours) {
                continue;
            }
            if answer(&connection) == Err(Errno::EAGAIN) {
                pending.push_back((connection, now + PATIENCE));
            }
            if pending.len() > MOST_PENDING {
                pending.pop_front();
            }
        }
    }
}

fn timeout(until: Option<Instant>) -> PollTimeout {
    until.map_or(PollTimeout::NONE, |until| {
        let left = until.saturating_duration_since(Instant::now()).as_millis() + 1;
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    })
}

/// Who has connected, as the kernel says.
fn peer(connection: &OwnedFd) -> Result<i32, Errno> {
    getsockopt(connection, PeerCredentials).map(|who| who.pid())
}

/// `EAGAIN` if nothing was asked yet.
fn answer(connection: &OwnedFd) -> Result<(), Errno> {
    let mut bytes = [0; SIZE + 8];
    let length = recv(connection.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)?;
    let message = bytes.get(..length).filter(|message| message.len() == SIZE);
    let asked = message.and_then(|message| EventRequest::parse(message).ok());
    let asked = asked.ok_or(Errno::EINVAL)?;
    let tid = i32::try_from(asked.tid).map_err(|_| Errno::ESRCH)?;
    if !is_thread_of(tid, peer(connection)?) {
        return Err(Errno::EPERM);
    }
    let period_ns = asked.period_ns.max(SHORTEST_PERIOD_NS);
    let event = open_for_thread(Pid::from_raw(tid), period_ns)?;
    let descriptors = [event.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let byte = [IoSlice::new(&[0])];
    // A thread that has gone away needs none. The event is closed here before the connection is,
    // for whose end the thread waits.
    sendmsg::<()>(connection.as_raw_fd(), &byte, &rights, flags, None).map(drop)
}

/// Opens the event with which a thread unwinds itself, as its runtime would
/// (`librsunwind/src/trigger/event.rs`), with kernel mode. It is not running.
///
/// # Errors
/// As `perf_event_open(2)`.
fn open_for_thread(tid: Pid, period_ns: u64) -> Result<OwnedFd, Errno> {
    let plain = Attributes::of_thread(kind::SOFTWARE, software::TASK_CLOCK, period_ns, true);
    let attempts = std::iter::once(plain.deferring()).chain(plain.and_for_older_kernels());
    let mut opened = Err(Errno::EINVAL);
    for attributes in attempts {
        if matches!(opened, Err(Errno::EINVAL)) {
            opened = perf_event::open(&attributes, tid, ANY_PROCESSOR);
        }
    }
    opened
}

fn is_thread_of(tid: i32, pid: i32) -> bool {
    pid > 0 && Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// Whether a process descends from this one.
fn is_ours(pid: i32) -> bool {
    let own = std::process::id();
    let parent = |pid: u32| Stat::read(pid)?.parent();
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
    use crate::record::listener::connected;
    use nix::sys::socket::send;

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

    #[test]
    fn who_says_nothing_keeps_nobody_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let listener = Listener::open(&path, 0o600).unwrap();
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let serving = std::thread::spawn(move || serve(&listener, &stopped));
        let silent: Vec<OwnedFd> = (0..200).map(|_| connected(&path)).collect();
        let asking = connected(&path);
        let request = EventRequest {
            tid: nix::unistd::gettid().as_raw().unsigned_abs(),
            period_ns: 1_000_000,
        };
        send(asking.as_raw_fd(), &request.to_bytes(), MsgFlags::empty()).unwrap();
        let mut byte = [0];
        let answered = recv(asking.as_raw_fd(), &mut byte, MsgFlags::empty());
        assert_eq!(
            answered,
            Ok(1),
            "this needs the right to use perf events, as root has it"
        );
        // Each of them has had its time, one beside the other.
        for connection in &silent {
            let end = recv(connection.as_raw_fd(), &mut byte, MsgFlags::empty());
            assert!(matches!(end, Ok(0) | Err(Errno::ECONNRESET)), "{end:?}");
        }
        drop(stop);
        serving.join().unwrap();
    }
}
