//! All threads that have a state: for those that start, the memory of those that ended, and in a
//! fork child that of the parent's; for the end of the process, whose accounts to close; for
//! unloading a module, whose walks to wait for.
//!
//! # Safety
//! Registered states are never unmapped, so a pointer found here is good; only their atomics are
//! touched.
#![allow(unsafe_code)]

use super::shared::Shared;
use super::state::ThreadState;
use crate::clock;
use crate::sys::{self, Pointers};
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// Threads that have a state, so that the end of the process can close their accounts. A thread
/// that finds no slot is profiled all the same; its account then lacks the final CPU time.
static REGISTRY: Registry = Registry::new();
type Registry = Pointers<ThreadState, 32>;
/// So many have slots.
pub(super) const MOST: usize = Registry::LENGTH;
/// No slot at or beyond this has ever been used.
static REGISTRY_TOP: AtomicUsize = AtomicUsize::new(0);

/// A bit for each slot: a thread has left its state. With thousands of threads a look at each of
/// their states would take ten times what the start of a thread does.
static LEFT: [AtomicU64; Registry::LENGTH.div_ceil(WORD)] =
    [const { AtomicU64::new(0) }; Registry::LENGTH.div_ceil(WORD)];
const WORD: usize = u64::BITS as usize;

/// Which state is looked at next, whether its thread has gone without a word.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// How many are, for each thread that finds no state left to it: a system call each.
const LOOKS: usize = 4;
/// So many states of the parent's threads a fork child keeps for its own: each costs a page fault
/// or two at the fork.
const INHERITED: usize = 16;

/// A state that an ended thread left, if any.
pub(super) fn reusable(room: usize) -> Option<*mut ThreadState> {
    let words = REGISTRY_TOP.load(Acquire).div_ceil(WORD);
    let mut words = LEFT.iter().take(words).enumerate();
    words.find_map(|(place, word)| {
        let mut seen = word.load(Acquire);
        while seen != 0 {
            let bit = seen.trailing_zeros();
            seen &= seen.wrapping_sub(1);
            let index = place.wrapping_mul(WORD).wrapping_add(bit as usize);
            let state = REGISTRY.get(index)?.load(Acquire);
            // SAFETY: it came from the registry.
            let shared = unsafe { shared(state) };
            if shared.is_some_and(|shared| shared.claim(room)) {
                // Who claims it clears it, before the next can leave it.
                word.fetch_and(!(1 << bit), Relaxed);
                return Some(state);
            }
        }
        None
    })
}

/// A thread has left its state. Where it has no slot it stays unused.
pub(super) fn leave(shared: &Shared) {
    set_left(shared.slot.load(Relaxed));
}

fn set_left(slot: usize) {
    if let Some(word) = LEFT.get(slot / WORD) {
        word.fetch_or(1 << (slot % WORD), Release);
    }
}

/// One of the next states in turn whose thread is gone and has not left it: it ended by a system
/// call of its own. Whoever gets it has it.
pub(super) fn abandoned() -> Option<*mut ThreadState> {
    let count = REGISTRY_TOP.load(Acquire);
    (0..LOOKS.min(count)).find_map(|_| {
        let index = NEXT.fetch_add(1, Relaxed).checked_rem(count)?;
        let state = REGISTRY.get(index)?.load(Acquire);
        // SAFETY: it came from the registry.
        let shared = unsafe { shared(state) }?;
        let tid = shared.tid.load(Acquire);
        let is_gone = tid != 0 && !sys::thread_exists(tid);
        (is_gone && shared.tid.compare_exchange(tid, 0, AcqRel, Relaxed).is_ok()).then_some(state)
    })
}

