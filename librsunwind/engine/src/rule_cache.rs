//! pc → rule, shared by all threads, without locks.
//!
//! ```text
//!   line (64 bytes) = 4 entries;  entry = | rule | mix(rule) xor key |
//!   key = pc, generation in the upper 16 bits
//! ```
//!
//! A key has a preferred entry, may lie in any other of that line, and in any of a second line when
//! the first was full.
//!
//! An entry is two words that are stored one after the other. A reader takes both and believes the
//! rule only if they give the key it looks for: a torn entry, another pc, or another generation is
//! a miss. A miss costs time, never truth. The rule is mixed for this: two rules may differ in a
//! bit in which two addresses of one line differ too, and a tear between these would pass for a
//! third's.
//!
//! The cache begins with its first few entries, so that a short-lived process touches two pages,
//! and goes on to more of them ([`SIZES`]) when three eighths of those are used. Unloading a module
//! begins a new generation: every entry is stale at once. The generation wraps after 65,535
//! unloads, when the entries are wiped too.
//!
//! # Safety
//! Makes a reference to zeroed memory that the caller vouches for.
#![allow(unsafe_code)]

use crate::rule::UnwindRule;
use crate::rule::wide::WideRows;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries in all.
pub const ENTRIES: usize = 65_536;
/// Entries used at first, after the first growth, and then.
pub const SIZES: [usize; 3] = [512, 8192, ENTRIES];
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
    /// Which of [`SIZES`] it has.
    size: AtomicU32,
    /// Rows that a rule word does not hold.
    pub wide: WideRows,
    lines: [Line; LINES],
}

/// The cache as one walk sees it.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    lines: &'a [Line; LINES],
    /// A whole word: to read more at once than was just written is slow.
    mask: usize,
    /// As keys have it.
    generation: u64,
    whole_generation: u64,
}

/// What a rule is kept under: the address after the byte that the tables are asked about, which for
/// a caller is the return address.
#[inline]
#[must_use]
pub const fn key_of(pc: u64, is_exact: bool) -> u64 {
    if is_exact { pc.wrapping_add(1) } else { pc }
}

/// Under what the native rule of a frame is kept whose key leads to a language: addresses of
/// programs do not have that bit.
#[inline]
#[must_use]
pub const fn native_key(key: u64) -> u64 {
    key | 1 << (PC_BITS - 1)
}

impl RuleCache {
    /// Where the entries lie that are used before the last growth, as bytes from the start and
    /// their number: who measures walks has them in memory before.
    pub const FIRST_USED: (usize, usize) =
        (offset_of!(Self, lines), size_of::<[Entry; SIZES[1]]>());

    /// A cache in memory of at least `size_of::<RuleCache>()` bytes.
    ///
    /// # Safety
    /// `memory` is aligned to 64 bytes, zeroed (or a cache already), readable and writable for as
    /// long as the result is used, and written by nobody else.
    #[must_use]
    pub const unsafe fn from_zeroed<'a>(memory: NonNull<u8>) -> &'a Self {
        // SAFETY: every field is valid when zero, and changed through atomics or the wide table's
        // protocol only.
        unsafe { memory.cast().as_ref() }
    }

