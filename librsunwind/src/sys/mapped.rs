//! What is mapped, in a library that is to take all of it away again.
//!
//! # Safety
//! Only ranges are kept here that `mmap` has given.
#![allow(unsafe_code)]

use super::{Errno, call};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Start, with [`NOT_IN_CHILDREN`], and length; no start while the place is free.
type Place = [AtomicUsize; 2];

/// A fork child does not have it: what lies there is the child's own.
const NOT_IN_CHILDREN: usize = 1;

/// More are not to be had.
static ALL: [Place; 40_000] = [const { [const { AtomicUsize::new(0) }; 2] }; 40_000];
/// No place at or beyond this has ever been used.
static TOP: AtomicUsize = AtomicUsize::new(0);

/// Notes a mapping.
///
/// # Errors
/// `ENOMEM` if there is no place left; then it is gone already.
///
/// # Signal safety
/// Atomics.
pub(super) fn note(start: usize, length: usize) -> Result<usize, Errno> {
    let used = ALL.iter().take(TOP.load(Acquire));
    let free = |place: &&Place| {
        let [at, _] = place;
        at.load(Relaxed) == 0 && at.compare_exchange(0, start, AcqRel, Relaxed).is_ok()
    };
    // Few are ever given back.
    let place = match ALL.get(TOP.fetch_add(1, AcqRel)) {
        Some(place) => Some(place).filter(free),
        None => used.clone().find(free),
    };
    match place {
        Some([_, size]) => {
            size.store(length, Release);
            Ok(start)
        }
        None => {
            // SAFETY: a fresh mapping that nobody knows of.
            unsafe { unmap(start, length) };
            Err(Errno(libc::ENOMEM))
        }
    }
}

/// A mapping is gone.
pub(super) fn forget(start: usize) {
    if let Some([at, size]) = of(start) {
        size.store(0, Relaxed);
        at.store(0, Release);
    }
}

/// Fork children are about to be left without a mapping.
pub(super) fn keep_from_children(start: usize) {
    if let Some([at, _]) = of(start) {
        at.store(start | NOT_IN_CHILDREN, Release);
    }
}

fn of(start: usize) -> Option<&'static Place> {
    let mut used = ALL.iter().take(TOP.load(Acquire));
    used.find(|[at, _]| at.load(Relaxed) & !NOT_IN_CHILDREN == start)
}

/// Takes all of them away; of a fork child, those that it has.
///
/// # Safety
/// Nothing of ours runs any more, and nobody uses any of them.
pub unsafe fn unmap_all(is_child: bool) {
    for [at, size] in ALL.iter().take(TOP.load(Acquire)) {
        let (start, length) = (at.swap(0, AcqRel), size.load(Acquire));
        let is_there = start & NOT_IN_CHILDREN == 0 || !is_child;
        if start != 0 && length != 0 && is_there {
            // SAFETY: the caller's promise.
            unsafe { unmap(start & !NOT_IN_CHILDREN, length) };
        }
    }
}

/// # Safety
/// A range that `mmap` has given, and nobody uses.
unsafe fn unmap(start: usize, length: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { call!(libc::SYS_munmap, start, length) };
}
