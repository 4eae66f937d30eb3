//! The regions that a thread is in, and their labels: a stack of its own, which the program changes
//! and the handler reads.
//!
//! One word says which is the innermost, and how often that has changed. To begin a region is to
//! write its labels behind those of the innermost one, and then to change the word; to end it is to
//! change the word. Who finds the word changed by a handler that came in between begins anew, and
//! what the word leads to is whole at every instruction.
//!
//! ```text
//! | word, owner | labels of the outermost region | of the next | … | free |
//! region: | its number (its change) | u16 outer region, u16 bytes | length, key, length, value … |
//! ```
//!
//! The memory is not wiped in a fork child, which is in the regions that it was born in.
//!
//! # Safety
//! Used by its own thread alone, in ordinary code and in handlers.
#![allow(unsafe_code)]

use super::layout::{HANDLER_STACK, LABELS as ROOM};
use crate::described;
use crate::error::Error;
use crate::sys;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, compiler_fence};
use core::{ptr, slice};
use engine::wire::label::{LONGEST_KEY, LONGEST_VALUE};

/// Labels of a region, at most.
pub const MOST: usize = 16;

/// Places are counted in these.
const UNIT: usize = 8;
/// Where the first region is.
const FIRST: usize = 2;
/// Units in front of a region's labels.
const HEAD: usize = 2;
/// Bits of the word that are a place; the others count changes.
const PLACE_BITS: u32 = 16;

/// What lies in that memory; it begins with zeros.
#[repr(C)]
struct Memory {
    word: AtomicU64,
    /// The process whose thread wrote it.
    owner: AtomicU32,
    unused: AtomicU32,
    units: [AtomicU64; ROOM / UNIT - FIRST],
}

const _: () = assert!(size_of::<Memory>() == ROOM && ROOM / UNIT < 1 << PLACE_BITS);

/// Whether any thread of the process, or of those before it, has been in a region.
static ANY: AtomicBool = AtomicBool::new(false);
/// Regions whose labels were wrong, or too much.
pub(crate) static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// Values that were cut.
pub(crate) static CUT: AtomicU64 = AtomicU64::new(0);

/// A label, as it crosses the C interface.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawLabel {
    /// The key and its length.
    pub key: *const u8,
    /// See there.
    pub key_length: usize,
    /// The value and its length.
    pub value: *const u8,
    /// See there.
    pub value_length: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Regions {
    memory: *const Memory,
    /// Whether the memory is this thread's: what an earlier one has left there means nothing.
    is_begun: Cell<bool>,
    /// The word, the span and the stretch of time, and what the labels were described as.
    pub(super) described: Cell<((u64, u64, u64), u64)>,
}

/// What the word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now {
    pub word: u64,
}

impl Now {
    /// How often regions began or ended.
    pub const fn changes(self) -> u64 {
        self.word >> PLACE_BITS
    }

    /// Whether the thread is in none.
    pub const fn is_outside(self) -> bool {
        self.place() == 0
    }

    const fn place(self) -> usize {
        self.word as usize & ((1 << PLACE_BITS) - 1)
    }

    const fn next(self, place: usize) -> Self {
        let changes = self.changes().wrapping_add(1);
        Self {
            word: changes << PLACE_BITS | place as u64,
        }
    }
}

/// A region as it lies there.
#[derive(Clone, Copy)]
struct Found {
    number: u64,
    outer: usize,
    labels: &'static [u8],
}

impl Regions {
    /// None; the memory for them lies below the handler's stack, which ends there.
    pub fn new(stack_top: usize) -> Self {
        Self {
            memory: memory_below(stack_top),
            is_begun: Cell::new(false),
            described: Cell::new(((0, 0, 0), 0)),
        }
    }

    /// The thread is gone.
    pub fn reset(&self) {
        if self.is_begun.replace(false) {
            self.memory().word.store(0, Relaxed);
        }
        self.described.set(((0, 0, 0), 0));
    }

