//! The registered clients, for all threads.
//!
//! A client is called between `running` going up and going down, and only while it is `live`; unregistering ends the life, then waits
//! for `running` to be zero. Both sides are sequentially consistent, so one of them sees the other. A place that is used again has another
//! generation, so that a request for the client before is not taken for one of the client after.
//!
//! # Safety
//! The callback's address and data were given together by whoever registered; they do not change while the place is taken.
#![allow(unsafe_code)]

use super::{Callback, Error, Stack};
use crate::sys;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// How many clients there can be. (The kernel's own broker, with the same two bits set aside, has as many.)
pub const CLIENTS: usize = 62;

/// Bits of a handle that are the place; the others are the generation.
const PLACE_BITS: u32 = 6;
const LAST_GENERATION: u32 = (1 << (31 - PLACE_BITS)) - 1;

struct Place {
    /// The generation while registered, else 0.
    live: AtomicU32,
    /// The newest generation that was here.
    generation: AtomicU32,
    callback: AtomicUsize,
    data: AtomicPtr<c_void>,
    /// Callbacks under way.
    running: AtomicU32,
}

static PLACES: [Place; CLIENTS] = [const {
    Place {
        live: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        callback: AtomicUsize::new(0),
        data: AtomicPtr::new(ptr::null_mut()),
        running: AtomicU32::new(0),
    }
}; CLIENTS];

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A client as its number says: place and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub index: usize,
    pub generation: u32,
}

impl Known {
    pub fn bit(self) -> u64 {
        1u64.wrapping_shl(self.index as u32)
    }

    fn of(number: i32) -> Self {
        let number = number as u32;
        Self {
            index: (number & ((1 << PLACE_BITS) - 1)) as usize,
            generation: number >> PLACE_BITS,
        }
    }

    fn number(self) -> i32 {
        (self.generation.wrapping_shl(PLACE_BITS) | self.index as u32) as i32
    }
}

/// Adds a client; gives its number, which is positive.
pub(super) fn add(callback: Callback, data: *mut c_void) -> Result<i32, Error> {
    let free =
        |taken: u64| Some(taken | (taken.wrapping_add(1) & !taken)).filter(|_| taken != FULL);
    let before = TAKEN
        .fetch_update(AcqRel, Acquire, free)
        .map_err(|_| Error::Full)?;
    let index = before.trailing_ones() as usize;
    let place = PLACES.get(index).ok_or(Error::Full)?;
    let generation = place.generation.load(Relaxed) % LAST_GENERATION + 1;
    place.generation.store(generation, Relaxed);
    place
        .callback
        .store(callback as *const () as usize, Relaxed);
    place.data.store(data, Relaxed);
    place.live.store(generation, SeqCst);
    Ok(Known { index, generation }.number())
}

const FULL: u64 = (1 << CLIENTS) - 1;

/// The client of that number, if it is registered.
pub(super) fn find(number: i32) -> Result<Known, Error> {
    let known = Known::of(number);
    let place = PLACES.get(known.index).ok_or(Error::NoClient)?;
    if known.generation != 0 && place.live.load(Acquire) == known.generation {
        Ok(known)
    } else {
        Err(Error::NoClient)
    }
}

/// Takes a client out and waits until none of its callbacks runs.
pub(super) fn remove(number: i32) -> Result<(), Error> {
    let known = find(number)?;
    let place = PLACES.get(known.index).ok_or(Error::NoClient)?;
    place
        .live
        .compare_exchange(known.generation, 0, SeqCst, Relaxed)
        .map_err(|_| Error::NoClient)?;
    let mut turns = 0u32;
    while place.running.load(SeqCst) != 0 {
        // A thread of a higher priority would never let the other run by yielding alone.
        turns = turns.saturating_add(1);
        if turns < 64 {
            sys::yield_now();
        } else {
            sys::pause(100_000);
        }
    }
    TAKEN.fetch_and(!known.bit(), Release);
    Ok(())
}

/// Shows a stack to a client; `false` if it was unregistered since it asked.
///
/// # Signal safety
/// Atomics, and the client's own code.
pub(super) fn show(known: Known, stack: &Stack) -> bool {
    let Some(place) = PLACES.get(known.index) else {
        return false;
    };
    place.running.fetch_add(1, SeqCst);
    let is_live = place.live.load(SeqCst) == known.generation;
    if is_live {
        let (callback, data) = (place.callback.load(Relaxed), place.data.load(Relaxed));
        // SAFETY: what `add` was given, still registered; `remove` waits for this call.
        unsafe {
            let callback = core::mem::transmute::<usize, Callback>(callback);
            callback(stack, stack.nonce, data);
        }
    }
    place.running.fetch_sub(1, SeqCst);
    is_live
}

/// In a fork child: the other threads, in whose callbacks the parent may have been, are not here.
pub(super) fn forget_running() {
    for place in &PLACES {
        place.running.store(0, Relaxed);
    }
}
