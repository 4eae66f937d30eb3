//! The process: its recording, its fork, its end. A fork child has a cheap life until its first
//! signal.
//!
//! # Safety
//! A fork child has one thread, and nothing of its parent's state is touched.
#![allow(unsafe_code)]

use super::identity::Identity;
use super::{charge, family, follow, thread};
use crate::config::Destination;
use crate::process::PROCESS;
use crate::segment::{SEGMENT, Writer};
use crate::session::Control;
use crate::sys::{self, Errno, HeldBack};
use crate::text::{PATH_SIZE, Text, parse_decimal};
use crate::thread::{self as registry, Moment, ThreadState, handler_stack};
use crate::trigger::handover;
use crate::{arch, clients, clock, modules};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use engine::registers::thread_block;
use engine::wire::offer::Offer;
use engine::wire::process::{Origin, Process as ProcessRecord};
use engine::wire::record::RecordKind;
use engine::wire::thread::ThreadEndReason;

/// Makes the process's segment.
pub(super) fn create_segment(identity: &Identity) -> Result<(), Errno> {
    let config = PROCESS.config();
    let writer = Writer {
        pid: sys::getpid(),
        process_key: PROCESS.key(),
        start_ticks: identity.start_ticks,
    };
    let path = match config.destination {
        Destination::Session(directory) => directory
            .then(b"/")
            .hexadecimal(u64::from(writer.pid))
            .then(b".")
            .hexadecimal(writer.process_key)
            .then(b".seg"),
        Destination::File(pattern) => expand(&pattern, writer.pid),
    };
    SEGMENT.set_path(path);
    SEGMENT.create(writer, config.size)
}

/// Says whose the process is to the collector of another user's session: one that ends before it is
/// looked at, and has no ring to offer, would not be believed to have left its segment.
pub(super) fn introduce(directory: &Text<PATH_SIZE>) {
    let process = Offer {
        pid: sys::getpid(),
        tid: sys::gettid(),
        process_key: PROCESS.key(),
        ..Offer::default()
    };
    // A collector that does not hear it finds the process while it lives.
    let _ = handover::offer(&process, core::iter::empty(), directory);
}

/// The inode of the PID namespace in which the kernel began (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Writes what the process is.
pub(super) fn record(this: &ThreadState, identity: &Identity) {
    let (mut ids, mut command) = ([0u8; 1024], [0u8; 4096]);
    let pid_namespace = own_pid_namespace();
    let own_pid = Text::<16>::new().decimal(u64::from(sys::getpid()));
    let ns_pids = if pid_namespace == FIRST_PID_NAMESPACE {
        own_pid.bytes() // it has no other
    } else {
        let status = sys::read_file(b"/proc/self/status\0", &mut ids);
        line_value(status, b"NSpid:\t")
    };
    let config = PROCESS.config();
    let [cpu_ns, thread_cpu_ns] = charge::began_at();
    let record = ProcessRecord {
        origin: identity.origin,
        parent_pid: sys::getppid(),
        parent_key: PROCESS.parent_key(),
        time_ns: PROCESS.key(),
        realtime_offset_ns: clock::realtime_offset_ns(),
        start_ticks: identity.start_ticks,
        asked_period_ns: config.period_ns,
        period_ns: PROCESS.period_ns(),
        max_depth: config.max_depth as u64,
        ns_pids,
        pid_namespace,
        executable: identity.executable(),
        command: identity.command(&mut command),
        cpu_ns,
        thread_cpu_ns,
        // Which the collector knows.
        ..ProcessRecord::default()
    };
    this.write(RecordKind::Process, |out| record.encode(out));
}

/// Before a fork, on the thread that forks.
pub fn before_fork() {
    if PROCESS.is_active() {
        family::share();
        show_belief();
    }
}

/// After it, in the parent, or when there is no child.
pub fn after_fork_in_parent() {
    hide_belief();
}

/// Of the thread whose child is to have our signal blocked because the program believes that it is:
/// where its thread block is.
static SHOWS: AtomicU64 = AtomicU64::new(0);

/// What the program believes of our signal's mask holds for a while, so that a child inherits it.
pub fn show_belief() {
    let blocked = |this: &&ThreadState| PROCESS.is_active() && this.belief.is_blocked();
    let Some(this) = ThreadState::current().filter(blocked) else {
        return;
    };
    follow::follow(this);
    let ours = sys::bit(this.signal());
    // In the program's own handler for it the kernel has done that.
    if sys::signal_mask(libc::SIG_BLOCK, ours) & ours == 0 {
        this.belief.show(true);
        SHOWS.store(thread_block(), Relaxed);
    }
}

/// The end of [`show_belief`].
pub fn hide_belief() {
    let shows = |this: &&ThreadState| this.belief.show(false);
    if let Some(this) = ThreadState::current().filter(shows) {
        let _ = SHOWS.compare_exchange(thread_block(), 0, Relaxed, Relaxed);
        sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(this.signal()));
    }
}

/// The same in a fork child, which begins to believe it.
fn inherit_belief(this: &ThreadState) {
    // Where two threads fork at once it may be another's: then it stays blocked, unsampled.
    if SHOWS.swap(0, Relaxed) == thread_block() {
        let ours = sys::bit(this.signal());
        let before = sys::signal_mask(libc::SIG_UNBLOCK, ours);
        this.belief.set_blocked(before & ours != 0);
    }
}

