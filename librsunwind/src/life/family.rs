//! What a fork child that could not make its recording leaves to who waits for it: the reason, in a
//! page that all processes of one program run share. So its row has a reason, and one of them all
//! says on standard error what is wrong, where that is still the one that the program began with.
//!
//! # Safety
//! The page is mapped once, before the first fork, and stays.
#![allow(unsafe_code)]

use super::complaint;
use crate::segment::SEGMENT;
use crate::sys::{self, Errno, FileIdentity, PAGE};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Children whose reasons are kept at a time; of two with one place the later one's is.
const PLACES: usize = 256;

#[repr(C)]
struct Page {
    /// One of them has spoken.
    told: AtomicU32,
    /// What was taken of children that have no recording of their own, and is in none yet, ns.
    taken_ns: AtomicU64,
    /// Pid and errno.
    refused: [AtomicU64; PLACES],
}

const _: () = assert!(size_of::<Page>() <= PAGE);

static SHARED: AtomicPtr<Page> = AtomicPtr::new(core::ptr::null_mut());

struct StandardError(UnsafeCell<Option<FileIdentity>>);

// SAFETY: written by `begin` alone, before there is another thread.
unsafe impl Sync for StandardError {}

static STANDARD_ERROR: StandardError = StandardError(UnsafeCell::new(None));

/// In the first process, on its only thread.
pub(super) fn begin() {
    // SAFETY: see the type.
    unsafe { *STANDARD_ERROR.0.get() = sys::identity_of(2).ok() };
}

/// Before a fork: most programs never do that.
pub(super) fn share() {
    if page().is_some() {
        return;
    }
    if let Ok(fresh) = sys::map_shared(PAGE) {
        let (none, fresh) = (core::ptr::null_mut(), fresh.cast());
        if SHARED
            .compare_exchange(none, fresh, Release, Relaxed)
            .is_err()
        {
            // SAFETY: another thread's is the one; nobody else knows of this.
            unsafe { sys::unmap(fresh.cast(), PAGE) };
        }
    }
}

/// A fork child ends, or its program, without a recording: what its preparation took, ns, is for
/// one of the others to record.
///
/// # Signal safety
/// Atomics.
pub(super) fn leave_taken(ns: u64) {
    if let Some(page) = page() {
        page.taken_ns.fetch_add(ns, Relaxed);
    }
}

/// What children have left, ns: it is the caller's to record.
///
/// # Signal safety
/// Atomics.
pub(super) fn take_taken() -> u64 {
    page().map_or(0, |page| page.taken_ns.swap(0, Relaxed))
}

fn page() -> Option<&'static Page> {
    // SAFETY: null or the page, which stays; zeros are a page.
    unsafe { SHARED.load(Acquire).as_ref() }
}

fn place(page: &Page, pid: u32) -> Option<&AtomicU64> {
    page.refused.get((pid as usize).checked_rem(PLACES)?)
}

/// This fork child cannot make its recording.
///
/// # Signal safety
/// System calls.
pub(super) fn refused(pid: u32, errno: Errno) {
    let Some(page) = page() else {
        return;
    };
    if let Some(place) = place(page, pid) {
        place.store(u64::from(pid) << 32 | u64::from(errno.0 as u32), Relaxed);
    }
    // SAFETY: see the type.
    let known = unsafe { *STANDARD_ERROR.0.get() };
    let is_same = known.is_some() && sys::identity_of(2).ok() == known;
    if is_same && !complaint::is_left_to_collector() && page.told.swap(1, Relaxed) == 0 {
        complaint::say_of_child(pid, &SEGMENT.path(), errno);
    }
}

/// Why a child that has ended could not make its recording; 0 if it did not say so.
///
/// # Signal safety
/// Atomics.
pub(super) fn refusal_of(pid: u32) -> u32 {
    let found = page().and_then(|page| place(page, pid));
    let word = found.map_or(0, |place| place.load(Relaxed));
    if (word >> 32) as u32 != pid || word == 0 {
        return 0;
    }
    // The next one of that number may be well.
    let _ = found.map(|place| place.compare_exchange(word, 0, Relaxed, Relaxed));
    word as u32
}
