//! One remembered frame, and whether the words that led to it still stand.
//!
//! # Safety
//! Loads from the verified part of the stack; each address is compared with its bounds first.
#![allow(unsafe_code)]

use crate::address::RuntimeAddress;
#[cfg(target_arch = "x86_64")]
use crate::memory;
use crate::rule::{REACH, UnwindRule};
use crate::wire::sample::Frame;
use core::hint::select_unpredictable;
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

    #[inline]
    pub(super) const fn frame(&self) -> Frame {
        self.frame
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
            pairs.for_each(|(place, known)| *place = known.frame);
            count = count.wrapping_add(BLOCK);
        }
    }
    let left = known.len().wrapping_sub(count);
    let known = known.get(..left).unwrap_or_default().iter().rev();
    let room = room.get_mut(count..).unwrap_or_default();
    let pairs = known.zip(room);
    let rest = pairs.map_while(|(known, place)| known.holds(bounds).then(|| *place = known.frame));
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
