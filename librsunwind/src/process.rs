//! The process: its settings, its identity, its start, fork, exec and end.
//!
//! # Safety
//! Settings are written once, before any other thread or handler of ours exists, and read afterwards.
#![allow(unsafe_code)]

use crate::config::{Config, Destination, PATH_SIZE};
use crate::segment::{SEGMENT, Writer};
use crate::session::{self, Control};
use crate::sys::{self, Errno, HeldBack, KernelAction};
use crate::text::{Text, parse_decimal};
use crate::thread::{self, ThreadState};
use crate::trigger::{SIGNAL, cost};
use crate::{arch, clients, clock, handler, modules, sample, weak_address};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use engine::wire::event::{Event, EventKind};
use engine::wire::process::{Origin, Process as ProcessRecord};
use engine::wire::record::RecordKind;
use engine::wire::thread::ThreadEndReason;

/// Everything about the process that the runtime must remember.
pub struct Process {
    /// The pid for which the runtime is set up; 0 while it is not.
    active: AtomicU32,
    key: AtomicU64,
    period_ns: AtomicU64,
    main_stack_top: AtomicU64,
    /// Key of the process that this one was forked from.
    parent_key: AtomicU64,
    config: UnsafeCell<Option<Config>>,
}

// SAFETY: `config` is written once by `start`, before `active` is set.
unsafe impl Sync for Process {}

/// The one process.
pub static PROCESS: Process = Process {
    active: AtomicU32::new(0),
    key: AtomicU64::new(0),
    period_ns: AtomicU64::new(0),
    main_stack_top: AtomicU64::new(0),
    parent_key: AtomicU64::new(0),
    config: UnsafeCell::new(None),
};

/// Why the program runs unprofiled.
#[derive(Clone, Copy, Debug)]
pub enum StartError {
    /// A setting is wrong.
    Config(crate::config::ConfigError),
    /// The session is over, or its collector gone: nothing to say, it is an outliving descendant.
    SessionOver,
    /// The file for samples could not be made; [`crate::segment::Segment::path`] names it.
    Segment(Errno),
    /// Memory could not be had.
    Memory(Errno),
    /// The signal's action could not be set.
    Signal(Errno),
}

/// Facts that the kernel gave the program at its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Auxiliary {
    /// `AT_SYSINFO_EHDR`: where the vDSO lies, or 0.
    pub vdso: usize,
    /// `AT_EXECFN`: an address above all frames of the main thread's stack.
    pub above_stack: u64,
}

impl Auxiliary {
    /// Those of this process; nothing where libc has no `getauxval`.
    pub fn of_process() -> Self {
        type Getauxval = unsafe extern "C" fn(u64) -> u64;
        let getauxval = weak_address!("getauxval");
        if getauxval == 0 {
            return Self::default();
        }
        // SAFETY: the host's function of that signature.
        let value = |kind| unsafe { core::mem::transmute::<usize, Getauxval>(getauxval)(kind) };
        Self {
            vdso: value(libc::AT_SYSINFO_EHDR) as usize,
            above_stack: value(libc::AT_EXECFN),
        }
    }
}

impl Process {
    /// The settings. Call only once the runtime is set up.
    pub fn config(&self) -> &Config {
        // SAFETY: see the type.
        match unsafe { &*self.config.get() } {
            Some(config) => config,
            None => &crate::config::INACTIVE,
        }
    }

    /// Whether this very process (not the one it was forked from) is profiled.
    pub fn is_active(&self) -> bool {
        let pid = self.active.load(Acquire);
        pid != 0 && pid == sys::getpid()
    }

    /// Whether this process, or the one that it was forked from, was ever set up.
    pub fn was_started(&self) -> bool {
        self.active.load(Acquire) != 0
    }

    /// When the program image started: its name beside the pid.
    pub fn key(&self) -> u64 {
        self.key.load(Relaxed)
    }

    /// Sampling period in force, ns.
    pub fn period_ns(&self) -> u64 {
        self.period_ns.load(Relaxed)
    }

