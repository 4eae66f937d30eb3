//! The registered languages, for all threads.
//!
//! A language is called through the [`Gate`] of its place, so that nobody calls one that has been
//! taken back.
//!
//! # Safety
//! Callbacks and their data were given together by whoever registered; they do not change while the
//! place is taken.
#![allow(unsafe_code)]

use super::layout::{Callback, Counts, Cursor, EntryCallback, Language, PLACES};
use super::lock::Locked;
use super::ranges;
use crate::arch;
use crate::described;
use crate::error::Error;
use crate::gate::{Gate, Inside};
use crate::modules;
use crate::text::Text;
use crate::thread::{self, ThreadState};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_void};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use engine::mix::mix;

/// Bits of a handle that are the place; the others are the generation.
const PLACE_BITS: u32 = 4;
const LAST_GENERATION: u32 = (1 << (31 - PLACE_BITS)) - 1;
/// Longest name, bytes.
pub const NAME: usize = 32;

/// What one time in trouble adds; one without takes 1 away. So a language that is in trouble one
/// time in ten goes on.
const STRIKE: u32 = 8;
/// Of the calls that are not all timed, one in so many is.
const ONE_TIMED_IN: u64 = 16;

/// At this it is switched off.
const ENOUGH: u32 = 512;

/// A callback that took longer than this took too long, and so much more for each frame that it
/// gave, ns: an interpreter gives a whole recursion at once.
const LONGEST_NS: u64 = 2_000_000;
const LONGEST_OF_A_FRAME_NS: u64 = 1_000;

/// [`Counts`] as they grow.
#[derive(Debug)]
pub(super) struct Counting {
    pub asked: AtomicU64,
    pub frames: AtomicU64,
    pub troubled: AtomicU64,
    pub unreadable: AtomicU64,
    pub not_advancing: AtomicU64,
    pub too_long: AtomicU64,
    pub missing: AtomicU64,
}

pub(super) struct Place {
    gate: Gate,
    callback: AtomicUsize,
    entry: AtomicUsize,
    data: AtomicPtr<c_void>,
    name: UnsafeCell<Text<NAME>>,
    strikes: AtomicU32,
    is_off: AtomicU32,
    /// Of [`own`].
    own: AtomicU32,
    was_slow: [AtomicBool; 2],
    pub counts: Counting,
}

/// What a language that is part of the runtime is; 0 is any other.
pub(super) mod own {
    /// It reads through the cursor alone, and calls nothing that sets errno.
    pub const IS: u32 = 1;
    /// Each frame of its code has an entry.
    pub const ENTERS: u32 = 2;
}

impl Place {
    /// Whether a callback that took `took_ns` for so many frames took too long: if the one before
    /// it did, too. A single one may have been put off the processor meanwhile, and the thread's
    /// CPU clock is too dear to be read for each. `kind` keeps the two callbacks apart.
    pub fn is_slow(&self, kind: usize, took_ns: u64, frames: u32) -> bool {
        let of_frames_ns = LONGEST_OF_A_FRAME_NS.saturating_mul(u64::from(frames));
        let slow = took_ns > LONGEST_NS.saturating_add(of_frames_ns);
        let before = &self.was_slow[kind & 1];
        let was_slow = before.load(Relaxed);
        // Most are not: then nothing is written, which other threads would have to fetch.
        if slow != was_slow {
            before.store(slow, Relaxed);
        }
        slow && was_slow
    }
}

// SAFETY: the name is written before the place is opened, and read while it is.
unsafe impl Sync for Place {}

static TABLE: [Place; PLACES] = [const {
    Place {
        gate: Gate::new(),
        callback: AtomicUsize::new(0),
        entry: AtomicUsize::new(0),
        data: AtomicPtr::new(ptr::null_mut()),
        name: UnsafeCell::new(Text::EMPTY),
        strikes: AtomicU32::new(0),
        is_off: AtomicU32::new(0),
        own: AtomicU32::new(0),
        was_slow: [const { AtomicBool::new(false) }; 2],
        counts: Counting {
            asked: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            troubled: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
            not_advancing: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
            missing: AtomicU64::new(0),
        },
    }
}; PLACES];

/// The bits of the places that are taken.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Whether a language is registered.
#[inline]
pub(super) fn any() -> bool {
    TAKEN.load(Relaxed) != 0
}

/// Makes the rules that walks have found so far be found anew.
pub(super) fn forget_rules() {
    if let Some(rules) = modules::rules() {
        rules.invalidate();
    }
}

