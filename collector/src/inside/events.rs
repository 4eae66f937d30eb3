//! The events on the threads of a process that unwind themselves: opened here, with the thread as
//! the one who gets their signal. Only user mode raises it, so that it never comes in a call, and
//! none of them outlives an exec.
//!
//! The handler knows their signals by the number of a descriptor, which the kernel remembers from
//! when the signal was asked for: each event has it for that moment, one after the other.
//!
//! # Safety
//! System calls on descriptors of ours.
#![allow(unsafe_code)]

use super::Refusal;
use super::obstacles::{AMPLE_ROOM, narrow};
use crate::perf_event::{self, ANY_PROCESSOR};
use crate::processes;
use crate::processes::has_signal;
use crate::whereabouts::{Call, Whereabouts};
use engine::perf_event::{Attributes, kind, request, software};
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// No program has a descriptor of its own there that raises SIGURG, unless by intent.
const HIGH: u64 = 60_521;
const SIGNAL: i32 = libc::SIGURG;
/// System call of x86-64.
const IO_PGETEVENTS: i64 = 333;

/// The number by which the handler knows the signals.
pub(crate) fn descriptor() -> i32 {
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(most, _)| most);
    i32::try_from(HIGH.min(most.saturating_sub(1))).unwrap_or(i32::MAX)
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Events {
    period_ns: u64,
    /// Of each thread; none where it may not be sampled, or that cannot be told yet ([`Look`]).
    open: HashMap<i32, Option<OwnedFd>>,
    /// Threads of which it cannot be told yet.
    unknown: HashMap<i32, Look>,
    /// Threads with events that hold the signal back, and the CPU time that they had used when that
    /// was seen first, ns: our handler does it, too.
    suspects: HashMap<i32, u64>,
    /// Threads that had little room left on their stacks when they were seen first.
    narrow: HashSet<i32>,
}

impl Events {
    pub(crate) fn new(period_ns: u64) -> Self {
        Self {
            period_ns,
            ..Self::default()
        }
    }

    /// Opens events on threads that have none, and closes those of threads that are gone or may not
    /// be sampled any more. Gives whether it could be told of all threads whether they may.
    ///
    /// # Errors
    /// [`Refusal::Events`].
    pub(crate) fn open(&mut self, pid: u32) -> Result<bool, Refusal> {
        let tids: HashSet<i32> = (processes::threads(pid.cast_signed()).into_iter()).collect();
        self.open.retain(|tid, _| tids.contains(tid));
        self.unknown.retain(|tid, _| tids.contains(tid));
        self.suspects.retain(|tid, _| tids.contains(tid));
        self.narrow.retain(|tid| tids.contains(tid));
        let new = tids.iter().filter(|tid| !self.open.contains_key(tid));
        let new: Vec<i32> = new.copied().collect();
        self.narrow.extend(narrow(pid, &new, AMPLE_ROOM));
        for tid in tids {
            // Both may change.
            let is_armed = matches!(self.open.get(&tid), Some(Some(_)));
            let mut look = Look::at(pid, tid);
            if is_armed && look.may_be_in_handler() {
                // That is soon over, once it has a processor.
                thread::sleep(BETWEEN);
                look = Look::at(pid, tid);
            }
            if is_armed && look.may_be_in_handler() {
                let first_ns = *self.suspects.entry(tid).or_insert(look.cpu_ns[1]);
                if look.cpu_ns[1].saturating_sub(first_ns) < HANDLER_NS {
                    continue;
                }
            }
            self.suspects.remove(&tid);
            if !look.is_free() || self.narrow.contains(&tid) {
                self.open.insert(tid, None);
                self.unknown.remove(&tid);
            } else if !is_armed {
                self.open.insert(tid, None);
                self.unknown.entry(tid).or_insert(look);
            }
        }
        self.open_rest(pid)
    }

    /// Opens events on those threads of which it could not be told before. Gives whether it can be
    /// told of all now.
    ///
    /// # Errors
    /// [`Refusal::Events`].
    pub(crate) fn open_rest(&mut self, pid: u32) -> Result<bool, Refusal> {
        let began = Instant::now();
        while !self.unknown.is_empty() && began.elapsed() < PATIENCE {
            thread::sleep(BETWEEN);
            for (tid, before) in std::mem::take(&mut self.unknown) {
                let mut now = Look::at(pid, tid);
                now.is_out = now.is_confirmed(&before);
                if now.is_out && (before.is_out || now.is_asleep()) {
                    let event = self.event(tid)?;
                    self.open.insert(tid, event);
                } else if now.is_free() {
                    // The first of those that say the same tells how long that is.
                    let is_kept = now.is_same(&before) && !now.is_out;
                    self.unknown.insert(tid, if is_kept { before } else { now });
                }
            }
        }
        Ok(self.unknown.is_empty())
    }

    /// Opens an event on the first thread of a program that has just begun: what mask it has is its
    /// own.
    ///
    /// # Errors
    /// [`Refusal::Events`].
    pub(crate) fn open_first(&mut self, pid: i32) -> Result<(), Refusal> {
        if Look::at(pid.cast_unsigned(), pid).is_free() {
            let event = self.event(pid)?;
            self.open.insert(pid, event);
        }
        Ok(())
    }

