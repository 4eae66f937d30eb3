//! What the kernel charges: the clocks of the process when the runtime begins in a program and at
//! its end, and what each child cost.
//!
//! Where libc waits for a child and is not told what it cost, the sum of all children tells, unless
//! other children were waited for meanwhile.

use super::family;
use crate::process::PROCESS;
use crate::thread::ThreadState;
use crate::{clock, sys};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use engine::wire::charge::{ChildEnd, ProcessEnd};
use engine::wire::record::RecordKind;
use engine::wire::thread::ThreadEndReason;

/// CPU time of the process, and of its first thread, when the runtime began in this program, ns.
static BEGAN_AT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The runtime begins: what was used until now was the exec's, and the loader's.
pub(super) fn begin() {
    let [process, thread] = &BEGAN_AT;
    process.store(sys::process_cpu_ns().unwrap_or(0), Relaxed);
    thread.store(sys::thread_cpu_ns(sys::gettid()).unwrap_or(0), Relaxed);
}

/// In a fork child: its clocks begin at nothing.
pub(super) fn forget() {
    BEGAN_AT.iter().for_each(|time| time.store(0, Relaxed));
}

/// CPU time of the process and of its first thread when the runtime began, ns.
pub(super) fn began_at() -> [u64; 2] {
    BEGAN_AT.each_ref().map(|time| time.load(Relaxed))
}

/// Records what the process has used, as late as it can.
pub(super) fn process_ends(this: &ThreadState, reason: ThreadEndReason) {
    this.add_arming(family::take_taken());
    let end = ProcessEnd {
        time_ns: clock::monotonic_ns(),
        cpu_ns: sys::process_cpu_ns().unwrap_or(0),
        children_ns: sys::children_cpu_ns().unwrap_or(0),
        reason,
    };
    this.write(RecordKind::ProcessEnd, |out| end.encode(out));
}

/// How many children have been waited for.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A wait of libc's for a child that does not tell what it cost, from before it begins.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    since_ns: u64,
    taken: u64,
    children_ns: u64,
}

impl Wait {
    /// It begins; `None` where nobody wants to know.
    #[must_use]
    pub fn begin() -> Option<Self> {
        if !PROCESS.is_active() {
            return None;
        }
        Some(Self {
            since_ns: clock::monotonic_ns(),
            taken: TAKEN.load(Relaxed),
            children_ns: sys::children_cpu_ns()?,
        })
    }

    /// It has ended with one child; `since_birth` says whether that began after it.
    pub fn end(self, since_birth: bool) {
        let since_ns = if since_birth { self.since_ns } else { 0 };
        self.ends(0, 0, since_ns);
    }

    /// It has ended with that child.
    pub fn end_of(self, pid: u32, wait_status: u32) {
        self.ends(pid, wait_status, 0);
    }

    fn ends(self, pid: u32, wait_status: u32, since_ns: u64) {
        let alone = TAKEN.fetch_add(1, Relaxed) == self.taken;
        let children_ns = sys::children_cpu_ns().unwrap_or(0);
        let charged_ns = children_ns.saturating_sub(self.children_ns);
        // A tracer that waits for another's child is charged nothing.
        if alone && charged_ns > 0 {
            write(pid, wait_status, charged_ns, since_ns);
        }
    }
}

/// Records what the kernel charged a child that this process has waited for. Of a fork child that
/// is not set up yet that is in what its own parent is told.
///
/// # Signal safety
/// Raw system calls.
pub fn child_ended(pid: u32, wait_status: u32, charged_ns: u64) {
    TAKEN.fetch_add(1, Relaxed);
    write(pid, wait_status, charged_ns, 0);
}

fn write(pid: u32, wait_status: u32, charged_ns: u64, since_ns: u64) {
    if !PROCESS.is_active() {
        return;
    }
    let Some(this) = ThreadState::current().filter(|this| !this.birth.is_unfinished()) else {
        return;
    };
    this.add_arming(family::take_taken());
    let end = ChildEnd {
        time_ns: clock::monotonic_ns(),
        pid,
        wait_status,
        charged_ns,
        since_ns,
        refused: family::refusal_of(pid),
    };
    this.write(RecordKind::ChildEnd, |out| end.encode(out));
}
