//! One profiled thread: its memory, its trigger, its chunk of the segment, its account.
//!
//! All of it lies in one mapping of its own, found through one thread-local word:
//!
//! ```text
//! | guard page | handler stack … <- stack_top | ThreadState | frames of this sample | of the sample before | spare |
//! ```
//!
//! A fork child sees the mapping filled with zeros (`MADV_WIPEONFORK`): `magic` is gone, and nothing inherited is ever touched.
//!
//! # Safety
//! A `ThreadState` is used by its own thread only, in ordinary code with [`crate::trigger::SIGNAL`] unable to interrupt what matters, or in
//! the handler; other threads read its atomics.
#![allow(unsafe_code)]

mod arming;
pub mod end;
mod records;
mod registry;

pub use registry::{for_each_other, forget_all, wait_for_walks};

use crate::clients::{self, Requests};
use crate::cpu_meter::CpuMeter;
use crate::process::PROCESS;
use crate::segment::Chunk;
use crate::sys::{self, Errno, PAGE};
use crate::trigger::Armed;
use crate::{arch, clock, sample};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use engine::memory::StackMemory;
use engine::wire::chunk::ThreadTotals;
use engine::wire::kernel::{self, KernelHead};
use engine::wire::offer::MAX_EVENTS;
use engine::wire::record::RecordKind;
use engine::wire::sample::{Frame, Held, SampleHead, Trigger};
use engine::wire::thread::{Thread, ThreadEnd, ThreadEndReason};

/// What [`ThreadState::magic`] holds in a live state.
const MAGIC: u64 = u64::from_le_bytes(*b"RSTHREAD");
/// Bytes of a thread's name as the kernel gives it, with its zero byte.
const NAME_SIZE: usize = 16;
const STACK_SIZE: usize = 64 * 1024;

/// See the module.
#[repr(C)]
pub struct ThreadState {
    magic: u64,
    /// Where the shim left the interrupted stack.
    pub(crate) saved_sp: usize,
    /// Where the shim goes.
    pub(crate) stack_top: usize,
    /// Where ordinary code waits for a call on that stack; 0 while it does not.
    pub(crate) call_slot: usize,
    /// 1 while a thread has it.
    claimed: AtomicU32,
    /// The thread this is, or 0 before it runs.
    pub tid: AtomicU32,
    /// When it was first seen (`CLOCK_MONOTONIC`, ns).
    pub key: AtomicU64,
    /// What samples it.
    pub armed: Armed,
    /// Odd while the handler walks: what unloading a module waits for.
    pub walking: AtomicU64,
    /// Bounds of its stack.
    pub stack: StackMemory,
    /// Whether the program believes that [`crate::trigger::SIGNAL`] is blocked.
    pub believes_blocked: bool,
    /// Whether a signal that the program is owed waits for it to unblock.
    pub owed: bool,
    /// The stack pointer of the call for whose length the signal is blocked by us; 0 if it is not.
    pub shielded: u64,
    /// Walks in a row that took longer than the program could bear at the rate asked for.
    pub slow_walks: u8,
    /// Until when the program is left to itself because of that (`CLOCK_MONOTONIC`, ns).
    pub rests_until_ns: u64,
    /// Changes when a handler of the program's runs.
    pub handled: u64,
    /// That call, until the signal has come in behind it.
    pub held: Option<Held>,
    /// `si_fd` of the perf events before, -1 in unused slots: a signal of theirs may still be pending.
    pub past_descriptors: [i32; MAX_EVENTS],
    /// The collector may hold events that this thread has opened, armed or not.
    pub lent: bool,
    /// Not yet fully set up: the first signal does the rest (fork children).
    pub unfinished: bool,
    /// What clients ask of it.
    pub(crate) requests: Requests,
    /// The last nonce: they grow from one trigger to the next.
    pub nonce: u64,
    /// What the thread is to run, from `pthread_create`.
    pub start: Start,
    chunk: Option<Chunk>,
    committed: usize,
    arming: Arming,
    name: [u8; NAME_SIZE],
    totals: ThreadTotals,
    meter: CpuMeter,
    before: Option<(SampleHead, usize)>,
    kernel_before: Option<(KernelHead, usize)>,
    kernel_frames: [u64; kernel::MAX_DEPTH],
    /// Room for each of two stacks, in frames.
    room: usize,
    frames: [*mut Frame; 2],
    /// As much again for walks that are no sample.
    spare: *mut Frame,
}

/// How the thread was armed last.
#[derive(Clone, Copy, Debug)]
struct Arming {
    period_ns: u64,
    refused: Errno,
    unarmed_cpu_ns: u64,
}

impl Default for Arming {
    fn default() -> Self {
        Self {
            period_ns: 0,
            refused: Errno(0),
            unarmed_cpu_ns: 0,
        }
    }
}

/// What `pthread_create` was given.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The thread's function.
    pub function: usize,
    /// Its argument.
    pub argument: *mut c_void,
}

