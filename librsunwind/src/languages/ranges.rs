//! Which code languages answer for. Looked up where the rule cache has no answer.
//!
//! Writers come one at a time (under the table's lock). A reader that meets a slot being written
//! may take it for another range of a language that is registered, which is then asked about a
//! frame that is not its own.

use super::layout::PLACES;
use crate::error::Error;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// How many there can be.
const RANGES: usize = 256;

struct Range {
    /// The language's place plus one; 0 if nobody's.
    owner: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

static TABLE: [Range; RANGES] = [const {
    Range {
        owner: AtomicU64::new(0),
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
    }
}; RANGES];

/// The place of the language whose code is at an address.
///
/// # Signal safety
/// Loads only.
pub(super) fn find(pc: u64) -> Option<u32> {
    let contains = |range: &&Range| {
        let owner = range.owner.load(Acquire);
        owner != 0 && (range.start.load(Relaxed)..range.end.load(Relaxed)).contains(&pc)
    };
    let found = TABLE.iter().find(contains)?;
    let place = found.owner.load(Relaxed).checked_sub(1)?;
    u32::try_from(place)
        .ok()
        .filter(|place| (*place as usize) < PLACES)
}

/// The place plus one of the language that is asked about all code that no table knows; 0: nobody.
static UNTABLED: AtomicU32 = AtomicU32::new(0);

/// The place of that language.
///
/// # Signal safety
/// A load.
pub(super) fn untabled() -> Option<u32> {
    UNTABLED.load(Acquire).checked_sub(1)
}

/// A language is to be that one.
pub(super) fn add_untabled(place: u32) {
    UNTABLED.store(place.wrapping_add(1), Release);
}

pub(super) fn add(place: usize, start: u64, end: u64) -> Result<(), Error> {
    let free = TABLE.iter().find(|range| range.owner.load(Relaxed) == 0);
    let free = free.ok_or(Error::Full)?;
    free.start.store(start, Relaxed);
    free.end.store(end, Relaxed);
    free.owner.store(place as u64 + 1, Release);
    Ok(())
}

/// Takes a range back, or all that a language has.
pub(super) fn remove(place: usize, only: Option<(u64, u64)>) -> bool {
    let mut any = false;
    for range in &TABLE {
        let bounds = (range.start.load(Relaxed), range.end.load(Relaxed));
        if range.owner.load(Relaxed) == place as u64 + 1 && only.is_none_or(|it| it == bounds) {
            range.owner.store(0, Release);
            any = true;
        }
    }
    any
}
