//! One remembered frame, and whether the words that led to it still stand.
//!
//! # Safety
//! Loads from the verified part of the stack; each address is compared with its bounds first.
#![allow(unsafe_code)]

use crate::address::RuntimeAddress;
#[cfg(target_arch = "x86_64")]
use crate::memory;
use crate::memory::{StackMemory, load_verified};
use crate::rule::{REACH, UnwindRule};
use crate::wire::sample::{Frame, Method};
use core::hint::select_unpredictable;
use core::ops::Range;
use core::slice;

/// A frame that a plain step found, and the words that the step read. Zeros are one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
pub struct Known {
    /// The word that gave the frame pointer; the return address, where none did.
    word: u64,
    frame: Frame,
    sp: u64,
    fp: u64,
    /// Where that word stands: at most 256 bytes below the stack pointer.
    at: u64,
}

impl Known {
    /// The frame with that stack pointer, pc and frame pointer, to which a plain rule has led.
    #[inline]
    pub(crate) fn new(sp: u64, pc: u64, fp: u64, rule: UnwindRule) -> Self {
        let words = rule.slot(0);
        Self {
            word: select_unpredictable(words == 0, pc, fp),
            frame: Frame::native(RuntimeAddress(pc), rule.method()),
            sp,
            fp,
            at: sp.wrapping_sub(8).wrapping_sub(words << 3),
        }
    }

    /// From now on that plain rule leads to it.
    #[inline]
    pub(super) fn led_by(&mut self, rule: UnwindRule) {
        *self = Self::new(self.sp, self.frame.pc.0, self.fp, rule);
    }

    /// A language's frame, which is the same for as long as the words are that stand at two places
    /// of its native frame: the upper one, and one that is not far below. It is one of those
    /// remembered like any other: the upper word is where a return address is else, and the number
    /// of the code object is the frame pointer's. `None` if the places are not those of a frame of
    /// the stack.
    pub(crate) fn told(
        frame: Frame,
        [upper, lower]: [u64; 2],
        native: Range<u64>,
        memory: &StackMemory,
    ) -> Option<Self> {
        let (low, high) = memory.plain();
        let sp = upper.checked_add(8)?;
        let is_inside = native.start.max(low) <= lower && sp < native.end && native.end <= high;
        let is_near = upper.checked_sub(lower)? <= REACH.wrapping_sub(8);
        let is_aligned = (upper | lower) & 7 == 0;
        if !is_inside
            || !is_near
            || !is_aligned
            || sp <= native.start
            || frame.method != Method::Language
        {
            return None;
        }
        // SAFETY: they lie in the stack, as was just found.
        let [pc, word] = [upper, lower].map(|place| unsafe { load_verified(place) });
        Some(Self {
            word,
            frame: Frame {
                pc: RuntimeAddress(pc),
                ..frame
            },
            sp,
            fp: frame.pc.0,
            at: lower,
        })
    }

    /// Whether it is a language's.
    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.frame.method == Method::Language
    }

    /// As it is in a sample.
    #[inline]
    pub(super) fn frame(&self) -> Frame {
        let is_told = self.is_told();
        Frame {
            pc: RuntimeAddress(select_unpredictable(is_told, self.fp, self.frame.pc.0)),
            ..self.frame
        }
    }

    #[inline]
    pub(super) const fn sp(&self) -> u64 {
        self.sp
    }

    #[inline]
    pub(super) const fn fp(&self) -> u64 {
        self.fp
    }

    /// The frame before it is none of those remembered: it is never come to from there.
    pub(super) const fn cut(&mut self) {
        self.at = self.sp.wrapping_sub(8);
        self.word = !self.frame.pc.0;
    }

    #[inline]
    pub(super) const fn is_same(&self, [sp, pc, fp]: [u64; 3]) -> bool {
        (self.sp ^ sp) | (self.frame.pc.0 ^ pc) | (self.fp ^ fp) == 0
    }

    /// Whether the step from its callee, which is unchanged, still leads to it.
    #[inline]
    pub(super) fn holds(&self, bounds: &Bounds) -> bool {
        // SAFETY: it is within the bounds.
        bounds.hold(self.sp) && !unsafe { differ(slice::from_ref(self)) }
    }
}

/// Whether words of the stack are others than those that led to these frames.
///
/// # Safety
/// Their stack pointers lie within [`Bounds`].
#[inline]
#[cfg(target_arch = "x86_64")]
unsafe fn differ(all: &[Known]) -> bool {
    use crate::memory::load_verified;
    use core::arch::x86_64::{_mm_castpd_si128, _mm_load_si128, _mm_set_pd, _mm_setzero_si128};
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_xor_si128};
    // By hand, because the compiler makes a branch of each word. As floating point, which it is
    // not: of two such words the second is loaded into the upper half without an instruction more.
    // SAFETY: this far below such a stack pointer can be loaded from; `word` and `frame.pc` are
    // two words, one behind the other.
    let differences = all.iter().map(|known| unsafe {
        let load = |address| f64::from_bits(load_verified(address));
        let now = _mm_set_pd(load(known.sp.wrapping_sub(8)), load(known.at));
        let then = _mm_load_si128((&raw const *known).cast());
        _mm_xor_si128(_mm_castpd_si128(now), then)
    });
    // SAFETY: every x86-64 processor has these instructions.
    unsafe {
        let none = _mm_setzero_si128();
        let any = differences.fold(none, |any, difference| _mm_or_si128(any, difference));
        _mm_movemask_epi8(_mm_cmpeq_epi8(any, none)) != 0xffff
    }
}

