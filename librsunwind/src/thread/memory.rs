//! The memory of a thread's state: made, given to a thread, left by it, given to the next.
//!
//! # Safety
//! A state is used by one thread at a time: who claims it, then the thread that adopts it, until
//! that releases it.
#![allow(unsafe_code)]

use super::handler_stack;
use super::regions;
use super::registry;
use super::room::Room;
use super::state::ThreadState;
use crate::process::PROCESS;
use crate::signal;
use crate::sys::{self, Errno, HeldBack, PAGE};
use crate::{arch, clock};
use core::sync::atomic::Ordering::{Relaxed, Release};
use engine::memory::StackMemory;
use engine::registers::thread_block;
use engine::wire::sample::{Frame, Trigger};

/// Where a state begins in its mapping: behind a guard, room for labels and the handler's stack.
const STATE_OFFSET: usize = PAGE + regions::ROOM + handler_stack::SIZE;
const FRAMES_OFFSET: usize = size_of::<ThreadState>().next_multiple_of(64);

/// So long making a state takes at most: what is more others had the processor for, ns.
const MADE_NS: u64 = 20_000;

impl ThreadState {
    /// Memory for a thread that is about to start: new, or that of a thread that has ended.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn allocate(max_depth: usize) -> Result<*mut Self, Errno> {
        if let Some(state) = registry::reusable(max_depth) {
            return Ok(state);
        }
        if let Some(state) = registry::abandoned() {
            // SAFETY: its thread is gone, and nobody else was given it.
            unsafe { Self::bury(state) };
            if let Some(state) = registry::reusable(max_depth) {
                return Ok(state);
            }
        }
        let began_ns = clock::monotonic_ns();
        let size = mapping_size(max_depth);
        let mapping = sys::map_anonymous(size)?;
        sys::protect_none(mapping, PAGE);
        // Not the stack: a handler of the program's may stand there, and fork. Nor the labels.
        sys::advise(
            mapping.wrapping_add(STATE_OFFSET),
            size.wrapping_sub(STATE_OFFSET),
            libc::MADV_WIPEONFORK,
        );
        // SAFETY: fresh zeroed memory of sufficient size and alignment, with the handler's stack
        // below.
        let state = unsafe { place(mapping.wrapping_add(STATE_OFFSET), max_depth) };
        registry::register(state);
        let made_ns = clock::monotonic_ns().saturating_sub(began_ns);
        PROCESS.pace.spend(made_ns.min(MADE_NS));
        Ok(state)
    }

    /// Takes the memory of a state away that no thread has had.
    ///
    /// # Safety
    /// It came from [`ThreadState::allocate`] with that depth, and nobody uses it.
    pub(crate) unsafe fn unmake(state: *mut Self, max_depth: usize) {
        registry::unregister(state);
        let mapping = state.cast::<u8>().wrapping_sub(STATE_OFFSET);
        // SAFETY: the caller's promise.
        unsafe { sys::unmap(mapping, mapping_size(max_depth)) };
    }

    /// The end of the stack of a state's handler, which nothing else uses before there is one.
    ///
    /// # Safety
    /// It came from [`ThreadState::allocate`].
    pub unsafe fn handler_stack_top(state: *const Self) -> usize {
        // SAFETY: the caller's promise.
        unsafe { (*state).handler_stack.top() }
    }

    /// In a fork child, before anything else looks: the states of the parent's threads, which fork
    /// has wiped, are the child's own. `own` is the calling thread's, or null.
    pub fn inherit(own: *mut Self, max_depth: usize) {
        registry::inherit(own, |state| {
            // SAFETY: a state of the parent's, or zeros where it was.
            if unsafe { Self::live(state) }.is_some() {
                return false; // the kernel does not wipe
            }
            // SAFETY: memory of a state with as much room, since the settings never change; nobody
            // has it in this process.
            unsafe {
                let state = place(state.cast(), max_depth);
                (*state).shared.release();
            }
            true
        });
    }

    /// Does for a thread that is gone without a word what can be done without it: keeps what it has
    /// recorded, and leaves its state.
    ///
    /// # Safety
    /// As [`ThreadState::release`].
    unsafe fn bury(state: *mut Self) {
        let _held = HeldBack::all();
        // SAFETY: the caller's promise.
        let this = unsafe { &*state };
        this.drain_perf();
        this.seal_chunk();
        // SAFETY: the caller's promise.
        unsafe { Self::release(state) };
    }

    /// Leaves a state to the next thread. Its memory stays mapped: others may be looking at what
    /// they share.
    ///
    /// # Safety
    /// No thread uses it, nor any reference to it.
    pub unsafe fn release(state: *mut Self) {
        // SAFETY: the caller's promise.
        let this = unsafe { &*state };
        #[cfg(feature = "inside")]
        forget_word(state);
        this.shared.tid.store(0, Release);
        // SAFETY: the caller's promise.
        unsafe { this.trigger.reset() };
        this.calls.ended_by(Trigger::None);
        this.room.reset();
        this.handler_stack.reset();
        this.belief.reset();
        this.birth.reset();
        this.budget.reset();
        this.requests.abandon();
        this.regions.reset();
        this.account.reset();
        this.output.begin(None);
        this.shared.release();
        registry::leave(&this.shared);
    }

    /// Makes this the state of the calling thread, which libc has just started: it stands on its
    /// own stack.
    ///
    /// # Safety
    /// `state` came from [`ThreadState::allocate`] and is no other thread's.
    pub unsafe fn adopt(state: *mut Self) -> &'static Self {
        // A thread that libc made has its control block above its stack, in the same mapping.
        let (sp, block) = (arch::stack_pointer(), thread_block());
        let stack = match block.checked_sub(sp) {
            Some(below) if below < 1 << 30 => StackMemory::new(sp, block),
            _ => StackMemory::new(0, 0),
        };
        // SAFETY: the caller's promise.
        unsafe { Self::take(state, stack) }
    }

    /// The same for a thread that may be on any stack, because it has run for a while or is being
    /// set up on another one: of its own only what cannot but be there is taken for granted, the
    /// page at its top; walks find the rest, each page once.
    ///
    /// # Safety
    /// As [`ThreadState::adopt`].
    pub unsafe fn adopt_late(state: *mut Self) -> &'static Self {
        let top = if sys::gettid() == sys::getpid() {
            PROCESS.main_stack_top()
        } else {
            known_top()
        };
        let page = top.saturating_sub(1) & !(PAGE as u64).wrapping_sub(1);
        // SAFETY: the caller's promise.
        unsafe { Self::take(state, StackMemory::new(page, top)) }
    }

    /// What is known to be there of the thread's stack: its lowest byte, and behind its highest.
    pub(crate) fn known_stack(&self) -> (u64, u64) {
        self.room.stack.get().verified()
    }

    /// Looks how far down the calling thread's stack reaches, some way: soon nobody may ask any
    /// more.
    pub fn learn_stack(&self) {
        let _held = HeldBack::all();
        let mut stack = self.room.stack.get();
        stack.begin(arch::stack_pointer().saturating_sub(WAY_DOWN));
        self.room.stack.set(stack);
    }

    unsafe fn take(state: *mut Self, stack: StackMemory) -> &'static Self {
        // SAFETY: the caller's promise.
        let this = unsafe { &*state };
        this.shared.key.store(clock::monotonic_ns(), Relaxed);
        this.shared.tid.store(sys::gettid(), Relaxed);
        this.room.stack.set(stack);
        if this.signal() == 0 {
            this.belief.set_signal(signal::current());
        }
        #[cfg(feature = "inside")]
        this.shared.block.store(thread_block(), Relaxed);
        arch::set_thread_word(state.cast());
        this
    }
}