fn found(number: i32) -> Result<(usize, &'static Place, u32), Error> {
    let number = u32::try_from(number).map_err(|_| Error::NoClient)?;
    let (index, generation) = (
        place_of(number.cast_signed()) as usize,
        number >> PLACE_BITS,
    );
    let place = TABLE.get(index).ok_or(Error::NoClient)?;
    if generation == 0 || place.gate.live() != generation {
        return Err(Error::NoClient);
    }
    Ok((index, place, generation))
}

/// The place in a registered language's number.
pub(super) const fn place_of(number: i32) -> u32 {
    number.cast_unsigned() & ((1 << PLACE_BITS) - 1)
}

/// What a language may be called.
///
/// # Safety
/// Null, or it ends with a zero byte.
pub(super) unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a [u8], Error> {
    if name.is_null() {
        return Err(Error::Null);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let is_good = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'[' | b']');
    if name.is_empty() || name.len() >= NAME || !name.iter().all(is_good) {
        return Err(Error::Null);
    }
    Ok(name)
}

/// Registers a language; gives its number, which is positive.
///
/// # Errors
/// [`Error::Full`], [`Error::Null`], [`Error::Memory`].
///
/// # Safety
/// What the header asks of callbacks; the name ends with a zero byte.
pub unsafe fn add(language: &Language) -> Result<i32, Error> {
    described::prepare()?;
    // SAFETY: the caller's promise.
    unsafe { add_locked(&Locked::now(), language, 0) }
}