    fn memory(&self) -> &Memory {
        // SAFETY: mapped with the state, for good.
        unsafe { &*self.memory }
    }

    /// In a fork child: goes on in the regions of the thread that forked, whose handler's stack
    /// ended there.
    ///
    /// # Safety
    /// That memory is still mapped, as it was in the process that forked.
    pub unsafe fn inherit(&self, stack_top: usize, parent: u32) {
        let theirs = memory_below(stack_top);
        if !ANY.load(Relaxed) {
            return;
        }
        // SAFETY: the caller's promise.
        let before = unsafe { &*theirs };
        if before.owner.load(Relaxed) != parent || before.word.load(Relaxed) == 0 {
            return;
        }
        LEFT_OUT.store(0, Relaxed);
        CUT.store(0, Relaxed);
        let own = self.memory();
        if !ptr::eq(theirs, own) {
            for (to, from) in own.units.iter().zip(&before.units) {
                to.store(from.load(Relaxed), Relaxed);
            }
            own.word.store(before.word.load(Relaxed), Relaxed);
        }
        own.owner.store(sys::getpid(), Relaxed);
        self.is_begun.set(true);
    }

    /// Begins a region with such labels; gives its number.
    ///
    /// # Signal safety
    /// Stores to memory of the thread's own; a thread's first call makes a system call.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Budget`].
    ///
    /// # Safety
    /// The labels' keys and values can be read.
    pub unsafe fn begin(&self, labels: &[RawLabel]) -> Result<u64, Error> {
        if !self.is_begun.get() {
            self.begin_first();
        }
        if labels.is_empty() || labels.len() > MOST {
            return Err(Error::Null);
        }
        loop {
            let now = self.now();
            let place = match self.find(now.place()) {
                Some(inner) => now
                    .place()
                    .wrapping_add(HEAD)
                    .wrapping_add(inner.labels.len().div_ceil(UNIT)),
                None => FIRST,
            };
            // SAFETY: the caller's promise.
            let length = unsafe { self.put(place.wrapping_add(HEAD), labels) }?;
            let next = now.next(place);
            self.store(place, next.changes());
            let outer = now.place() as u64 | (length as u64) << PLACE_BITS;
            self.store(place.wrapping_add(1), outer);
            if self.change(now, next) {
                return Ok(next.changes());
            }
        }
    }

    #[cold]
    fn begin_first(&self) {
        let memory = self.memory();
        memory.word.store(0, Relaxed);
        memory.owner.store(sys::getpid(), Relaxed);
        ANY.store(true, Relaxed);
        // Without it labels are described anew to each sample.
        let _ = described::prepare();
        compiler_fence(Release);
        self.is_begun.set(true);
    }

    /// Ends a region, and all that began in it and have not ended.
    ///
    /// # Signal safety
    /// Atomics.
    ///
    /// # Errors
    /// [`Error::NoClient`] if the thread is not in it.
    pub fn end(&self, number: u64) -> Result<(), Error> {
        loop {
            let now = self.now();
            let mut found = self.find(now.place());
            let outer = loop {
                let region = found.ok_or(Error::NoClient)?;
                if region.number == number {
                    break region.outer;
                }
                found = self.find(region.outer);
            };
            if self.change(now, now.next(outer)) {
                return Ok(());
            }
        }
    }

    /// Where the thread is.
    ///
    /// # Signal safety
    /// Loads, as all that reads.
    pub(super) fn now(&self) -> Now {
        let word = match self.is_begun.get() {
            true => self.memory().word.load(Relaxed),
            false => 0,
        };
        Now { word }
    }

    /// `false` if something has come between.
    fn change(&self, from: Now, to: Now) -> bool {
        let word = &self.memory().word;
        let changed = word.compare_exchange(from.word, to.word, Release, Relaxed);
        changed.is_ok()
    }

    fn unit(&self, place: usize) -> Option<&AtomicU64> {
        self.memory().units.get(place.wrapping_sub(FIRST))
    }