    fn event(&self, tid: i32) -> Result<Option<OwnedFd>, Refusal> {
        let every =
            Attributes::of_thread(kind::SOFTWARE, software::TASK_CLOCK, self.period_ns, false);
        // Without these it would raise a signal in whatever program the thread runs next.
        let [newest, older, _] = every.and_for_older_kernels();
        let thread = Pid::from_raw(tid);
        let opened = perf_event::open(&newest, thread, ANY_PROCESSOR);
        let opened = opened.or_else(|_| perf_event::open(&older, thread, ANY_PROCESSOR));
        let event = match opened {
            Ok(event) => event,
            Err(Errno::ESRCH) => return Ok(None),
            Err(errno) => return Err(Refusal::Events(errno)),
        };
        raise(&event, tid).map_err(Refusal::Events)?;
        Ok(Some(event))
    }

    /// Whether any thread was there.
    pub(crate) fn are_any(&self) -> bool {
        !self.open.is_empty()
    }

    /// The threads that have events.
    pub(super) fn armed(&self) -> impl Iterator<Item = i32> + '_ {
        let armed = self.open.iter().filter(|(_, event)| event.is_some());
        armed.map(|(tid, _)| *tid)
    }

    /// How many threads may have none.
    pub(super) fn blocked(&self) -> usize {
        let may_not = |tid: &&i32| self.open[tid].is_none() && !self.unknown.contains_key(tid);
        self.open.keys().filter(may_not).count()
    }

    pub(crate) fn close(&mut self) {
        self.open.clear();
    }
}

/// Has the event raise the signal on its thread, and run.
fn raise(event: &OwnedFd, tid: i32) -> Result<(), Errno> {
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    let owner = [0 /* F_OWNER_TID */, tid];
    let number = descriptor();
    // SAFETY: the kernel reads the two words of the owner; the number is used for this alone, and
    // is free again at the end.
    unsafe {
        let fd = libc::dup3(event.as_raw_fd(), number, libc::O_CLOEXEC);
        Errno::result(fd)?;
        let asked = Errno::result(libc::fcntl(fd, F_SETSIG, SIGNAL))
            .and_then(|_| Errno::result(libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr())))
            .and_then(|_| {
                let flags = libc::O_ASYNC | libc::O_NONBLOCK;
                Errno::result(libc::fcntl(fd, libc::F_SETFL, flags))
            })
            .and_then(|_| Errno::result(libc::ioctl(fd, request::ENABLE as libc::Ioctl, 0)));
        libc::close(fd);
        asked.map(drop)
    }
}

/// What a thread is in, and whether the signal does it no harm there. One that blocks it may wait
/// for it, and one that waits in a call under another mask would have it end the call. A seccomp
/// filter may kill for a call of the handler's.
#[derive(Debug)]
struct Look {
    is_filtered: bool,
    blocks: bool,
    /// How often it has slept.
    sleeps: Option<u64>,
    there: Whereabouts,
    /// CPU time used when the look began, and when it ended.
    cpu_ns: [u64; 2],
    /// It was not in the call that it slept in last.
    is_out: bool,
}

/// It is out of a call after less CPU time, ns.
const OUT_NS: u64 = 30_000;
/// Our handler takes less, ns.
const HANDLER_NS: u64 = 1_000_000;
const BETWEEN: Duration = Duration::from_micros(100);
/// For so long it is looked whether a mask is that of a call.
const PATIENCE: Duration = Duration::from_millis(5);

impl Look {
    fn at(pid: u32, tid: i32) -> Self {
        let cpu_ns = || processes::cpu_ns(pid.cast_signed(), tid).unwrap_or(0);
        let began_ns = cpu_ns();
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
        let status = status.unwrap_or_default();
        let mut lines = status.lines();
        let sleeps = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Self {
            is_filtered: !status.contains("\nSeccomp:\t0\n"),
            blocks: has_signal(&status, "SigBlk:", SIGNAL),
            sleeps: sleeps.and_then(|count| count.trim().parse().ok()),
            there: Whereabouts::of(pid, tid.cast_unsigned()),
            cpu_ns: [began_ns, cpu_ns()],
            is_out: false,
        }
    }

    fn is_free(&self) -> bool {
        !self.is_filtered && !self.blocks && !is_under_other_mask(self.there)
    }

    /// Whether it runs and holds the signal back, as in our handler, which never sleeps.
    fn may_be_in_handler(&self) -> bool {
        self.blocks && !self.is_filtered && self.there == Whereabouts::Running
    }

    /// Whether it has not slept since.
    fn is_same(&self, before: &Self) -> bool {
        self.sleeps == before.sleeps && self.there == before.there
    }

    fn is_asleep(&self) -> bool {
        matches!(self.there, Whereabouts::Asleep { .. })
    }

