//! The memory of a thread's state: made, given to a thread, left by it, given to the next.
//!
//! # Safety
//! A state is used by one thread at a time: who claims it, then the thread that adopts it, until
//! that releases it.
#![allow(unsafe_code)]

use super::layout::{self, Place};
use super::registry;
use super::state::ThreadState;
use crate::process::PROCESS;
use crate::signal;
use crate::sys::{self, Errno, HeldBack, PAGE};
use crate::{arch, clock};
use core::sync::atomic::Ordering::{Relaxed, Release};
use engine::memory::StackMemory;
use engine::registers::thread_block;
use engine::wire::sample::Trigger;

const _: () = assert!(size_of::<ThreadState>() <= layout::STATE);

/// From so many on states are made several at a time.
const MANY: usize = 16;

/// So long making a state takes at most, or several: what is more others had the processor for, ns.
const ONE_NS: u64 = 20_000;
const SEVERAL_NS: u64 = 60_000;

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
        let made = match registry::threads() {
            MANY..registry::MOST => make_several(max_depth).or_else(|_| make_one(max_depth)),
            _ => make_one(max_depth),
        };
        let most_ns = match made {
            Ok(state) if Place::of(state as usize) != Place::ALONE => SEVERAL_NS,
            _ => ONE_NS,
        };
        let made_ns = clock::monotonic_ns().saturating_sub(began_ns);
        PROCESS.pace.spend(made_ns.min(most_ns));
        made
    }

    /// Takes the memory of a state away that no thread has had, if it is its alone.
    ///
    /// # Safety
    /// It came from [`ThreadState::allocate`] with that depth, and nobody uses it.
    pub(crate) unsafe fn unmake(state: *mut Self, max_depth: usize) {
        if Place::of(state as usize) != Place::ALONE {
            // SAFETY: the caller's promise.
            return unsafe { Self::release(state) };
        }
        registry::unregister(state);
        let mapping = state.cast::<u8>().wrapping_sub(Place::ALONE.state_offset());
        // SAFETY: the caller's promise.
        unsafe { sys::unmap(mapping, Place::ALONE.mapping_size(max_depth)) };
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
                place(state, max_depth);
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

fn make_one(max_depth: usize) -> Result<*mut ThreadState, Errno> {
    let mapping = map(Place::ALONE, max_depth)?;
    // SAFETY: mapped for it.
    let state = unsafe { make(mapping, Place::ALONE, max_depth) };
    registry::register(state);
    Ok(state)
}

/// Makes a state, and others for the next threads, as if threads that have ended had left them. It
/// takes two system calls for all of them, and fewer mappings.
fn make_several(max_depth: usize) -> Result<*mut ThreadState, Errno> {
    let mapping = map(Place::FIRST, max_depth)?;
    for place in Place::others() {
        // SAFETY: mapped for it.
        let state = unsafe { make(mapping, place, max_depth) };
        // SAFETY: nobody knows of it yet.
        let shared = unsafe { &(*state).shared };
        // From when it is registered on it is for anybody, also in the child of a fork.
        shared.release();
        registry::register(state);
        registry::leave(shared);
    }
    // SAFETY: as above.
    let state = unsafe { make(mapping, Place::FIRST, max_depth) };
    registry::register(state);
    Ok(state)
}

/// Maps what states need, of which one is at that place.
fn map(place: Place, max_depth: usize) -> Result<*mut u8, Errno> {
    let size = place.mapping_size(max_depth);
    let mapping = sys::map_anonymous(size)?;
    // Not the stacks: a handler of the program's may stand there, and fork. Nor the labels.
    let wiped = place.wiped_offset();
    sys::advise(
        mapping.wrapping_add(wiped),
        size.wrapping_sub(wiped),
        libc::MADV_WIPEONFORK,
    );
    Ok(mapping)
}

/// Makes the state at that place, and guards the stack of its handler.
///
/// # Safety
/// The mapping is one of such places, and nobody uses this one.
unsafe fn make(mapping: *mut u8, at: Place, max_depth: usize) -> *mut ThreadState {
    sys::guard(mapping.wrapping_add(at.guard_offset()), PAGE);
    let state = mapping.wrapping_add(at.state_offset()).cast();
    // SAFETY: the caller's promise: fresh zeroed memory.
    unsafe { place(state, max_depth) };
    state
}

/// Makes a state there.
///
/// # Safety
/// It is memory of one, with what belongs to it, that nobody else uses.
unsafe fn place(state: *mut ThreadState, max_depth: usize) {
    let stack_top = layout::stack_top(state as usize);
    let frames = layout::frames(state.cast(), max_depth);
    // SAFETY: the caller's promise.
    unsafe { state.write(ThreadState::new(stack_top, frames, max_depth)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::wire::sample::Frame;

    const DEPTH: usize = 16;

    /// A state that is in no slot.
    fn state() -> *mut ThreadState {
        let mapping = map(Place::ALONE, DEPTH).expect("memory");
        let state = mapping.wrapping_add(Place::ALONE.state_offset()).cast();
        // SAFETY: mapped for it.
        unsafe { place(state, DEPTH) };
        state
    }

    #[test]
    fn a_handler_may_come_in_while_ordinary_code_holds_the_state() {
        let state = state();
        // SAFETY: made above; there is no handler.
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
        let state = state();
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
        unsafe { state.cast::<u8>().write_bytes(0, layout::STATE) };
        ThreadState::inherit(state, DEPTH);
        assert_eq!(registry::reusable(DEPTH), Some(state), "the child's own");
        registry::inherit(core::ptr::null_mut(), |_| false);
        assert_eq!(registry::reusable(DEPTH), None);
    }

    #[test]
    fn several_are_made_at_a_time_and_the_others_are_for_the_next_threads() {
        // Of a depth of its own: threads of other tests find none of these.
        const DEPTH: usize = 24;
        let first = make_several(DEPTH).expect("memory");
        let mut all = vec![first];
        all.extend(core::iter::from_fn(|| registry::reusable(DEPTH)));
        assert_eq!(all.len(), Place::others().count() + 1);
        for state in &all {
            // SAFETY: claimed by this test, and no thread has it.
            let this = unsafe { ThreadState::live(*state) }.expect("a live state");
            let top = this.handler_stack.top();
            assert_eq!(top, layout::stack_top(*state as usize));
            // SAFETY: the stack, and the frames of the next sample.
            unsafe {
                (top as *mut u64).wrapping_sub(1).write(1);
                this.room.next().fill(Frame::default());
            }
        }
        // Fork leaves zeros, from which each is made again where it was.
        // SAFETY: as above.
        unsafe {
            first.cast::<u8>().write_bytes(0, layout::STATE);
            place(first, DEPTH);
            ThreadState::release(first);
            assert_eq!(
                ThreadState::handler_stack_top(first),
                layout::stack_top(first as usize)
            );
        }
        // SAFETY: it has no mapping of its own, and stays.
        unsafe { ThreadState::unmake(all[1], DEPTH) };
        assert_eq!(registry::reusable(DEPTH), Some(all[1]));
        all.iter().for_each(|state| registry::unregister(*state));
    }

    #[test]
    fn a_wiped_state_is_none() {
        let wiped = map(Place::ALONE, DEPTH).expect("memory");
        // SAFETY: zeroed memory, as fork leaves it; and null.
        unsafe {
            assert!(ThreadState::live(wiped.cast()).is_none());
            assert!(ThreadState::live(core::ptr::null()).is_none());
        }
    }
}
