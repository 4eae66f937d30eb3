//! All threads that have a state: for those that start, the memory of those that ended; for the end of the process, whose accounts to
//! close; for unloading a module, whose walks to wait for.
//!
//! # Safety
//! Registered states are never unmapped, so a pointer found here is good; only their atomics are touched.
#![allow(unsafe_code)]

use super::ThreadState;
use crate::{clock, sys};
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};

/// Threads that have a state, so that the end of the process can close their accounts. A thread that finds no slot is profiled all
/// the same; its account then lacks the final CPU time.
static REGISTRY: [AtomicPtr<ThreadState>; 16_384] =
    [const { AtomicPtr::new(ptr::null_mut()) }; 16_384];
/// No slot at or beyond this has ever been used.
static REGISTRY_TOP: AtomicUsize = AtomicUsize::new(0);

/// A state that an ended thread left, if any.
pub(super) fn reusable(room: usize) -> Option<*mut ThreadState> {
    registered().map(|slot| slot.load(Acquire)).find(|state| {
        // SAFETY: registered states are never unmapped.
        let state = unsafe { state.as_ref() };
        state.is_some_and(|state| {
            state.room == room
                && state
                    .claimed
                    .compare_exchange(0, 1, AcqRel, Relaxed)
                    .is_ok()
        })
    })
}

pub(super) fn register(state: *mut ThreadState) {
    for (index, slot) in REGISTRY.iter().enumerate() {
        if slot.load(Relaxed).is_null()
            && slot
                .compare_exchange(ptr::null_mut(), state, AcqRel, Relaxed)
                .is_ok()
        {
            REGISTRY_TOP.fetch_max(index.wrapping_add(1), Release);
            return;
        }
    }
}

fn registered() -> impl Iterator<Item = &'static AtomicPtr<ThreadState>> {
    REGISTRY.iter().take(REGISTRY_TOP.load(Acquire))
}

/// Most threads that have had a state at the same time.
pub(super) fn threads() -> usize {
    REGISTRY_TOP.load(Relaxed)
}

/// In a fork child: none of the parent's threads is here.
pub fn forget_all() {
    for slot in registered() {
        slot.store(ptr::null_mut(), Relaxed);
    }
    REGISTRY_TOP.store(0, Relaxed);
}

fn live_others(this: Option<&ThreadState>) -> impl Iterator<Item = &'static ThreadState> {
    let own = this.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: registered states are never unmapped; only their atomics are read.
    let states = registered().filter_map(|slot| unsafe { slot.load(Acquire).as_ref() });
    states.filter(move |state| !ptr::eq(*state, own) && state.tid.load(Acquire) != 0)
}

/// Calls `visit` with (tid, key) of every other live thread that has a state.
pub fn for_each_other(this: &ThreadState, mut visit: impl FnMut(u32, u64)) {
    for other in live_others(Some(this)) {
        visit(other.tid.load(Relaxed), other.key.load(Relaxed));
    }
}

/// Waits until no other thread is inside a walk that began before this call; gives up after about a tenth of a second.
pub fn wait_for_walks(this: Option<&ThreadState>) -> bool {
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