/// In the child of a fork: forgets all that was the parent's and starts a CPU timer, with an event
/// that raises nothing beside it; the first sample does the rest, so that a child that execs or
/// exits at once costs little.
pub fn after_fork_in_child() {
    if !PROCESS.is_new_child() {
        return;
    }
    let began = Moment {
        at_ns: clock::monotonic_ns(),
        cpu_ns: sys::thread_cpu_ns(sys::gettid()).unwrap_or(0),
    };
    let parent = PROCESS.become_child();
    PROCESS.pace.forgive();
    charge::forget();
    SEGMENT.forget();
    clients::after_fork_in_child();
    if !PROCESS.is_main_thread() {
        // Another thread forked: it is the first of this process, on the stack that it has.
        PROCESS.set_main_stack_top(thread_block());
    }
    let before = arch::thread_word();
    arch::set_thread_word(core::ptr::null_mut());
    ThreadState::inherit(before.cast(), PROCESS.config().max_depth);
    let state = match Control::over() {
        true => None,
        false => ThreadState::allocate(PROCESS.config().max_depth).ok(),
    };
    let Some(state) = state else {
        handler_stack::take_back_of_parent(before);
        return;
    };
    PROCESS.activate(state.cast());
    // SAFETY: fresh, and this thread's from now on.
    let this = unsafe { ThreadState::adopt_late(state) };
    inherit_belief(this);
    this.handler_stack.lend(before);
    if !before.is_null() {
        // SAFETY: memory of states stays mapped, and that for labels as the parent had it.
        unsafe { this.regions.inherit(handler_stack::top_of(before), parent) };
    }
    this.birth.set_unfinished(true);
    this.arm_fork_child(None);
    this.count_arming_since(began);
}

/// The rest of a fork child's set-up, at its first signal.
///
/// # Signal safety
/// Raw system calls.
pub fn finish_fork_child(this: &ThreadState) {
    this.birth.set_unfinished(false);
    PROCESS.set_key_to_now();
    let identity = Identity::read(Origin::Fork);
    if let Err(errno) = create_segment(&identity) {
        family::refused(sys::getpid(), errno);
        this.disarm();
        return;
    }
    record(this, &identity);
    modules::record_known(this);
    this.settle_early();
    this.arm_again();
}

/// Before a thread is created, or a seccomp filter comes: a fork child that does so is not brief,
/// whether it saw a tick of the kernel's clock or not. Threads need what its first signal would set
/// up, and a filter may forbid that.
pub fn finish_early(this: &ThreadState) {
    if !this.birth.is_unfinished() {
        return;
    }
    let _held = HeldBack::ours();
    if this.birth.is_unfinished() {
        finish_fork_child(this);
        this.weigh_from_birth();
        thread::take_last(this);
    }
}

/// The rest of a fork child's set-up at its end, if it never saw a tick of the kernel's clock and
/// yet used a period or more.
fn finish_late(this: &ThreadState) -> bool {
    let _held = HeldBack::ours();
    if this.birth.is_unfinished() && this.cpu_ns().is_none_or(|used| used < PROCESS.asked_ns()) {
        return false;
    }
    if this.birth.is_unfinished() {
        finish_fork_child(this);
        this.weigh_from_birth();
    }
    true
}

/// The process ends: closes the accounts of all its threads.
pub fn end(reason: ThreadEndReason) {
    if !PROCESS.is_active() {
        return;
    }
    let Some(this) = ThreadState::current() else {
        return;
    };
    if this.birth.is_unfinished() && !finish_late(this) {
        return family::leave_taken(this.arming_ns());
    }
    this.tell_of_labels();
    thread::close(this, reason);
    registry::for_each_other(Some(this), |other| this.close_account_of(other, reason));
    charge::process_ends(this, reason);
}

/// The inode of the PID namespace; 0 where `/proc` is hidden.
fn own_pid_namespace() -> u64 {
    let mut buffer = [0u8; 64];
    let link = sys::read_link(b"/proc/self/ns/pid\0", &mut buffer);
    link.strip_prefix(b"pid:[")
        .and_then(|rest| rest.strip_suffix(b"]"))
        .and_then(parse_decimal)
        .unwrap_or(0)
}

fn line_value<'a>(text: &'a [u8], key: &[u8]) -> &'a [u8] {
    text.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(key))
        .unwrap_or(&[])
}

/// Puts the pid where the pattern has `%p`; a pattern without gets it before its extension, so that
/// children never share a file.
fn expand(pattern: &Text<PATH_SIZE>, pid: u32) -> Text<PATH_SIZE> {
    let pattern = pattern.bytes();
    let number = Text::<16>::new().decimal(u64::from(pid));
    let (place, skip) = match pattern.windows(2).position(|pair| pair == b"%p") {
        Some(at) => (at, 2usize),
        None => (
            pattern
                .len()
                .saturating_sub(if pattern.ends_with(b".rsu") { 3 } else { 0 }),
            0,
        ),
    };
    let (before, after) = pattern.split_at_checked(place).unwrap_or((pattern, &[]));
    let text = Text::new().then(before);
    let text = if skip == 0 && !before.ends_with(b".") {
        text.then(b".")
    } else {
        text
    };
    let text = text.then(number.bytes());
    let text = if skip == 0 && !after.is_empty() {
        text.then(b".")
    } else {
        text
    };
    text.then(after.get(skip..).unwrap_or(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_always_finds_its_place() {
        let expanded = |pattern: &[u8]| expand(&Text::new().then(pattern), 42).bytes().to_vec();
        assert_eq!(expanded(b"/tmp/prof.%p.rsu"), b"/tmp/prof.42.rsu");
        assert_eq!(expanded(b"/tmp/prof.rsu"), b"/tmp/prof.42.rsu");
        assert_eq!(expanded(b"/tmp/prof"), b"/tmp/prof.42");
        assert_eq!(expanded(b"%p"), b"42");
    }
}