    /// The cache as it is now, for one walk.
    ///
    /// # Signal safety
    /// Two loads.
    #[inline]
    #[must_use]
    pub fn probe(&self) -> Probe<'_> {
        let generation = self.generation();
        Probe {
            lines: &self.lines,
            mask: mask_of(self.size.load(Ordering::Relaxed)),
            generation: generation << PC_BITS,
            whole_generation: generation,
        }
    }

    /// Changes with each [`RuleCache::invalidate`], and never comes again.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
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
        let lines = [index, second_index_of(key, probe.mask)].map(|at| probe.lines.get(at / WAYS));
        let [Some(first), Some(second)] = lines else {
            return;
        };
        let entry = first
            .free_for(index % WAYS, probe.generation, tag)
            .or_else(|| second.free_for(0, probe.generation, tag))
            .or_else(|| first.0.get((key >> 7 ^ key >> 3) as usize % WAYS));
        if let Some([rule_word, check_word]) = entry {
            rule_word.store(rule.bits(), Ordering::Relaxed);
            check_word.store(mix(rule.bits()) ^ tag, Ordering::Relaxed);
        }
        self.count_insert();
    }

    fn count_insert(&self) {
        let size = self.size.load(Ordering::Relaxed);
        let mask = mask_of(size);
        let full = (mask as u32).wrapping_mul(3) >> 3;
        if mask != mask_of(u32::MAX) && self.filled.fetch_add(1, Ordering::Relaxed) >= full {
            self.size.store(size.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Makes every entry stale: after the code of a module has gone, before other code can take its
    /// place.
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
    /// The generation of the rules; it never comes again.
    #[inline]
    pub(crate) const fn whole_generation(&self) -> u64 {
        self.whole_generation
    }

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
        if mix(rule) ^ entry[1].load(Ordering::Relaxed) == tag {
            return Some(UnwindRule::from_bits(rule));
        }
        line.find(tag).or_else(|| self.find_second(key))
    }

    /// The rule in the key's second line.
    #[cold]
    fn find_second(&self, key: u64) -> Option<UnwindRule> {
        let index = second_index_of(key, self.mask);
        self.lines.get(index / WAYS)?.find(key | self.generation)
    }

    /// The rule that was kept under a key while the cache was smaller.
    #[must_use]
    pub fn find_small(&self, key: u64) -> Option<UnwindRule> {
        let masks = [1, 0].map(mask_of).into_iter();
        masks
            .filter(|mask| *mask < self.mask)
            .find_map(|mask| Self { mask, ..*self }.find(key))
    }
}

impl Line {
    /// The rule under a tag in any entry.
    #[inline]
    fn find(&self, tag: u64) -> Option<UnwindRule> {
        let mut found = None;
        for [rule, check] in &self.0 {
            let rule = rule.load(Ordering::Relaxed);
            if mix(rule) ^ check.load(Ordering::Relaxed) == tag {
                found = Some(UnwindRule::from_bits(rule));
            }
        }
        found
    }

    /// The preferred entry if it is free, stale or the key's own, else another such.
    fn free_for(&self, preferred: usize, generation: u64, tag: u64) -> Option<&Entry> {
        let is_free = |entry: &&Entry| {
            let [rule, check] = *entry;
            let found = mix(rule.load(Ordering::Relaxed)) ^ check.load(Ordering::Relaxed);
            found == 0 || found == tag || (found ^ generation) >> PC_BITS != 0
        };
        let first = self.0.get(preferred).filter(is_free);
        first.or_else(|| self.0.iter().find(is_free))
    }
}

/// Bits of the index of an entry in a cache that has that one of [`SIZES`].
#[inline]
const fn mask_of(size: u32) -> usize {
    match size {
        0 => SIZES[0].wrapping_sub(1),
        1 => SIZES[1].wrapping_sub(1),
        _ => SIZES[2].wrapping_sub(1),
    }
}

/// Spreads a rule over the whole word, its high bits to the low ones too; 0 stays 0, so that zeroed
/// memory is empty.
#[inline]
const fn mix(rule: u64) -> u64 {
    (rule ^ rule >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The low bits of a code address are as good as random, and neighbours never share an entry; the
/// higher ones keep modules apart.
#[inline]
const fn index_of(key: u64, mask: usize) -> usize {
    (key ^ key >> 16) as u16 as usize & mask
}

/// Somewhere else, the same for no two keys that share a first line.
#[inline]
const fn second_index_of(key: u64, mask: usize) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u16 as usize & mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::sync::atomic::AtomicBool;

    fn cache() -> &'static RuleCache {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(Layout::new::<RuleCache>()) };
        // SAFETY: zeroed, aligned, never freed.
        unsafe { RuleCache::from_zeroed(NonNull::new(memory).unwrap()) }
    }

    /// A rule that only this key in this generation has.
    fn rule_for(key: u64, generation: u64) -> UnwindRule {
        UnwindRule::from_bits(key.wrapping_mul(0x9e37_79b9).rotate_left(20) ^ generation << 50 | 1)
    }

    #[test]
    fn twenty_thousand_rules_are_all_kept() {
        let cache = cache();
        let keys: Vec<u64> = (0..20_000).map(|n| 0x7f12_3450_0000 + n * 77).collect();
        for key in &keys {
            cache.insert(&cache.probe(), *key, rule_for(*key, 0));
        }
        let probe = cache.probe();
        let find = |key: u64| probe.find(key).or_else(|| probe.find_small(key));
        let wrong = keys
            .iter()
            .filter(|key| find(**key).is_some_and(|r| r != rule_for(**key, 0)));
        assert_eq!(wrong.count(), 0);
        let kept = keys.iter().filter(|key| find(**key).is_some()).count();
        assert!(kept > 19_900, "{kept}");
        assert_eq!(probe.find(0x7f12_3450_0001), None);
    }

    #[test]
    fn few_rules_take_two_pages_and_are_found_when_there_are_many() {
        let cache = cache();
        let keys = (0..3000).map(|n| 0x7f12_3450_0000 + n * 1027);
        let mut used = 0;
        for (count, key) in keys.clone().enumerate() {
            cache.insert(&cache.probe(), key, rule_for(key, 0));
            if count == 190 {
                let is_used = |line: &Line| line.0.iter().any(|entry| !free(entry));
                used = cache.lines.iter().rposition(is_used).unwrap();
            }
        }
        let most = SIZES[0] / WAYS;
        assert!((most / 2..most).contains(&used), "{used}");
        let probe = cache.probe();
        let find = |key| probe.find(key).or_else(|| probe.find_small(key));
        let kept = keys.filter(|key| find(*key) == Some(rule_for(*key, 0)));
        assert!(kept.count() > 2980);
    }

    fn free(entry: &Entry) -> bool {
        entry.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    #[test]
    fn a_new_generation_makes_every_rule_stale_also_when_it_wraps() {
        let cache = cache();
        cache.insert(&cache.probe(), 4711, rule_for(4711, 0));
        assert!(cache.probe().find(4711).is_some());
        for _ in 0..0x1_0000 {
            cache.invalidate();
            assert_eq!(cache.probe().find(4711), None);
        }
        cache.insert(&cache.probe(), 4711, rule_for(4711, 1));
        assert_eq!(cache.probe().find(4711), Some(rule_for(4711, 1)));
    }

    #[test]
    fn a_tear_between_two_rules_is_no_third_keys_rule() {
        let cache = cache();
        let probe = cache.probe();
        let (one, other) = (0x7f12_3450_0000, 0x7f12_3450_0001);
        for bit in 0..64 {
            let rules = [1, 1 ^ 1 << bit].map(UnwindRule::from_bits);
            cache.insert(&probe, one, rules[0]);
            let entry =
                &probe.lines[index_of(one, probe.mask) / WAYS].0[index_of(one, probe.mask) % WAYS];
            assert_eq!(probe.find(one), Some(rules[0]));
            // Two threads at once, of which the other was first with one word and last with the
            // other.
            let torn = mix(rules[1].bits()) ^ other;
            entry[1].store(torn, Ordering::Relaxed);
            let third = rules[0].bits() ^ rules[1].bits() ^ other;
            for key in [one, other, third & ((1 << PC_BITS) - 1)] {
                assert_eq!(probe.find(key), None, "bit {bit}, key {key:x}");
            }
            entry[0].store(0, Ordering::Relaxed);
            entry[1].store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn addresses_beyond_the_key_are_not_kept() {
        let cache = cache();
        cache.insert(&cache.probe(), 1 << 48, rule_for(1, 0));
        assert_eq!(cache.probe().find(1 << 48), None);
    }

    #[test]
    fn threads_that_fight_for_entries_never_see_another_keys_rule() {
        let cache = cache();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let over = &over;
                scope.spawn(move || {
                    let mut seed = thread + 1;
                    let mut hits = 0u64;
                    while !over.load(Ordering::Relaxed) || hits == 0 {
                        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                        // 64 keys in two lines
                        let key = 0x5555_0000_0000 + ((seed >> 33) & 63) * (1 << 13);
                        let probe = cache.probe();
                        let generation = probe.generation >> PC_BITS;
                        if seed >> 40 & 1 == 0 {
                            cache.insert(&probe, key, rule_for(key, generation));
                        } else if let Some(rule) = probe.find(key) {
                            assert_eq!(rule, rule_for(key, generation));
                            hits += 1;
                        }
                    }
                });
            }
            for _ in 0..2000 {
                cache.invalidate();
                std::thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