/// The top of the calling thread's stack, if it is one that libc made: its control block is there.
fn known_top() -> u64 {
    let block = thread_block();
    // What other makers of threads have there may be anything.
    #[cfg(feature = "inside")]
    {
        // SAFETY: just found readable.
        let is_own = block.is_multiple_of(8)
            && engine::memory::is_readable(block)
            && unsafe { engine::memory::load_verified(block) } == block;
        if !is_own {
            return 0;
        }
    }
    block
}

/// The thread that had the state is gone.
#[cfg(feature = "inside")]
fn forget_word(state: *mut ThreadState) {
    // SAFETY: the caller of `release` has it.
    let tid = unsafe { &*state }.shared.tid.load(Relaxed);
    arch::forget_thread(tid, state.cast());
}

/// How far down a stack is looked at in advance, bytes.
const WAY_DOWN: u64 = 60 * PAGE as u64;

/// Bytes of the mapping of a state.
fn mapping_size(max_depth: usize) -> usize {
    let size = STATE_OFFSET.saturating_add(size_with(max_depth));
    size.next_multiple_of(PAGE)
}

/// Bytes of a state with room for stacks of so many frames.
fn size_with(max_depth: usize) -> usize {
    FRAMES_OFFSET.saturating_add(Room::bytes(max_depth))
}