    fn store(&self, place: usize, value: u64) {
        if let Some(unit) = self.unit(place) {
            unit.store(value, Relaxed);
        }
    }

    fn find(&self, place: usize) -> Option<Found> {
        let load = |place| self.unit(place).map(|unit| unit.load(Relaxed));
        let number = load(place)?;
        let rest = load(place.wrapping_add(1))?;
        let outer = rest as usize & ((1 << PLACE_BITS) - 1);
        let length = (rest >> PLACE_BITS) as usize;
        let first = place.wrapping_add(HEAD);
        let end = first.wrapping_add(length.div_ceil(UNIT));
        // Whatever is there: inwards there is nothing, and nothing beyond.
        if outer >= place || end > ROOM / UNIT {
            return None;
        }
        let start = self
            .memory
            .cast::<u8>()
            .wrapping_add(first.wrapping_mul(UNIT));
        // SAFETY: within the memory, which stays.
        let labels = unsafe { slice::from_raw_parts(start, length) };
        Some(Found {
            number,
            outer,
            labels,
        })
    }

    /// The labels of each region, from the outermost in, and how many bytes they are together.
    pub(super) fn labels(&self, now: Now) -> (usize, impl Iterator<Item = &'static [u8]> + Clone) {
        const DEEPEST: usize = ROOM / UNIT / (HEAD + 1);
        let mut all: [&'static [u8]; DEEPEST] = [&[]; DEEPEST];
        let (mut count, mut length) = (0usize, 0usize);
        let mut at = self.find(now.place());
        while let (Some(region), Some(place)) = (at, all.get_mut(count)) {
            *place = region.labels;
            count = count.wrapping_add(1);
            length = length.wrapping_add(region.labels.len());
            at = self.find(region.outer);
        }
        (length, all.into_iter().take(count).rev())
    }

    /// Writes labels from that place on; gives how many bytes.
    ///
    /// # Safety
    /// As [`Regions::begin`].
    unsafe fn put(&self, place: usize, labels: &[RawLabel]) -> Result<usize, Error> {
        let start = place.wrapping_mul(UNIT);
        let mut at = start;
        for label in labels {
            let is_wrong = label.key.is_null()
                || !(1..=LONGEST_KEY).contains(&label.key_length)
                || (label.value.is_null() && label.value_length != 0);
            if is_wrong {
                return Err(Error::Null);
            }
            // SAFETY: (both) the caller's promise.
            let value_length = unsafe { whole_length(label.value, label.value_length) };
            for (part, length) in [(label.key, label.key_length), (label.value, value_length)] {
                let end = at.wrapping_add(1).wrapping_add(length);
                if end > ROOM {
                    return Err(Error::Budget);
                }
                let to = self.memory.cast::<u8>().cast_mut().wrapping_add(at);
                // SAFETY: within the memory, where nobody reads yet; the caller's promise.
                unsafe {
                    to.write(length as u8);
                    if length != 0 {
                        ptr::copy_nonoverlapping(part, to.wrapping_add(1), length);
                    }
                }
                at = end;
            }
        }
        Ok(at.wrapping_sub(start))
    }
}

/// How much of a value is kept: no half letters.
///
/// # Safety
/// It can be read.
unsafe fn whole_length(value: *const u8, length: usize) -> usize {
    if length <= LONGEST_VALUE {
        return length;
    }
    CUT.fetch_add(1, Relaxed);
    // SAFETY: the caller's promise; it is longer than that.
    let is_inside = |at: usize| unsafe { value.wrapping_add(at).read() } & 0xc0 == 0x80;
    let mut ends = (LONGEST_VALUE.wrapping_sub(3)..=LONGEST_VALUE).rev();
    ends.find(|end| !is_inside(*end)).unwrap_or(LONGEST_VALUE)
}

fn memory_below(stack_top: usize) -> *const Memory {
    let below = HANDLER_STACK + ROOM;
    stack_top.wrapping_sub(below) as *const Memory
}

#[cfg(test)]
mod tests;