/// Nothing is remembered there.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn differ(_: &[Known]) -> bool {
    true
}

/// How many are looked at before it is asked whether one has changed.
const BLOCK: usize = 8;

/// Has the processor fetch the words that led to these frames, which are long in coming where other
/// work was done since the last walk: meanwhile the walk goes on.
#[inline]
#[cfg(target_arch = "x86_64")]
pub(super) fn fetch(known: &[Known]) {
    for frame in known.iter().rev() {
        memory::fetch(frame.sp.wrapping_sub(8));
    }
}

/// Nothing is remembered there.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const fn fetch(_: &[Known]) {}

/// Copies frames, the innermost first, up to one whose step from its callee no longer leads to it,
/// and gives their number. `known` are in the order of their stack pointers, the highest first.
///
/// # Signal safety
/// Loads from the stack within the bounds.
#[inline]
pub(super) fn copy_unchanged(known: &[Known], bounds: &Bounds, room: &mut [Frame]) -> usize {
    debug_assert!(known.is_sorted_by(|outer, inner| outer.sp > inner.sp));
    let is_inside = |end: Option<&Known>| end.is_some_and(|known| bounds.hold(known.sp));
    let mut count = 0usize;
    if is_inside(known.first()) && is_inside(known.last()) {
        let blocks = known.as_rchunks::<BLOCK>().1.iter().rev();
        for (block, places) in blocks.zip(room.as_chunks_mut::<BLOCK>().0) {
            // SAFETY: the first and the last are within the bounds, and so are those between.
            if unsafe { differ(block) } {
                break;
            }
            let pairs = places.iter_mut().zip(block.iter().rev());
            pairs.for_each(|(place, known)| *place = known.frame());
            count = count.wrapping_add(BLOCK);
        }
    }
    let left = known.len().wrapping_sub(count);
    let known = known.get(..left).unwrap_or_default().iter().rev();
    let room = room.get_mut(count..).unwrap_or_default();
    let pairs = known.zip(room);
    let rest =
        pairs.map_while(|(known, place)| known.holds(bounds).then(|| *place = known.frame()));
    count.wrapping_add(rest.count())
}

/// Where a CFA may lie, so that the words below it can be loaded without asking: from `lowest_cfa`
/// on, `span` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    lowest_cfa: u64,
    span: u64,
}

impl Bounds {
    /// Where it may, if the stack can be loaded from between these.
    #[inline]
    pub(crate) const fn of(low: u64, high: u64) -> Self {
        let (lowest_cfa, span) = match low.wrapping_add(REACH) {
            lowest if lowest <= high => (lowest, high.wrapping_sub(lowest)),
            _ => (0, 0), // nothing is inside: 0 is the CFA of no step
        };
        Self { lowest_cfa, span }
    }

    /// Whether it may lie there.
    #[inline]
    pub(crate) const fn hold(&self, cfa: u64) -> bool {
        cfa.wrapping_sub(self.lowest_cfa) <= self.span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_languages_frame_holds_for_as_long_as_both_words_do() {
        let words: [Cell<u64>; 64] = std::array::from_fn(|number| Cell::new(number as u64));
        let place = |number: u64| words.as_ptr().expose_provenance() as u64 + number * 8;
        let mut memory = StackMemory::new(place(0), place(64));
        memory.begin(place(0));
        let frame = Frame {
            pc: RuntimeAddress(7),
            method: Method::Language,
            position: 9,
        };
        let told = |upper, lower, native: Range<u64>| {
            let native = place(native.start)..place(native.end);
            Known::told(frame, [place(upper), place(lower)], native, &memory)
        };
        let known = told(45, 42, 40..49).expect("within its frame");
        assert!(known.is_told() && known.frame() == frame && known.sp() == place(46));
        let bounds = Bounds::of(place(0), place(64));
        let is_reused = |known: &[Known]| copy_unchanged(known, &bounds, &mut [frame; 1]) == 1;
        if cfg!(target_arch = "x86_64") {
            assert!(known.holds(&bounds) && is_reused(&[known]));
        }
        for word in [45, 42] {
            let before = words[word].replace(100);
            assert!(!known.holds(&bounds) && !is_reused(&[known]), "{word}");
            words[word].set(before);
        }
        // Not within the frame, nor the stack, nor near each other, nor a language's.
        for (upper, lower, native) in [(45, 39, 40..49), (48, 42, 40..49), (62, 60, 59..65)] {
            assert!(told(upper, lower, native).is_none(), "{upper} {lower}");
        }
        assert!(told(45, 5, 1..49).is_none() && told(42, 45, 40..49).is_none());
        assert!(told(45, 14, 1..49).is_some() && told(45, 13, 1..49).is_none());
        let places = [place(45) + 4, place(42) + 4];
        assert!(Known::told(frame, places, place(40)..place(49), &memory).is_none());
        let native = Frame::native(RuntimeAddress(7), Method::EhFrame);
        let places = [place(45), place(42)];
        assert!(Known::told(native, places, place(40)..place(49), &memory).is_none());
    }
}
