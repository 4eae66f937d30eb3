//! What was described to the recording, code objects and labels, and under which number.
//!
//! The table begins with its first few entries, which are near each other in memory, and goes on to
//! all of them when a third of those is used.
//!
//! The table forgets: a thing whose place is taken by another is described again when it is met
//! again, under a new number. An entry is two words that are stored one after the other; a reader
//! takes both, and believes the number only if they give the key it looks for.
//!
//! # Safety
//! The table is mapped once and stays; a fork child, whose recording is another one, finds it
//! wiped.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::sys::{self, filters};
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use engine::memory::fetch;
use engine::mix::{mix, part};

/// Entries of the table, in all and at first, and how many of them a key may be in.
const ENTRIES: usize = 65_536;
const FIRST: usize = 4096;
const WAYS: usize = 8;
type Entry = [AtomicU64; 2];
type Table = [Entry; ENTRIES];

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
static NEXT: AtomicU64 = AtomicU64::new(1);
/// How many were put among the first entries.
static FILLED: AtomicUsize = AtomicUsize::new(0);

/// Makes the table, unless it is there.
pub(crate) fn prepare() -> Result<(), Error> {
    if !TABLE.load(Acquire).is_null() {
        return Ok(());
    }
    let length = size_of::<Table>();
    let memory = sys::map_anonymous(length).map_err(|_| Error::Memory)?;
    sys::advise(memory, length, libc::MADV_WIPEONFORK);
    let made = TABLE.compare_exchange(ptr::null_mut(), memory.cast(), AcqRel, Acquire);
    if made.is_err() {
        // SAFETY: nobody has seen it.
        unsafe { sys::unmap(memory, length) };
    }
    Ok(())
}

/// The same in a walk; `None` also where memory is not asked for, as that might kill the program.
///
/// # Signal safety
/// As [`prepare`], and a load or a system call.
pub(crate) fn prepare_in_walk() -> Option<()> {
    filters::may_map().then(prepare)?.ok()
}

fn table() -> Option<&'static Table> {
    // SAFETY: null, or zeroed memory of that size, which is an empty table; it stays.
    unsafe { TABLE.load(Acquire).as_ref() }
}

/// A number for what is described: never 0, and never given again.
pub(crate) fn new_number() -> u64 {
    NEXT.fetch_add(1, Relaxed)
}

/// The number that is given next.
pub(crate) fn next_number() -> u64 {
    NEXT.load(Relaxed)
}

/// The kind of [`Key`]s of labels; languages have the numbers below.
pub(crate) const LABELS: usize = 128;
/// And that of a language's other numbers begins here.
pub(crate) const NUMBERS: usize = 129;

/// What stands for a thing in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Never 0.
    value: u64,
    place: u64,
}

/// Where in the table things of an id are, whatever else tells them apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(u64);

impl Place {
    /// Of a kind of things; see [`Key::new`].
    #[inline]
    pub const fn of(kind: usize, id: u64) -> Self {
        Self(part(1, id ^ (kind as u64 + 1) << 56))
    }

    /// Has the processor fetch it, which takes long where other work was done meanwhile.
    #[inline]
    pub fn fetch(self) {
        let first = TABLE.load(Relaxed).addr();
        let entry = place_among(self.0 >> HIGH, used());
        fetch(first.wrapping_add(entry.wrapping_mul(size_of::<Entry>())) as u64);
    }
}

/// The bits of a [`Place`] that depend on all of its id are from here on.
const HIGH: u32 = 32;

/// The first of the entries, of so many, that a key of that place may be in.
const fn place_among(place: u64, entries: usize) -> usize {
    (place as usize & entries.wrapping_sub(1)) / WAYS * WAYS
}

impl Key {
    /// As [`Key::new`], of one of a few things at that place.
    #[inline]
    pub fn at(place: Place, check: u64) -> Self {
        Self {
            value: mix(place.0.wrapping_add(part(2, check))).max(1),
            place: place.0 >> HIGH,
        }
    }

