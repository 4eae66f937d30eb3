//! What is known of the process: its settings and its identity. Its life (start, fork, end) is in
//! [`crate::life`].
//!
//! # Safety
//! Settings are written once, before any other thread or handler of ours exists, and read
//! afterwards.
#![allow(unsafe_code)]

use crate::config::Config;
use crate::pace::Pace;
use crate::{arch, clock, sys};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Everything about the process that the runtime must remember.
pub struct Process {
    /// The pid for which the runtime is set up; 0 while it is not.
    active: AtomicU32,
    key: AtomicU64,
    period_ns: AtomicU64,
    /// How far samples are apart, and what they may take.
    pub(crate) pace: Pace,
    /// What an event costs, ns; 0 if that was not asked.
    event_cost_ns: AtomicU64,
    /// One past the stack of the first thread.
    main_stack_top: AtomicU64,
    /// The first thread's [`arch::thread_word`].
    main_thread: AtomicPtr<c_void>,
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
    pace: Pace::new(),
    event_cost_ns: AtomicU64::new(0),
    main_stack_top: AtomicU64::new(0),
    main_thread: AtomicPtr::new(core::ptr::null_mut()),
    parent_key: AtomicU64::new(0),
    config: UnsafeCell::new(None),
};

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

    /// The shortest time between two samples, ns.
    pub fn asked_ns(&self) -> u64 {
        self.period_ns().saturating_mul(self.pace.least())
    }

    /// Cost of an event with its signal, ns, where it mattered and was found out.
    pub fn event_cost_ns(&self) -> Option<u64> {
        Some(self.event_cost_ns.load(Relaxed)).filter(|cost| *cost != 0)
    }

    /// One past the main thread's stack.
    pub fn main_stack_top(&self) -> u64 {
        self.main_stack_top.load(Relaxed)
    }

    /// Takes the settings.
    ///
    /// # Safety
    /// Nothing of ours runs yet that reads them.
    pub(crate) unsafe fn set_config(&self, config: Config) {
        // SAFETY: the caller's promise.
        unsafe { *self.config.get() = Some(config) };
    }

    /// The program image starts now, as far as recordings are concerned.
    pub(crate) fn set_key_to_now(&self) {
        self.key.store(clock::monotonic_ns(), Relaxed);
    }

    /// Sets what an event costs, ns.
    pub(crate) fn set_event_cost_ns(&self, cost: u64) {
        self.event_cost_ns.store(cost, Relaxed);
    }

    /// Sets the sampling period in force.
    pub(crate) fn set_period_ns(&self, period_ns: u64) {
        self.period_ns.store(period_ns, Relaxed);
    }

    /// Whether the calling thread is the first one.
    pub(crate) fn is_main_thread(&self) -> bool {
        arch::thread_word() == self.main_thread.load(Relaxed)
    }

    /// Sets where the main thread's stack ends.
    pub(crate) fn set_main_stack_top(&self, top: u64) {
        self.main_stack_top.store(top, Relaxed);
    }

    /// The runtime is set up for this very process, whose first thread has that word.
    pub(crate) fn activate(&self, main_thread: *mut c_void) {
        self.active.store(sys::getpid(), Release);
        self.main_thread.store(main_thread, Relaxed);
    }

    /// Whether this is the child of a process that is profiled, and knows nothing of it yet.
    pub(crate) fn is_new_child(&self) -> bool {
        self.was_started() && self.active.load(Relaxed) != sys::getpid()
    }

    /// In such a child: what was known of this process is known of its parent, whose
    /// pid this gives.
    pub(crate) fn become_child(&self) -> u32 {
        self.parent_key.store(self.key.load(Relaxed), Relaxed);
        self.active.swap(0, Release)
    }

    /// Key of the process that this one was forked from; 0 if there is none.
    pub(crate) fn parent_key(&self) -> u64 {
        self.parent_key.load(Relaxed)
    }
}