/// Makes a state there.
///
/// # Safety
/// [`size_with`] bytes, aligned to 64, that nobody else uses; below them the handler's stack.
unsafe fn place(memory: *mut u8, max_depth: usize) -> *mut ThreadState {
    let state = memory.cast::<ThreadState>();
    let frames = memory.wrapping_add(FRAMES_OFFSET).cast::<Frame>();
    // SAFETY: the caller's promise.
    unsafe { state.write(ThreadState::new(memory as usize, frames, max_depth)) };
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line(#[expect(dead_code, reason = "memory")] [u8; 64]);

    const DEPTH: usize = 16;

    fn memory() -> Vec<Line> {
        vec![Line([0; 64]); size_with(DEPTH).div_ceil(64)]
    }

    #[test]
    fn a_handler_may_come_in_while_ordinary_code_holds_the_state() {
        let mut memory = memory();
        // SAFETY: aligned memory of that size; there is no handler.
        let state = unsafe { place(memory.as_mut_ptr().cast(), DEPTH) };
        // SAFETY: as above.
        let ordinary = unsafe { ThreadState::live(state) }.expect("a live state");
        let handler = || {
            // SAFETY: as above.
            let this = unsafe { ThreadState::live(state) }.expect("the same");
            let walking = this.shared.begin_walk(0);
            this.shim.saved_sp.set(1);
            // SAFETY: used here alone.
            let frames = unsafe { this.room.next() };
            frames
                .iter_mut()
                .for_each(|frame| *frame = Frame::default());
            this.room.swap();
            this.belief.owe(&[0; 16]);
            this.account.count_sample(1, true);
            this.shared.end_walk(walking);
        };
        ordinary.belief.set_blocked(true);
        handler();
        assert!(ordinary.belief.is_blocked() && ordinary.belief.take_owed());
        handler();
        assert_eq!(ordinary.shim.saved_sp.get(), 1);
        assert_eq!(ordinary.shared.walking.load(Relaxed), 4);
        assert_eq!(ordinary.account.totals.samples.load(Relaxed), 2);
    }

    #[test]
    fn a_state_goes_from_thread_to_thread() {
        let mut memory = memory();
        // SAFETY: as above.
        let state = unsafe { place(memory.as_mut_ptr().cast(), DEPTH) };
        registry::register(state);
        // SAFETY: as above; other threads see this part alone.
        let shared = unsafe { &(*state).shared };
        shared.tid.store(7, Relaxed);
        assert_eq!(registry::reusable(DEPTH), None, "a thread has it");
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                registry::for_each_other(None, |other| seen.push(other.tid.load(Relaxed)));
            });
            // SAFETY: the calling thread's.
            let this = unsafe { ThreadState::live(state) }.expect("a live state");
            this.belief.set_blocked(true);
            this.account.count_sample(1, true);
            other.join().expect("no panic");
        });
        assert_eq!(seen, [7]);
        // SAFETY: nobody uses it any more.
        unsafe { ThreadState::release(state) };
        assert_eq!(registry::reusable(DEPTH + 1), None, "not that deep");
        assert_eq!(registry::reusable(DEPTH), Some(state));
        assert_eq!(registry::reusable(DEPTH), None, "claimed");
        // SAFETY: claimed above.
        let next = unsafe { ThreadState::live(state) }.expect("a live state");
        assert!(!next.belief.is_blocked() && next.tid() == 0);
        // Fork leaves zeros.
        // SAFETY: all of it, used by nobody.
        unsafe { state.cast::<u8>().write_bytes(0, size_with(DEPTH)) };
        ThreadState::inherit(state, DEPTH);
        assert_eq!(registry::reusable(DEPTH), Some(state), "the child's own");
        registry::inherit(core::ptr::null_mut(), |_| false);
        assert_eq!(registry::reusable(DEPTH), None);
    }

    #[test]
    fn a_wiped_state_is_none() {
        let memory = memory();
        // SAFETY: zeroed memory, as fork leaves it; and null.
        unsafe {
            assert!(ThreadState::live(memory.as_ptr().cast()).is_none());
            assert!(ThreadState::live(core::ptr::null()).is_none());
        }
    }
}
