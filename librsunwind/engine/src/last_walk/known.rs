//! One remembered frame, and whether the words that led to it still stand.
//!
//! # Safety
//! Loads from the verified part of the stack; each address is compared with its bounds first.
#![allow(unsafe_code)]

use crate::address::RuntimeAddress;
use crate::memory::load_verified;
use crate::rule::UnwindRule;
use crate::wire::sample::Frame;
use core::hint::select_unpredictable;

/// A frame that a plain step found, and the words that the step read. Zeros are one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Known {
    frame: Frame,
    sp: u64,
    fp: u64,
    /// How far below the stack pointer the word stands that gave the frame pointer, and the word;
    /// the return address, where none did.
    below: u64,
    word: u64,
}

impl Known {
    /// The frame with that stack pointer, pc and frame pointer, to which a plain rule has led.
    #[inline]
    pub(crate) fn new(sp: u64, pc: u64, fp: u64, rule: UnwindRule) -> Self {
        let words = rule.slot(0);
        Self {
            frame: Frame::native(RuntimeAddress(pc), rule.method()),
            sp,
            fp,
            below: words.wrapping_add(1) << 3,
            word: select_unpredictable(words == 0, pc, fp),
        }
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
        self.below = 8;
        self.word = !self.frame.pc.0;
    }

    #[inline]
    pub(super) const fn is_same(&self, other: &Self) -> bool {
        (self.sp ^ other.sp) | (self.frame.pc.0 ^ other.frame.pc.0) | (self.fp ^ other.fp) == 0
    }

    /// Whether its return address stands where it stood.
    #[inline]
    pub(super) fn stands(&self, bounds: &Bounds) -> bool {
        // SAFETY: 256 bytes below a stack pointer within the bounds can be loaded from.
        bounds.hold(self.sp) && unsafe { load_verified(self.sp.wrapping_sub(8)) } == self.frame.pc.0
    }

    /// Whether the step from its callee, which is unchanged, still leads to it.
    #[inline]
    pub(super) fn holds(&self, bounds: &Bounds) -> bool {
        let sp = self.sp;
        if !bounds.hold(sp) {
            return false;
        }
        // SAFETY: as above; `below` is at most 256.
        let (pc, word) = unsafe {
            let pc = load_verified(sp.wrapping_sub(8));
            (pc, load_verified(sp.wrapping_sub(self.below)))
        };
        pc == self.frame.pc.0 && word == self.word
    }
}

/// Where a CFA may lie, so that the words below it can be loaded without asking: from `lowest_cfa`
/// on, `span` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) lowest_cfa: u64,
    pub(crate) span: u64,
}

impl Bounds {
    /// Whether the walk is on a stack of which nothing is known.
    pub(super) const fn hold_nothing(&self) -> bool {
        self.lowest_cfa == 0
    }

    /// Whether it may lie there.
    #[inline]
    pub(crate) const fn hold(&self, cfa: u64) -> bool {
        cfa.wrapping_sub(self.lowest_cfa) <= self.span
    }
}