    /// Of what a kind of things, such as the code objects of a language, knows by `id`; `check` is
    /// another when another thing has taken over that id.
    pub fn new(kind: usize, id: u64, check: u64) -> Self {
        let Self { value, .. } = Self::at(Place::of(kind, id), check);
        // Of one id there may be any number.
        Self {
            value,
            place: value,
        }
    }

    /// The entries that it may be in, of so many.
    fn ways(self, entries: usize) -> &'static [Entry] {
        let first = place_among(self.place, entries);
        let line = table().and_then(|table| table.get(first..first.wrapping_add(WAYS)));
        line.unwrap_or_default()
    }

    /// What stands beside the number: with another one it is another key's.
    const fn check(self, number: u64) -> u64 {
        part(3, number) ^ self.value
    }

    fn find_among(self, entries: usize) -> Option<u64> {
        self.ways(entries).iter().find_map(|[number, check]| {
            let number = number.load(Relaxed);
            (number != 0 && check.load(Relaxed) == self.check(number)).then_some(number)
        })
    }
}

/// How many entries are used.
fn used() -> usize {
    match FILLED.load(Relaxed) {
        few if few < FIRST / 3 => FIRST,
        _ => ENTRIES,
    }
}

/// The number under which it was described.
///
/// # Signal safety
/// Loads, and stores where it was described before the table grew.
#[inline]
pub(crate) fn find(key: Key) -> Option<u64> {
    let used = used();
    let found = key.find_among(used);
    match found {
        None if used != FIRST => find_first(key),
        _ => found,
    }
}

#[cold]
fn find_first(key: Key) -> Option<u64> {
    let found = key.find_among(FIRST)?;
    insert(key, found);
    Some(found)
}

/// Keeps the number for the key; another one may be forgotten for it.
pub(crate) fn insert(key: Key, number: u64) {
    let used = used();
    let ways = key.ways(used);
    let free = ways.iter().find(|[found, _]| found.load(Relaxed) == 0);
    let entry = free.or_else(|| ways.get(mix(number) as usize % WAYS));
    if let Some([found, check]) = entry {
        found.store(number, Relaxed);
        check.store(key.check(number), Relaxed);
    }
    if used == FIRST {
        FILLED.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_told_apart_by_language_id_and_check() {
        prepare().unwrap();
        let keys: Vec<Key> = (0..3)
            .flat_map(|n| [(n, 7, 7), (1, n as u64, 9), (1, 9, n as u64)])
            .map(|(language, id, check)| Key::new(language, id, check))
            .collect();
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key));
            assert_eq!(find(*key), None);
            insert(*key, index as u64 + 1);
        }
        for (key, number) in keys.iter().zip(1..) {
            assert_eq!(find(*key), Some(number));
        }
    }

    #[test]
    fn objects_at_places_of_their_ids_are_told_apart_by_their_checks() {
        prepare().unwrap();
        let key = |id: u64, check| Key::at(Place::of(6, id << 4), check);
        for id in 0..100 {
            insert(key(id, 1), 1000 + id);
            insert(key(id, 2), 2000 + id);
        }
        for id in 0..100 {
            let found = [1, 2, 3].map(|check| find(key(id, check)));
            assert_eq!(found, [Some(1000 + id), Some(2000 + id), None]);
        }
        let places = (0..FIRST as u64).map(|id| place_among(key(id, 0).place, FIRST));
        let places: std::collections::HashSet<usize> = places.collect();
        assert!(places.len() > FIRST / WAYS / 2, "{}", places.len());
    }

    #[test]
    fn an_object_may_be_forgotten_but_never_mistaken() {
        prepare().unwrap();
        let key = |id: u64| Key::new(5, id, 0);
        for id in 1..=200_000u64 {
            insert(key(id), id);
        }
        let known = (1..=200_000).filter_map(|id| find(key(id)).map(|found| assert_eq!(found, id)));
        assert!(known.count() > 50_000);
    }
}