/// The same for who holds the lock, and has prepared for codes.
///
/// # Signal safety
/// Stores.
///
/// # Errors
/// [`Error::Full`], [`Error::Null`].
///
/// # Safety
/// As above.
pub(super) unsafe fn add_locked(
    locked: &Locked,
    language: &Language,
    own: u32,
) -> Result<i32, Error> {
    let callback = language.callback.ok_or(Error::Null)?;
    if language.size != size_of::<Language>() {
        return Err(Error::Null);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { name_of(language.name) }?;
    enter_in_table(locked, language, callback, (name, own))
}

/// Whether the very language is registered.
pub(super) fn has(language: &Language) -> bool {
    let callback = language.callback.map_or(0, |it| it as *const () as usize);
    registered().any(|(index, _)| {
        TABLE.get(index).is_some_and(|place| {
            place.callback.load(Relaxed) == callback && place.data.load(Relaxed) == language.data
        })
    })
}

fn enter_in_table(
    _: &Locked,
    language: &Language,
    callback: Callback,
    (name, own): (&[u8], u32),
) -> Result<i32, Error> {
    let taken = TAKEN.load(Relaxed);
    let index = taken.trailing_ones() as usize;
    let place = TABLE.get(index).ok_or(Error::Full)?;
    place
        .callback
        .store(callback as *const () as usize, Relaxed);
    let entry = language
        .entry
        .map_or(0, |entry| entry as *const () as usize);
    place.entry.store(entry, Relaxed);
    place.data.store(language.data, Relaxed);
    // SAFETY: closed, so nobody reads it.
    unsafe { *place.name.get() = Text::new().then(name) };
    place.strikes.store(0, Relaxed);
    place.is_off.store(0, Relaxed);
    place.own.store(own, Relaxed);
    place.counts.reset();
    let generation = place.gate.next(LAST_GENERATION);
    TAKEN.store(taken | 1 << index, Release);
    place.gate.open(generation);
    Ok((generation << PLACE_BITS | index as u32) as i32)
}

/// Takes a language back. When this is done none of its callbacks runs, and none will.
///
/// # Errors
/// [`Error::NoClient`]; [`Error::InCallback`] in a walk of the same thread; [`Error::StillRuns`].
pub fn remove(number: i32) -> Result<(), Error> {
    not_in_a_walk()?;
    let (index, place, generation) = found(number)?;
    let walks_ended = || thread::wait_for_walks(ThreadState::current_unchecked());
    place.gate.close(generation, walks_ended)?;
    let _locked = Locked::now();
    if ranges::remove(index, None) {
        forget_rules();
    }
    TAKEN.fetch_and(!(1 << index), Release);
    Ok(())
}

pub(super) fn not_in_a_walk() -> Result<(), Error> {
    match ThreadState::current_unchecked() {
        Some(this) if this.shared.is_walking_at(arch::stack_pointer()) => Err(Error::InCallback),
        _ => Ok(()),
    }
}

/// From now on a language is asked about code from `start` to before `end`; or no more.
///
/// # Errors
/// [`Error::NoClient`], [`Error::Null`] (an empty range, or none such to take back),
/// [`Error::Full`], [`Error::InCallback`].
pub fn cover(number: i32, start: u64, end: u64, is_on: bool) -> Result<(), Error> {
    not_in_a_walk()?;
    if start >= end || end >> 47 != 0 {
        return Err(Error::Null);
    }
    let locked = Locked::now();
    let (index, ..) = found(number)?;
    if is_on {
        return cover_locked(&locked, index as u32, &(start..end));
    }
    if !ranges::remove(index, Some((start, end))) {
        return Err(Error::Null);
    }
    forget_rules();
    Ok(())
}

/// The same for who holds the lock, of a language's place.
///
/// # Signal safety
/// Stores.
///
/// # Errors
/// [`Error::Full`].
pub(super) fn cover_locked(_: &Locked, place: u32, code: &Range<u64>) -> Result<(), Error> {
    ranges::add(place as usize, code.start, code.end)?;
    forget_rules();
    Ok(())
}

/// What has happened to a language so far.
///
/// # Errors
/// [`Error::NoClient`].
pub fn counts(number: i32) -> Result<Counts, Error> {
    let (_, place, _) = found(number)?;
    let counts = &place.counts;
    Ok(Counts {
        asked: counts.asked.load(Relaxed),
        frames: counts.frames.load(Relaxed),
        troubled: counts.troubled.load(Relaxed),
        unreadable: counts.unreadable.load(Relaxed),
        not_advancing: counts.not_advancing.load(Relaxed),
        too_long: counts.too_long.load(Relaxed),
        missing: counts.missing.load(Relaxed),
        is_off: u64::from(place.is_off.load(Relaxed)),
    })
}

/// The place and generation of each registered language.
pub(super) fn registered() -> impl Iterator<Item = (usize, u32)> {
    let taken = TAKEN.load(Acquire);
    let places = TABLE.iter().enumerate();
    places
        .filter(move |(index, _)| taken >> index & 1 != 0)
        .map(|(index, place)| (index, place.gate.live()))
}

pub(super) fn forget_running() {
    for place in &TABLE {
        place.gate.forget_running();
    }
}

/// A registered language that is being asked, and not taken back meanwhile.
pub(super) struct Asked {
    pub place: &'static Place,
    pub name: &'static [u8],
    /// Calls and frames that are not in the place's counts yet: threads would have to wait for each
    /// other at each, and a processor for itself.
    calls: Cell<u64>,
    frames: Cell<u64>,
    /// Calls for frames until one is timed.
    untimed: Cell<u64>,
    /// Of [`own`].
    own: u32,
    has_entries: bool,
    _inside: Inside<'static>,
}

/// The language of that place and generation, if it is registered.
///
/// # Signal safety
/// Atomics only.
pub(super) fn enter(index: usize, generation: u32) -> Option<Asked> {
    let place = TABLE.get(index)?;
    let inside = place.gate.enter(generation)?;
    Some(Asked {
        place,
        // SAFETY: written before the place was opened; not again before who is inside has left.
        name: unsafe { (*place.name.get()).bytes() },
        calls: Cell::new(0),
        frames: Cell::new(0),
        // Not the same calls of each walk.
        untimed: Cell::new(mix(place.counts.asked.load(Relaxed)) % ONE_TIMED_IN),
        own: place.own.load(Relaxed),
        has_entries: place.entry.load(Relaxed) != 0,
        _inside: inside,
    })
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.add();
    }
}

impl Asked {
    /// Whether the next call is timed. All are, but for most of those of our own for frames, for
    /// which the clock takes as long as what is done in the call: they read no more than a walk
    /// may, and what nearly always takes long is found by some of them.
    #[inline]
    pub fn is_timed(&self, kind: usize) -> bool {
        // Once a walk it is asked for its entry.
        let is_for_entry = kind != 0;
        !self.is_own()
            || is_for_entry
            || self.place.was_slow[kind & 1].load(Relaxed)
            || self.is_its_turn()
    }

    #[inline]
    fn is_its_turn(&self) -> bool {
        let rest = self.untimed.get().checked_sub(1);
        self.untimed.set(rest.unwrap_or(ONE_TIMED_IN - 1));
        rest.is_none()
    }