    /// One past the main thread's stack.
    pub fn main_stack_top(&self) -> u64 {
        self.main_stack_top.load(Relaxed)
    }

    /// Sets the whole runtime up and arms the calling thread.
    ///
    /// # Errors
    /// The program is then unprofiled, and unchanged.
    pub fn start(
        &self,
        config: Config,
        auxiliary: Auxiliary,
        origin: Origin,
    ) -> Result<(), StartError> {
        if let Destination::Session(directory) = config.destination {
            SEGMENT.set_path(directory);
            session::attach(directory).map_err(|error| match error {
                session::AttachError::Over => StartError::SessionOver,
                session::AttachError::Refused(errno) => StartError::Segment(errno),
            })?;
        }
        self.find_tables(auxiliary).map_err(StartError::Memory)?;
        let state = ThreadState::allocate(config.max_depth).map_err(StartError::Memory)?;
        // SAFETY: nothing of ours runs yet that reads it.
        unsafe { *self.config.get() = Some(config) };
        self.key.store(clock::monotonic_ns(), Relaxed);
        self.create_segment()?;
        handler::install().map_err(StartError::Signal)?;
        self.period_ns
            .store(cost::affordable_period_ns(&config), Relaxed);
        self.active.store(sys::getpid(), Release);
        // SAFETY: fresh, and this thread's from now on.
        let this = unsafe { ThreadState::adopt(state) };
        // A mask inherited across exec.
        this.believes_blocked =
            sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(SIGNAL)) & sys::bit(SIGNAL) != 0;
        self.record(this, origin);
        modules::record_vdso(this);
        modules::record_own(this);
        this.arm();
        Ok(())
    }

    /// What walks need, whether the process is recorded or not.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn find_tables(&self, auxiliary: Auxiliary) -> Result<(), Errno> {
        clock::find_vdso(auxiliary.vdso);
        self.main_stack_top.store(auxiliary.above_stack, Relaxed);
        modules::prepare(auxiliary.vdso)
    }

    fn create_segment(&self) -> Result<(), StartError> {
        let config = self.config();
        let writer = Writer {
            pid: sys::getpid(),
            process_key: self.key.load(Relaxed),
            start_ticks: own_start_ticks(),
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
        SEGMENT
            .create(writer, config.size)
            .map_err(StartError::Segment)
    }

    fn record(&self, this: &mut ThreadState, origin: Origin) {
        let (mut ids, mut executable, mut command) = ([0u8; 1024], [0u8; 1024], [0u8; 4096]);
        let status = sys::read_file(b"/proc/self/status\0", &mut ids);
        let ns_pids = line_value(status, b"NSpid:\t");
        let executable = sys::read_link(b"/proc/self/exe\0", &mut executable);
        let command = sys::read_file(b"/proc/self/cmdline\0", &mut command);
        let config = self.config();
        let record = ProcessRecord {
            origin,
            parent_pid: sys::getppid(),
            parent_key: self.parent_key.load(Relaxed),
            time_ns: self.key.load(Relaxed),
            realtime_offset_ns: clock::realtime_offset_ns(),
            start_ticks: own_start_ticks(),
            asked_period_ns: config.period_ns,
            period_ns: self.period_ns(),
            max_depth: config.max_depth as u64,
            ns_pids,
            pid_namespace: own_pid_namespace(),
            executable,
            command,
        };
        this.write(RecordKind::Process, |out| record.encode(out));
    }

    /// In the child of a fork: forgets all that was the parent's and starts a CPU timer; the first sample does the rest, so that a child
    /// that execs or exits at once costs next to nothing.
    pub fn after_fork_in_child(&self) {
        if !self.was_started() || self.active.load(Relaxed) == sys::getpid() {
            return;
        }
        self.parent_key.store(self.key.load(Relaxed), Relaxed);
        self.active.store(0, Release);
        SEGMENT.forget();
        thread::forget_all();
        clients::after_fork_in_child();
        arch::set_thread_pointer(core::ptr::null_mut());
        if Control::over() {
            return;
        }
        let Ok(state) = ThreadState::allocate(self.config().max_depth) else {
            return;
        };
        self.active.store(sys::getpid(), Release);
        // SAFETY: fresh, and this thread's from now on.
        let this = unsafe { ThreadState::adopt(state) };
        this.unfinished = true;
        this.arm_with_timer();
    }

    /// The rest of a fork child's set-up, at its first signal.
    ///
    /// # Signal safety
    /// Raw system calls.
    pub fn finish_fork_child(&self, this: &mut ThreadState) {
        this.unfinished = false;
        self.key.store(clock::monotonic_ns(), Relaxed);
        if self.create_segment().is_err() {
            this.disarm();
            return;
        }
        self.record(this, Origin::Fork);
        modules::record_known(this);
        this.arm_again();
    }

    /// Before a thread is created: a fork child that makes threads is not brief, whether it saw a tick of the kernel's clock or not, and
    /// they need what its first signal would set up.
    pub fn expect_thread(&self) {
        let Some(this) = ThreadState::current().filter(|this| this.unfinished) else {
            return;
        };
        let _held = HeldBack::new(SIGNAL);
        if this.unfinished {
            self.finish_fork_child(this);
            this.weigh_from_birth();
            sample::take_last(this);
        }
    }

    /// The rest of a fork child's set-up at its end, if it never saw a tick of the kernel's clock and yet used a period or more.
    fn finish_late(&self, this: &mut ThreadState) -> bool {
        let _held = HeldBack::new(SIGNAL);
        if this.unfinished && this.cpu_ns().is_none_or(|used| used < self.period_ns()) {
            return false;
        }
        if this.unfinished {
            self.finish_fork_child(this);
            this.weigh_from_birth();
        }
        true
    }

    /// The process ends: closes the accounts of all its threads.
    pub fn end(&self, reason: ThreadEndReason) {
        if !self.is_active() {
            return;
        }
        let Some(this) = ThreadState::current() else {
            return;
        };
        if this.unfinished && !self.finish_late(this) {
            return;
        }
        this.close(reason);
        // Two passes: the record is written through `this`, which the visit must not borrow.
        let mut others = [(0u32, 0u64); 256];
        let mut count = 0usize;
        thread::for_each_other(this, |tid, key| {
            if let Some(slot) = others.get_mut(count) {
                *slot = (tid, key);
                count = count.wrapping_add(1);
            }
        });
        for (tid, key) in others.into_iter().take(count) {
            this.close_account(tid, key, reason);
        }
    }

    /// Writes an event of this process to the calling thread's chunk.
    pub fn event(&self, this: &mut ThreadState, kind: EventKind, value: u64, text: &[u8]) {
        let event = Event {
            kind,
            time_ns: clock::monotonic_ns(),
            value,
            text,
        };
        this.write(RecordKind::Event, |out| event.encode(out));
    }
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

/// Field 22 of `/proc/self/stat`; 0 where `/proc` is hidden.
fn own_start_ticks() -> u64 {
    let mut buffer = [0u8; 1024];
    let stat = sys::read_file(b"/proc/self/stat\0", &mut buffer);
    // The command name in field 2 may hold anything, but the last parenthesis ends it.
    let rest = stat
        .iter()
        .rposition(|byte| *byte == b')')
        .and_then(|end| stat.get(end.wrapping_add(2)..));
    rest.and_then(|rest| rest.split(|byte| *byte == b' ').nth(19))
        .and_then(parse_decimal)
        .unwrap_or(0)
}

fn line_value<'a>(text: &'a [u8], key: &[u8]) -> &'a [u8] {
    text.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(key))
        .unwrap_or(&[])
}

/// Puts the pid where the pattern has `%p`; a pattern without gets it before its extension, so that children never share a file.
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

/// The action that the runtime installs.
pub fn own_action() -> KernelAction {
    KernelAction {
        handler: arch::signal_entry as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK) as u64 | sys::SA_RESTORER,
        restorer: arch::restorer(),
        mask: sys::ALL_BUT_FAULTS,
    }
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

    #[test]
    fn the_start_time_is_read_behind_any_command_name() {
        assert!(own_start_ticks() > 0);
    }
}