    /// Whether the mask that it shows is not that of the call that it slept in last: of one that
    /// sleeps, in a call that has no other, or has run for a moment between the two looks. The
    /// kernel shows the mask of a call until the thread has come out of it, which may wait for a
    /// processor by then; and for a moment before it sleeps, so one look of that kind is not
    /// enough.
    fn is_confirmed(&self, before: &Self) -> bool {
        let ran_ns = self.cpu_ns[0].saturating_sub(before.cpu_ns[1]);
        self.is_free() && self.is_same(before) && (self.is_asleep() || ran_ns >= OUT_NS)
    }
}

/// Whether it waits in a call with a mask for the time of that.
fn is_under_other_mask(there: Whereabouts) -> bool {
    let Whereabouts::Asleep {
        call: Some(Call { number, arguments }),
        ..
    } = there
    else {
        return false;
    };
    match number {
        libc::SYS_rt_sigtimedwait | libc::SYS_rt_sigsuspend => true,
        libc::SYS_ppoll => arguments[3] != 0,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_io_uring_enter => {
            arguments[4] != 0
        }
        libc::SYS_pselect6 | IO_PGETEVENTS => arguments[5] != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{SigSet, Signal};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    fn asleep(number: i64, arguments: [u64; 6]) -> Whereabouts {
        let call = Some(Call { number, arguments });
        Whereabouts::Asleep { ip: 1, sp: 1, call }
    }

    #[test]
    fn masks_for_the_time_of_a_call_are_seen() {
        let masked = |number, arguments| is_under_other_mask(asleep(number, arguments));
        assert!(masked(libc::SYS_rt_sigsuspend, [0; 6]));
        assert!(masked(libc::SYS_rt_sigtimedwait, [0; 6]));
        assert!(masked(libc::SYS_ppoll, [0, 0, 0, 8, 0, 0]));
        assert!(!masked(libc::SYS_ppoll, [8, 8, 8, 0, 8, 8]));
        assert!(masked(libc::SYS_epoll_pwait, [0, 0, 0, 0, 8, 0]));
        assert!(!masked(libc::SYS_epoll_pwait, [8, 8, 8, 8, 0, 8]));
        assert!(masked(libc::SYS_pselect6, [0, 0, 0, 0, 0, 8]));
        assert!(!masked(libc::SYS_pselect6, [8, 8, 8, 8, 8, 0]));
        assert!(!masked(libc::SYS_read, [8; 6]));
        assert!(!is_under_other_mask(Whereabouts::Running));
    }

    /// Whether it gets an event; none if that cannot be told.
    fn is_sampled(tid: i32) -> Option<bool> {
        let pid = std::process::id();
        let looks = [(); 3].map(|()| {
            thread::sleep(BETWEEN);
            Look::at(pid, tid)
        });
        let [first, second, third] = &looks;
        let is_sure = third.is_asleep() || second.is_confirmed(first);
        match third.is_free() {
            true => (third.is_confirmed(second) && is_sure).then_some(true),
            false => Some(false),
        }
    }

    /// A moment that is over may mean one mask or the other, but never the wrong one.
    #[test]
    fn who_sleeps_under_another_mask_again_and_again_is_not_sampled() {
        let (send, tids) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let waits = std::thread::spawn(move || {
            let all = SigSet::all();
            all.thread_block().unwrap();
            send.send(nix::unistd::gettid().as_raw()).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let moment = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 50_000,
                };
                // SAFETY: a set, no place for what came, a time.
                unsafe {
                    libc::sigtimedwait(all.as_ref(), std::ptr::null_mut(), &raw const moment)
                };
                let until = std::time::Instant::now() + Duration::from_micros(50);
                while std::time::Instant::now() < until {}
            }
        });
        let tid = tids.recv().unwrap();
        let wrong = (0..2000).filter(|_| is_sampled(tid) == Some(true)).count();
        over.store(true, Ordering::Relaxed);
        waits.join().unwrap();
        assert_eq!(wrong, 0);
    }

    #[test]
    fn who_waits_for_the_signal_is_not_sampled() {
        let (send, tids) = channel();
        let waits = std::thread::spawn(move || {
            let tid = nix::unistd::gettid().as_raw();
            // Asked by another thread, which sees it sleep.
            std::thread::scope(|scope| {
                let asked = scope.spawn(|| while is_sampled(tid) != Some(true) {});
                asked.join().unwrap();
            });
            let mut set = SigSet::empty();
            set.add(Signal::SIGURG);
            set.thread_block().unwrap();
            assert!(is_sampled(tid) == Some(false));
            send.send(tid).unwrap();
            set.wait().unwrap()
        });
        let tid = tids.recv().unwrap();
        let is_asleep = || {
            let there = Whereabouts::of(std::process::id(), tid.cast_unsigned());
            matches!(there, Whereabouts::Asleep { call: Some(call), .. }
                if call.number == libc::SYS_rt_sigtimedwait)
        };
        while !is_asleep() {
            std::thread::yield_now();
        }
        assert!(is_sampled(tid) == Some(false));
        // SAFETY: no memory involved.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, SIGNAL) };
        assert_eq!(waits.join().unwrap(), Signal::SIGURG);
    }
}