    /// Counts calls, and the frames that they gave.
    pub fn count(&self, calls: u64, frames: u64) {
        self.calls.set(self.calls.get().wrapping_add(calls));
        self.frames.set(self.frames.get().wrapping_add(frames));
    }

    /// Adds what was counted to the place's counts.
    pub fn add(&self) {
        let counts = &self.place.counts;
        for (all, own) in [(&counts.asked, &self.calls), (&counts.frames, &self.frames)] {
            all.fetch_add(own.replace(0), Relaxed);
        }
    }

    /// Calls the callback.
    pub fn call(&self, cursor: &mut Cursor) -> i32 {
        let callback = self.place.callback.load(Relaxed);
        // SAFETY: what was registered, which stays so while this is there.
        unsafe {
            let callback = core::mem::transmute::<usize, Callback>(callback);
            callback(cursor, self.place.data.load(Relaxed))
        }
    }

    /// Calls for the innermost entry; `None` if the language is not asked by entry.
    pub fn entry(&self, cursor: &mut Cursor) -> Option<u64> {
        let callback = self.place.entry.load(Relaxed);
        // SAFETY: as above; null or what was registered.
        unsafe {
            let callback = core::mem::transmute::<usize, Option<EntryCallback>>(callback)?;
            Some(callback(cursor, self.place.data.load(Relaxed)))
        }
    }

    /// Whether it has been switched off.
    pub fn is_off(&self) -> bool {
        self.place.is_off.load(Relaxed) != 0
    }

    /// Whether it is part of the runtime.
    pub const fn is_own(&self) -> bool {
        self.own & own::IS != 0
    }

    /// Whether each frame of its code has an entry: it has nothing else to say of it.
    pub const fn enters(&self) -> bool {
        self.own & own::ENTERS != 0
    }

    /// Whether it is Python, which alone of those of the runtime has entries.
    pub const fn meets(&self) -> bool {
        self.is_own() && self.has_entries
    }

    /// Whether it has an entry callback.
    pub const fn has_entries(&self) -> bool {
        self.has_entries
    }

    /// Whether it has been in trouble, and that is not forgotten yet.
    #[inline]
    pub fn has_strikes(&self) -> bool {
        self.place.strikes.load(Relaxed) != 0
    }

    /// Notes how it went; `true` if the language is switched off for that.
    pub fn judge(&self, is_troubled: bool) -> bool {
        let strikes = &self.place.strikes;
        if !is_troubled {
            let less = |strikes: u32| strikes.checked_sub(1);
            let _ = strikes.fetch_update(Relaxed, Relaxed, less);
            return false;
        }
        self.place.counts.troubled.fetch_add(1, Relaxed);
        let before = strikes.fetch_add(STRIKE, Relaxed);
        before >= ENOUGH && self.place.is_off.swap(1, Relaxed) == 0
    }
}

impl Counting {
    fn reset(&self) {
        let Self {
            asked,
            frames,
            troubled,
            unreadable,
            not_advancing,
            too_long,
            missing,
        } = self;
        let all = [
            asked,
            frames,
            troubled,
            unreadable,
            not_advancing,
            too_long,
            missing,
        ];
        all.into_iter().for_each(|count| count.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_calls_of_our_own_few_are_timed_and_of_others_all() {
        let index = PLACES - 2;
        let place = &TABLE[index];
        let timed = |own| {
            place.own.store(own, Relaxed);
            let generation = place.gate.next(LAST_GENERATION);
            place.gate.open(generation);
            let asked = enter(index, generation).unwrap();
            let number = (0..10 * ONE_TIMED_IN).filter(|_| asked.is_timed(0)).count() as u64;
            assert!(asked.is_timed(1), "for its entry");
            number
        };
        assert_eq!(timed(own::IS), 10);
        assert_eq!(timed(0), 10 * ONE_TIMED_IN);
    }

    #[test]
    fn a_callback_may_take_longer_the_more_frames_it_gives() {
        let place = &TABLE[PLACES - 1];
        let twice = |took_ns, frames| {
            let _ = place.is_slow(0, took_ns, frames);
            place.is_slow(0, took_ns, frames)
        };
        assert!(!twice(LONGEST_NS, 0));
        assert!(twice(LONGEST_NS + 1, 0));
        assert!(!twice(10 * LONGEST_NS, 60_000), "a deep recursion");
        assert!(twice(10 * LONGEST_NS, 600));
        assert!(!place.is_slow(0, LONGEST_NS, 0));
        assert!(!place.is_slow(0, 2 * LONGEST_NS, 0), "a single one");
    }
}
