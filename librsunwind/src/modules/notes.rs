//! Modules whose files describe languages of their own, in a note: each waits here until a walk has
//! [`crate::languages`] take its languages in.
//!
//! # Safety
//! None needed: numbers only.

use super::image;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use engine::address::RuntimeAddress;
use engine::module_map::Module;
use engine::notes::{BadNote, languages as described};

/// How many such modules there can be.
const PLACES: usize = 16;
/// Languages of one.
pub const LANGUAGES: usize = 4;

/// The loader has mapped and relocated a file by then, ns.
const LOADING_NS: u64 = 100_000_000;

const FREE: u32 = 0;
const BEING_WRITTEN: u32 = 1;
const WAITING: u32 = 2;
const TAKEN_IN: u32 = 3;

/// A module with such a note.
pub struct Noted {
    state: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    /// Whether nobody closes it.
    stays: AtomicBool,
    /// When something was wrong with its notes for the first time (`CLOCK_MONOTONIC`, ns); else 0.
    doubted_ns: AtomicU64,
    /// Whether it was said what is wrong with its notes.
    pub was_judged: AtomicBool,
    /// The numbers of its languages, where they are registered; else 0.
    pub languages: [AtomicI32; LANGUAGES],
}

static TABLE: [Noted; PLACES] = [const {
    Noted {
        state: AtomicU32::new(FREE),
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        stays: AtomicBool::new(false),
        doubted_ns: AtomicU64::new(0),
        was_judged: AtomicBool::new(false),
        languages: [const { AtomicI32::new(0) }; LANGUAGES],
    }
}; PLACES];

/// How many `dlclose` calls are under way.
pub(super) static UNLOADING: AtomicU32 = AtomicU32::new(0);

/// Whether somebody stands in front of `dlclose`.
static CLOSING_IS_SEEN: AtomicBool = AtomicBool::new(false);

/// From now on nothing is closed but between [`super::unloading::begin`] and its end: by the
/// preload library, before it sets anything up.
pub fn closing_is_seen() {
    CLOSING_IS_SEEN.store(true, Relaxed);
}

/// Whether one may be waiting.
static ANY_WAITING: AtomicBool = AtomicBool::new(false);

impl Noted {
    /// Where the module is.
    pub fn range(&self) -> Range<u64> {
        self.start.load(Relaxed)..self.end.load(Relaxed)
    }

    /// Its languages are registered, or refused.
    pub fn taken_in(&self) {
        self.state.store(TAKEN_IN, Release);
    }

    /// What it describes is wrong, but it may be on its way into memory, in the place of one that
    /// was closed: the loader maps a file's pages in turn, and relocates them then.
    pub fn doubt(&self, now_ns: u64) {
        self.doubted_ns.store(now_ns.max(1), Relaxed);
        self.wait_again();
    }

    /// Whether it is what it describes that is wrong, not the moment.
    pub fn was_doubted(&self) -> bool {
        self.doubted_ns.load(Relaxed) != 0
    }

    /// Whether it is too early to look at it again.
    pub fn is_in_doubt(&self, now_ns: u64) -> bool {
        self.was_doubted() && now_ns.saturating_sub(self.doubted_ns.load(Relaxed)) < LOADING_NS
    }

    /// They no longer are, and may be again.
    pub fn wait_again(&self) {
        self.state.store(WAITING, Release);
        ANY_WAITING.store(true, SeqCst);
    }
}

fn with(state: u32) -> impl Iterator<Item = &'static Noted> {
    TABLE
        .iter()
        .filter(move |one| one.state.load(Acquire) == state)
}

/// Whether there are modules to be taken in. None while libraries are closed: they may be gone at
/// any moment.
#[inline]
pub fn any_waiting() -> bool {
    ANY_WAITING.load(Relaxed) && UNLOADING.load(SeqCst) == 0
}

/// The modules to be taken in. For who holds the languages' lock.
pub fn waiting() -> impl Iterator<Item = &'static Noted> {
    ANY_WAITING.store(false, SeqCst);
    with(WAITING)
}

/// The modules that were taken in and may be closed.
pub fn taken_in() -> impl Iterator<Item = &'static Noted> {
    with(TAKEN_IN).filter(|one| !one.stays.load(Relaxed))
}

/// Where the languages of a module that is in use are described, each in `size` bytes.
///
/// # Signal safety
/// Probes of the pages that are looked at.
pub fn languages(module: Range<u64>, size: u64) -> impl Iterator<Item = Result<u64, BadNote>> {
    let image = image::at(RuntimeAddress(module.start)).unwrap_or_default();
    let read = move |(address, notes)| described(notes, address, module.clone(), size);
    image.notes().flat_map(read)
}

/// Looks whether a module that was just found has such notes; `false` if there is no room for it.
/// Where nobody sees libraries go it is the program's own file that is looked at, or the one that
/// has this code, and no other. `program` and `here` are addresses in these, or 0.
pub(super) fn look_at(module: &Module, program: RuntimeAddress, here: RuntimeAddress) -> bool {
    let stays = module.contains(program) || module.contains(here);
    if !stays && !CLOSING_IS_SEEN.load(Relaxed) {
        return true;
    }
    let range = module.start.0..module.end.0;
    if languages(range.clone(), 0).next().is_none() {
        return true;
    }
    let is_here = |one: &Noted| one.state.load(Acquire) > BEING_WRITTEN && one.range() == range;
    if TABLE.iter().any(is_here) {
        return true;
    }
    let claim = |one: &&Noted| {
        let claimed = (one.state).compare_exchange(FREE, BEING_WRITTEN, AcqRel, Relaxed);
        claimed.is_ok()
    };
    let Some(free) = TABLE.iter().find(claim) else {
        return false;
    };
    free.start.store(range.start, Relaxed);
    free.end.store(range.end, Relaxed);
    free.stays.store(stays, Relaxed);
    free.doubted_ns.store(0, Relaxed);
    free.was_judged.store(false, Relaxed);
    for language in &free.languages {
        language.store(0, Relaxed);
    }
    free.wait_again();
    true
}

/// A module is gone, and its languages were taken back before.
pub(super) fn forget(start: u64) {
    for one in with(WAITING).filter(|one| one.range().start == start) {
        one.state.store(FREE, Release);
    }
}