pub(super) fn register(state: *mut ThreadState) {
    // Slots below that become free only where a state's memory goes, which is rare.
    let top = REGISTRY_TOP.load(Acquire);
    for index in (top..Registry::LENGTH).chain(0..top) {
        let Ok(slot) = REGISTRY.needed(index) else {
            break;
        };
        if slot.load(Relaxed).is_null()
            && slot
                .compare_exchange(ptr::null_mut(), state, AcqRel, Relaxed)
                .is_ok()
        {
            // SAFETY: registered states stay.
            if let Some(shared) = unsafe { shared(state) } {
                shared.slot.store(index, Relaxed);
            }
            REGISTRY_TOP.fetch_max(index.wrapping_add(1), Release);
            return;
        }
    }
    // There are more than have slots.
    REGISTRY_TOP.fetch_max(Registry::LENGTH, Release);
}

/// Forgets a state whose memory goes.
pub(super) fn unregister(state: *mut ThreadState) {
    let slots = registered().filter(|slot| ptr::eq(slot.load(Relaxed), state));
    slots.for_each(|slot| slot.store(ptr::null_mut(), Release));
}

fn registered() -> impl Iterator<Item = &'static AtomicPtr<ThreadState>> {
    (0..REGISTRY_TOP.load(Acquire)).filter_map(|index| REGISTRY.get(index))
}

/// Most threads that have had a state at the same time, and the next few, which have one already;
/// in a fork child some of its parent's count.
pub(super) fn threads() -> usize {
    REGISTRY_TOP.load(Relaxed)
}

/// In a fork child: none of the parent's threads is here. Memory of some is kept, first `own`, that
/// of the thread that forked, and `renew` says whether it can be.
pub(super) fn inherit(own: *mut ThreadState, renew: impl Fn(*mut ThreadState) -> bool) {
    let mut kept = [ptr::null_mut(); INHERITED];
    let mut count = 0usize;
    let others = registered().map(|slot| slot.swap(ptr::null_mut(), Relaxed));
    let others = others.filter(|state| !ptr::eq(*state, own));
    for state in core::iter::once(own).chain(others) {
        if let Some(place) = kept.get_mut(count)
            && !state.is_null()
            && renew(state)
        {
            *place = state;
            count = count.wrapping_add(1);
        }
    }
    let words = REGISTRY_TOP.load(Relaxed).div_ceil(WORD);
    for word in LEFT.iter().take(words) {
        word.store(0, Relaxed);
    }
    for (index, state) in kept.into_iter().enumerate() {
        if let Some(slot) = REGISTRY.get(index) {
            slot.store(state, Relaxed);
        }
        // SAFETY: from the registry.
        if let Some(shared) = unsafe { shared(state) } {
            shared.slot.store(index, Relaxed);
            set_left(index);
        }
    }
    REGISTRY_TOP.store(count, Relaxed);
}

/// What other threads may see of a state.
///
/// # Safety
/// The address is null, or came from the registry.
unsafe fn shared(state: *const ThreadState) -> Option<&'static Shared> {
    // SAFETY: registered states are never unmapped, and this part of them is all atomics.
    (!state.is_null()).then(|| unsafe { &(*state).shared })
}

fn live_others(this: Option<&ThreadState>) -> impl Iterator<Item = &'static Shared> {
    let own = this.map_or(ptr::null(), |this| ptr::from_ref(&this.shared));
    // SAFETY: from the registry.
    let states = registered().filter_map(|slot| unsafe { shared(slot.load(Acquire)) });
    states.filter(move |state| !ptr::eq(*state, own) && state.is_live())
}

/// Calls `visit` with what is seen of every other live thread that has a state.
pub fn for_each_other(this: Option<&ThreadState>, visit: impl FnMut(&Shared)) {
    live_others(this).for_each(visit);
}

/// Waits until no other thread is inside a walk that began before this call; gives up after about a
/// tenth of a second.
pub fn wait_for_walks(this: Option<&ThreadState>) -> bool {
    if threads() == Registry::LENGTH {
        return false; // there may be threads that are in no slot
    }
    let deadline = clock::monotonic_ns().saturating_add(100_000_000);
    for other in live_others(this) {
        let start = other.walking.load(Acquire);
        while start % 2 == 1 && other.walking.load(Acquire) == start {
            if clock::monotonic_ns() > deadline {
                return false;
            }
            sys::yield_now();
        }
    }
    true
}