impl ThreadState {
    /// Memory for a thread that is about to start: new, or that of a thread that has ended.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn allocate(max_depth: usize) -> Result<*mut Self, Errno> {
        if let Some(state) = registry::reusable(max_depth) {
            return Ok(state);
        }
        let frames_size = max_depth.saturating_mul(size_of::<Frame>());
        let state_offset = PAGE + STACK_SIZE;
        let frames_offset = state_offset + size_of::<Self>().next_multiple_of(64);
        let size = frames_offset
            .saturating_add(frames_size.saturating_mul(3))
            .next_multiple_of(PAGE);
        let mapping = sys::map_anonymous(size)?;
        sys::protect_none(mapping, PAGE);
        sys::advise(mapping, size, libc::MADV_WIPEONFORK);
        let state = mapping.wrapping_add(state_offset).cast::<Self>();
        let first = mapping.wrapping_add(frames_offset).cast::<Frame>();
        // SAFETY: fresh zeroed memory of sufficient size and alignment.
        unsafe {
            state.write(Self {
                magic: MAGIC,
                saved_sp: 0,
                stack_top: state as usize,
                call_slot: 0,
                claimed: AtomicU32::new(1),
                tid: AtomicU32::new(0),
                key: AtomicU64::new(0),
                armed: Armed::None,
                walking: AtomicU64::new(0),
                stack: StackMemory::new(0, 0),
                believes_blocked: false,
                owed: false,
                shielded: 0,
                slow_walks: 0,
                rests_until_ns: 0,
                handled: 0,
                held: None,
                past_descriptors: [-1; MAX_EVENTS],
                lent: false,
                unfinished: false,
                requests: Requests::new(),
                nonce: 0,
                start: Start {
                    function: 0,
                    argument: ptr::null_mut(),
                },
                chunk: None,
                committed: 0,
                arming: Arming::default(),
                name: [0; NAME_SIZE],
                totals: ThreadTotals::default(),
                meter: CpuMeter::default(),
                before: None,
                kernel_before: None,
                kernel_frames: [0; kernel::MAX_DEPTH],
                room: max_depth,
                frames: [first, first.wrapping_add(max_depth)],
                spare: first.wrapping_add(max_depth.saturating_mul(2)),
            });
        }
        registry::register(state);
        Ok(state)
    }

    /// Leaves a state to the next thread. Its memory stays mapped: others may be looking at its atomics.
    ///
    /// # Safety
    /// No thread uses it.
    pub unsafe fn release(state: *mut Self) {
        // SAFETY: the caller's promise.
        let this = unsafe { &mut *state };
        this.tid.store(0, Release);
        this.armed = Armed::None;
        this.stack = StackMemory::new(0, 0);
        (this.believes_blocked, this.owed) = (false, false);
        (this.lent, this.unfinished) = (false, false);
        this.requests.abandon();
        (this.shielded, this.past_descriptors) = (0, [-1; MAX_EVENTS]);
        (this.slow_walks, this.rests_until_ns) = (0, 0);
        this.held = None;
        (this.nonce, this.chunk, this.committed) = (0, None, 0);
        (this.before, this.kernel_before) = (None, None);
        this.totals = ThreadTotals::default();
        this.claimed.store(0, Release);
    }

    /// The calling thread's live state: not a wiped one in a fork child, not one seen from a vfork child or a raw clone that shares
    /// this thread's memory.
    pub fn current() -> Option<&'static mut Self> {
        let state = Self::current_unchecked()?;
        (state.tid.load(Relaxed) == sys::gettid()).then_some(state)
    }

    /// Like [`ThreadState::current`], for a handler entered by a signal that only this thread can get: saves the system call.
    pub fn current_unchecked() -> Option<&'static mut Self> {
        // SAFETY: null, or the mapping of this thread, which stays until the thread has cleared the pointer.
        let state = unsafe { arch::thread_pointer().as_mut() }?;
        (state.magic == MAGIC).then_some(state)
    }

    /// Makes this the calling thread's state and registers it.
    ///
    /// # Safety
    /// `state` came from [`ThreadState::allocate`] and is no other thread's.
    pub unsafe fn adopt(state: *mut Self) -> &'static mut Self {
        // SAFETY: the caller's promise.
        let this = unsafe { &mut *state };
        this.key.store(clock::monotonic_ns(), Relaxed);
        this.tid.store(sys::gettid(), Relaxed);
        // A thread that libc made has its control block above its stack, in the same mapping.
        let (sp, block) = (arch::stack_pointer(), arch::thread_block());
        let top = if sys::gettid() == sys::getpid() {
            PROCESS.main_stack_top()
        } else {
            block
        };
        if top > sp && top.wrapping_sub(sp) < 1 << 30 {
            this.stack = StackMemory::new(sp, top);
        }
        arch::set_thread_pointer(state);
        this
    }

    /// The same for a thread that has run for a while, and may be on any stack: of its own only what cannot but be there is taken for
    /// granted, the rest found by probing.
    ///
    /// # Safety
    /// As [`ThreadState::adopt`].
    pub unsafe fn adopt_late(state: *mut Self) {
        // SAFETY: the caller's promise.
        let this = unsafe { Self::adopt(state) };
        let (_, top) = this.stack.verified();
        let page = top.saturating_sub(1) & !(PAGE as u64).wrapping_sub(1);
        this.stack = StackMemory::new(page, top);
    }

    /// Records the thread's name with how it is sampled, if it is not the one recorded before: programs name threads that run already.
    ///
    /// # Signal safety
    /// Raw system calls.
    pub fn record_name(&mut self) {
        let name = sys::thread_name();
        let first = self.name == [0; NAME_SIZE];
        if name == self.name && !first {
            return;
        }
        self.name = name;
        let thread = Thread {
            time_ns: clock::monotonic_ns(),
            trigger: self.armed.kind(),
            period_ns: self.arming.period_ns,
            refused: self.arming.refused.0 as u32,
            unarmed_cpu_ns: self.arming.unarmed_cpu_ns,
            name: name.split(|byte| *byte == 0).next().unwrap_or(&[]),
        };
        self.write(RecordKind::Thread, |out| thread.encode(out));
    }

    /// Whether none was written yet.
    pub fn has_no_samples(&self) -> bool {
        self.totals.samples.load(Relaxed) == 0
    }

    /// Its CPU time, ns.
    pub fn cpu_ns(&self) -> Option<u64> {
        sys::thread_cpu_ns(self.tid.load(Relaxed)).ok()
    }

    /// Counts all CPU time of the thread, from its beginning, as not yet given.
    pub fn weigh_from_birth(&mut self) {
        self.meter = CpuMeter::starting_at(0);
    }

    /// Weight of a sample now; `counted` where the thread's clock cannot be read.
    ///
    /// # Signal safety
    /// One system call.
    pub fn take_weight(&mut self, counted: u64) -> u64 {
        let Some(cpu_ns) = self.cpu_ns() else {
            return counted;
        };
        self.totals.cpu_ns.store(cpu_ns, Relaxed);
        self.meter.take(cpu_ns, PROCESS.period_ns())
    }

    /// Weight of a sample that its timer tells.
    ///
    /// # Signal safety
    /// Arithmetic only.
    pub fn told_weight(&mut self, weight: u64) -> u64 {
        self.meter.give(weight);
        weight
    }

    /// Takes the last sample and closes this thread's account. For ordinary code: the sample uses the handler's stack.
    pub fn close(&mut self, reason: ThreadEndReason) {
        sample::take_last(self);
        self.record_name();
        self.close_here(reason);
    }

    /// Closes this thread's account.
    ///
    /// # Signal safety
    /// Raw system calls.
    pub fn close_here(&mut self, reason: ThreadEndReason) {
        let tid = self.tid.load(Relaxed);
        self.close_account(tid, self.key.load(Relaxed), reason);
    }

    /// Writes a thread's final CPU time, of this thread or another of the process.
    pub fn close_account(&mut self, tid: u32, thread_key: u64, reason: ThreadEndReason) {
        let Ok(cpu_ns) = sys::thread_cpu_ns(tid) else {
            return;
        };
        let end = ThreadEnd {
            tid,
            thread_key,
            time_ns: clock::monotonic_ns(),
            cpu_ns,
            reason,
        };
        self.write(RecordKind::ThreadEnd, |out| end.encode(out));
    }

    /// The thread ends: account, trigger, chunk, memory.
    ///
    /// # Safety
    /// Ordinary code of the thread itself, not on the handler stack; the state is not used afterwards.
    pub unsafe fn end(state: *mut Self) {
        clients::broker::answer_last(state);
        // SAFETY: the caller's promise.
        let this = unsafe { &mut *state };
        this.close(ThreadEndReason::ThreadExit);
        this.disarm();
        // A signal that is still pending finds no state and does nothing.
        arch::set_thread_pointer(ptr::null_mut());
        if let Some(chunk) = this.chunk.take() {
            chunk.seal();
        }
        // SAFETY: out of reach of the handler, and the thread does not come back to it.
        unsafe { Self::release(state) };
    }

    /// The next nonce of a trigger that has none of its own.
    pub fn next_nonce(&mut self) -> u64 {
        self.nonce = self.nonce.wrapping_add(1).max(1);
        self.nonce
    }

    /// Where its perf ring stands: what is sampled from now on is behind that.
    pub fn cursor(&self) -> u64 {
        match &self.armed {
            Armed::Perf(event) => event.cursor(),
            _ => self.nonce,
        }
    }

    /// What samples it.
    pub fn trigger(&self) -> Trigger {
        self.armed.kind()
    }
}
