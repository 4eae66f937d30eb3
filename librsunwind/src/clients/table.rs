//! The registered clients, for all threads.
//!
//! A client is called through the [`Gate`] of its place, so that nobody calls one that has been
//! taken out.
//!
//! # Safety
//! The callback's address and data were given together by whoever registered; they do not change
//! while the place is taken.
#![allow(unsafe_code)]

use super::stack::{Callback, Stack};
use crate::error::Error;
use crate::gate::Gate;
use crate::thread::requests::{CLIENTS, Known};
use crate::thread::{self, ThreadState};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// Bits of a handle that are the place; the others are the generation.
const PLACE_BITS: u32 = 6;
const LAST_GENERATION: u32 = (1 << (31 - PLACE_BITS)) - 1;

struct Place {
    gate: Gate,
    callback: AtomicUsize,
    data: AtomicPtr<c_void>,
}

static PLACES: [Place; CLIENTS] = [const {
    Place {
        gate: Gate::new(),
        callback: AtomicUsize::new(0),
        data: AtomicPtr::new(ptr::null_mut()),
    }
}; CLIENTS];

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The client that a number stands for, registered or not.
pub(super) fn known(number: i32) -> Known {
    let number = number as u32;
    Known {
        index: (number & ((1 << PLACE_BITS) - 1)) as usize,
        generation: number >> PLACE_BITS,
    }
}

fn number(known: Known) -> i32 {
    (known.generation.wrapping_shl(PLACE_BITS) | known.index as u32) as i32
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
    let generation = place.gate.next(LAST_GENERATION);
    place
        .callback
        .store(callback as *const () as usize, Relaxed);
    place.data.store(data, Relaxed);
    place.gate.open(generation);
    Ok(number(Known { index, generation }))
}

const FULL: u64 = (1 << CLIENTS) - 1;

/// The client of that number, if it is registered.
pub(super) fn find(number: i32) -> Result<Known, Error> {
    let known = known(number);
    let place = PLACES.get(known.index).ok_or(Error::NoClient)?;
    if known.generation != 0 && place.gate.live() == known.generation {
        Ok(known)
    } else {
        Err(Error::NoClient)
    }
}

/// Takes a client out and waits until none of its callbacks runs.
pub(super) fn remove(number: i32) -> Result<(), Error> {
    let known = find(number)?;
    let place = PLACES.get(known.index).ok_or(Error::NoClient)?;
    let walks_ended = || thread::wait_for_walks(ThreadState::current_unchecked());
    place.gate.close(known.generation, walks_ended)?;
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
    let inside = place.gate.enter(known.generation);
    if inside.is_some() {
        let (callback, data) = (place.callback.load(Relaxed), place.data.load(Relaxed));
        // SAFETY: what `add` was given, still registered; `remove` waits for this call.
        unsafe {
            let callback = core::mem::transmute::<usize, Callback>(callback);
            callback(stack, stack.nonce, data);
        }
    }
    inside.is_some()
}

/// In a fork child: the other threads, in whose callbacks the parent may have been, are not here.
pub(super) fn forget_running() {
    for place in &PLACES {
        place.gate.forget_running();
    }
}
