//! pc → rule, shared by all threads, without locks.
//!
//! ```text
//!   line (64 bytes) = 4 entries;  entry = | rule | rule xor key |      key = pc, generation in the upper 16 bits
//! ```
//!
//! An entry is two words that are stored one after the other. A reader takes both and believes the rule only if their xor is the key
//! it looks for: a torn entry, another pc, or another generation is a miss. A miss costs time, never truth.
//!
//! The cache begins with its first [`SMALL`] entries, so that a short-lived process touches few pages, and goes on to all of them
//! when those are half full. Nearby pcs have nearby entries. Unloading a module begins a new generation: every entry is stale at
//! once. The generation wraps after 65,535 unloads, when the entries are wiped too.
//!
//! # Safety
//! Makes a reference to zeroed memory that the caller vouches for.
#![allow(unsafe_code)]

use crate::rule::UnwindRule;
use crate::rule::wide::WideRows;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries at first.
pub const SMALL: usize = 4096;
/// Entries in all.
pub const ENTRIES: usize = 65_536;
const WAYS: usize = 4;
const LINES: usize = ENTRIES / WAYS;
/// Bits of a pc; addresses above are not cached.
const PC_BITS: u32 = 48;

type Entry = [AtomicU64; 2];

#[derive(Debug)]
#[repr(C, align(64))]
struct Line([Entry; WAYS]);

/// The cache and the table of wide rows. Zeroed memory is an empty one.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RuleCache {
    generation: AtomicU64,
    filled: AtomicU32,
    is_large: AtomicU32,
    /// Rows that a rule word does not hold.
    pub wide: WideRows,
    lines: [Line; LINES],
}

/// The cache as one walk sees it.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    lines: &'a [Line; LINES],
    mask: u64,
    generation: u64,
}

/// What a rule is kept under: the address after the byte that the tables are asked about, which for a caller is the return address.
#[inline]
#[must_use]
pub const fn key_of(pc: u64, is_exact: bool) -> u64 {
    if is_exact { pc.wrapping_add(1) } else { pc }
}

impl RuleCache {
    /// A cache in memory of at least `size_of::<RuleCache>()` bytes.
    ///
    /// # Safety
    /// `memory` is aligned to 64 bytes, zeroed (or a cache already), readable and writable for as long as the result is used, and
    /// written by nobody else.
    #[must_use]
    pub const unsafe fn from_zeroed<'a>(memory: NonNull<u8>) -> &'a Self {
        // SAFETY: every field is valid when zero, and changed through atomics or the wide table's protocol only.
        unsafe { memory.cast().as_ref() }
    }

    /// The cache as it is now, for one walk.
    ///
    /// # Signal safety
    /// Two loads.
    #[inline]
    #[must_use]
    pub fn probe(&self) -> Probe<'_> {
        let is_large = self.is_large.load(Ordering::Relaxed) != 0;
        Probe {
            lines: &self.lines,
            mask: if is_large {
                ENTRIES as u64
            } else {
                SMALL as u64
            }
            .wrapping_sub(1),
            generation: self.generation.load(Ordering::Acquire) << PC_BITS,
        }
    }

    /// Keeps a rule found in the generation of `probe`.
    ///
    /// # Signal safety
    /// A few loads and stores.
    pub fn insert(&self, probe: &Probe<'_>, key: u64, rule: UnwindRule) {
        if key >> PC_BITS != 0 {
            return;
        }
        let tag = key | probe.generation;
        let index = index_of(key, probe.mask);
        let Some(line) = probe.lines.get(index / WAYS) else {
            return;
        };
        if let Some(entry) = line.place_for(index % WAYS, probe.generation, tag) {
            entry[0].store(rule.bits(), Ordering::Relaxed);
            entry[1].store(rule.bits() ^ tag, Ordering::Relaxed);
        }
        self.count_insert();
    }

    fn count_insert(&self) {
        if self.is_large.load(Ordering::Relaxed) == 0
            && self.filled.fetch_add(1, Ordering::Relaxed) >= SMALL as u32 / 2
        {
            self.is_large.store(1, Ordering::Relaxed);
        }
    }

    /// Makes every entry stale: after the code of a module has gone, before other code can take its place.
    ///
    /// # Signal safety
    /// Safe; but it belongs to the one who unloads. Once in 65,535 times it wipes a mebibyte.
    pub fn invalidate(&self) {
        let before = self.generation.fetch_add(1, Ordering::AcqRel);
        if before & 0xffff == 0xffff {
            for entry in self.lines.iter().flat_map(|line| &line.0) {
                entry[0].store(0, Ordering::Relaxed);
                entry[1].store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Probe<'_> {
    /// The rule kept under a key.
    ///
    /// # Signal safety
    /// Two loads, eight at most.
    #[inline]
    #[must_use]
    pub fn find(&self, key: u64) -> Option<UnwindRule> {
        let index = index_of(key, self.mask);
        let line = self.lines.get(index / WAYS)?;
        let tag = key | self.generation;
        let entry = line.0.get(index % WAYS)?;
        let rule = entry[0].load(Ordering::Relaxed);
        if rule ^ entry[1].load(Ordering::Relaxed) == tag {
            return Some(UnwindRule::from_bits(rule));
        }
        line.find_elsewhere(tag)
    }

    /// The rule that was kept under a key while the cache was small.
    #[must_use]
    pub fn find_small(&self, key: u64) -> Option<UnwindRule> {
        let small = Self {
            mask: (SMALL as u64).wrapping_sub(1),
            ..*self
        };
        if self.mask == small.mask {
            None
        } else {
            small.find(key)
        }
    }
}

impl Line {
    #[inline(never)]
    fn find_elsewhere(&self, tag: u64) -> Option<UnwindRule> {
        let words = self.0.iter().map(|[rule, check]| {
            let rule = rule.load(Ordering::Relaxed);
            (rule, check.load(Ordering::Relaxed))
        });
        let mut rules = words.filter(|(rule, check)| rule ^ check == tag);
        rules.next().map(|(rule, _)| UnwindRule::from_bits(rule))
    }

    /// The preferred entry if it is free, stale or the key's own, else another such, else one picked by the key.
    fn place_for(&self, preferred: usize, generation: u64, tag: u64) -> Option<&Entry> {
        let is_free = |entry: &&Entry| {
            let [rule, check] = *entry;
            let found = rule.load(Ordering::Relaxed) ^ check.load(Ordering::Relaxed);
            found == 0 || found == tag || (found ^ generation) >> PC_BITS != 0
        };
        let first = self.0.get(preferred)?;
        if is_free(&first) {
            return Some(first);
        }
        let victim = (tag >> 7 ^ tag >> 3) as usize % WAYS;
        self.0.iter().find(is_free).or_else(|| self.0.get(victim))
    }
}

/// Neighbouring code has neighbouring entries: 4 KiB of code fill 4 KiB of cache, spread inside by the low bits.
#[inline]
const fn index_of(key: u64, mask: u64) -> usize {
    (((key >> 4) ^ (key >> 20) ^ ((key & 15) << 4)) & mask) as usize
}
