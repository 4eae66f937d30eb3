//! The state of a thread, by purpose. It is reached by shared reference: the handler comes in while
//! ordinary code holds one.
//!
//! # Safety
//! A `ThreadState` is used by its own thread only; other threads look at [`Shared`] alone.
#![allow(unsafe_code)]

use super::account::Account;
use super::belief::Belief;
use super::birth::Birth;
use super::handler_stack::HandlerStack;
use super::output::Output;
use super::regions::Regions;
use super::requests::Requests;
use super::room::Room;
use super::shared::Shared;
use super::shim_words::ShimWords;
use super::trigger_slot::TriggerSlot;
use crate::budget::Budget;
use crate::handler_times::HandlerTimes;
use crate::restart::Calls;
use crate::{arch, sys};
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use engine::wire::sample::Frame;

/// What [`ThreadState`] begins with while it is live: a state that fork has wiped is all zeros.
const MAGIC: u64 = u64::from_le_bytes(*b"RSTHREAD");

/// See the module, and those of its parts. What the handler and ordinary code both use is atomic,
/// or used by ordinary code with the thread's signal held back: each part says which.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadState {
    magic: AtomicU64,
    /// The call of the program's that it is in: what each call needs is in the state's first line
    /// of the cache.
    pub calls: Calls,
    /// Where the shim comes from and goes to.
    pub(crate) shim: ShimWords,
    /// Where the handler runs.
    pub handler_stack: HandlerStack,
    /// What other threads look at.
    pub shared: Shared,
    /// What the program believes of our signal.
    pub belief: Belief,
    /// How the thread came to be.
    pub birth: Birth,
    /// What samples it.
    pub trigger: TriggerSlot,
    /// What its walks may take.
    pub(crate) budget: Budget,
    /// What clients ask of it.
    pub(crate) requests: Requests,
    /// The regions that it is in.
    pub(crate) regions: Regions,
    /// What its walks use.
    pub(crate) room: Room,
    /// What it has used.
    pub(super) account: Account,
    /// Where it writes.
    pub(super) output: Output,
    /// How long its handler takes.
    pub(crate) times: HandlerTimes,
}

impl ThreadState {
    /// Where [`ThreadState::calls`] is found, for a shim.
    pub const CALLS: usize = offset_of!(Self, calls);

    /// A state for the next thread, claimed.
    ///
    /// # Safety
    /// As [`Room::new`]; `stack_top` is the end of memory that only the handler uses, as its stack,
    /// with that of the regions below it.
    pub(super) unsafe fn new(stack_top: usize, frames: *mut Frame, max_depth: usize) -> Self {
        Self {
            magic: AtomicU64::new(MAGIC),
            calls: Calls::new(),
            shim: ShimWords::new(stack_top),
            handler_stack: HandlerStack::new(stack_top),
            shared: Shared::new(max_depth),
            belief: Belief::default(),
            birth: Birth::default(),
            trigger: TriggerSlot::new(),
            budget: Budget::default(),
            requests: Requests::new(),
            regions: Regions::new(stack_top),
            // SAFETY: the caller's promise.
            room: unsafe { Room::new(frames, max_depth) },
            account: Account::default(),
            output: Output::new(),
            times: HandlerTimes::default(),
        }
    }

    /// The calling thread's live state: not a wiped one in a fork child, not one seen from a vfork
    /// child or a raw clone that shares this thread's memory.
    pub fn current() -> Option<&'static Self> {
        let state = Self::current_unchecked()?;
        // Where a filter forbids to ask, there are no such children, as a rule.
        (state.tid() == sys::gettid() || !sys::knows_tid()).then_some(state)
    }

    /// Like [`ThreadState::current`], for a handler entered by a signal that only this thread can
    /// get: saves the system call.
    pub fn current_unchecked() -> Option<&'static Self> {
        // SAFETY: null, or the mapping of this thread, which stays until the thread has cleared the
        // pointer.
        unsafe { Self::live(arch::thread_word().cast()) }
    }

    /// What the calling thread knows of its calls, if its samples can end them. A state that fork
    /// has wiped says they cannot.
    #[inline]
    pub fn calls_of_current() -> Option<&'static Calls> {
        // SAFETY: as above.
        let state = unsafe { arch::thread_word().cast::<Self>().as_ref() };
        state
            .map(|state| &state.calls)
            .filter(|calls| calls.are_ended())
    }

    /// The state at an address, if it is live.
    ///
    /// # Safety
    /// The address is null, or that of a state, perhaps wiped, which stays.
    pub(super) unsafe fn live(state: *const Self) -> Option<&'static Self> {
        // SAFETY: the caller's promise. Any bytes are a valid word; a state that begins with that
        // one is whole.
        unsafe {
            let magic = (!state.is_null()).then(|| &(*state).magic)?;
            (magic.load(Relaxed) == MAGIC).then(|| &*state)
        }
    }

    /// The thread's id in its own PID namespace.
    pub fn tid(&self) -> u32 {
        self.shared.tid.load(Relaxed)
    }

    /// What its trigger raises.
    pub fn signal(&self) -> i32 {
        self.belief.signal()
    }

    /// When it was first seen (`CLOCK_MONOTONIC`, ns).
    pub fn key(&self) -> u64 {
        self.shared.key.load(Relaxed)
    }
}
