//! What the handler takes, part by part, for who measures it (`tests/handler_costs`): with the
//! feature `timed` alone. Without it nothing of this is there.
//!
//! # Safety
//! A name is kept for the reader's sake.
#![allow(unsafe_code)]

#[cfg(feature = "timed")]
use core::{
    cell::Cell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// The parts, in the order in which the handler comes to their ends.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "timed"),
    expect(dead_code, reason = "the last is known there alone")
)]
pub(crate) enum Part {
    /// What the signal stands for: the event's ring, the weight, whether there may be a walk.
    Ring,
    /// From there to the walk: clock, registers, what is asked.
    Entry,
    /// The walk.
    Walk,
    /// Labels, the record.
    Encoding,
    /// From there to the way back.
    Exit,
}

#[cfg(feature = "timed")]
const PARTS: usize = Part::Exit as usize + 1;

/// The times of a thread's handler that runs.
#[derive(Debug, Default)]
pub(crate) struct HandlerTimes {
    #[cfg(feature = "timed")]
    began: Cell<u64>,
    #[cfg(feature = "timed")]
    ends: Cell<[u64; PARTS]>,
    #[cfg(feature = "timed")]
    frames: Cell<u32>,
}

#[cfg(not(feature = "timed"))]
impl HandlerTimes {
    #[inline]
    pub(crate) const fn begin(&self) {}
    #[inline]
    pub(crate) const fn reach(&self, _: Part) {}
    #[inline]
    pub(crate) const fn walked(&self, _: usize) {}
    #[inline]
    pub(crate) const fn finish(&self, _: u32) {}
}

#[cfg(feature = "timed")]
impl HandlerTimes {
    pub(crate) fn begin(&self) {
        self.ends.set([0; PARTS]);
        self.frames.set(0);
        self.began.set(now());
    }

    pub(crate) fn reach(&self, part: Part) {
        let mut ends = self.ends.get();
        if let Some(end) = ends.get_mut(part as usize) {
            *end = now();
        }
        self.ends.set(ends);
    }

    /// So many frames are in the sample.
    pub(crate) fn walked(&self, frames: usize) {
        self.frames.set(frames as u32);
    }

    /// The handler of that thread returns; it is told if it has written a sample.
    pub(crate) fn finish(&self, tid: u32) {
        self.reach(Part::Exit);
        let ends = self.ends.get();
        if ends.contains(&0) {
            return;
        }
        let number = ALL.count.fetch_add(1, Relaxed) as usize;
        let Some(words) = ALL.handlers.get(number & MOST.wrapping_sub(1)) else {
            return;
        };
        let mut before = self.began.get();
        let parts = ends.map(|end| {
            let cycles = end.saturating_sub(before);
            before = end;
            cycles as u32
        });
        let all = parts.into_iter().chain([self.frames.get(), tid]);
        words
            .iter()
            .zip(all)
            .for_each(|(to, from)| to.store(from, Relaxed));
    }
}

/// The processor's counter, when all before is done.
#[cfg(feature = "timed")]
fn now() -> u64 {
    let mut processor = 0;
    // SAFETY: every x86-64 processor of today has the instruction.
    unsafe { core::arch::x86_64::__rdtscp(&raw mut processor) }
}

/// So many handlers are kept, a power of two.
#[cfg(feature = "timed")]
const MOST: usize = 1 << 16;

/// For the reader.
#[cfg(feature = "timed")]
#[derive(Debug)]
#[repr(C)]
pub struct All {
    count: AtomicU64,
    /// Cycles of each part, frames, thread, nothing.
    handlers: [[AtomicU32; 8]; MOST],
}

#[cfg(feature = "timed")]
#[unsafe(export_name = "rsunwind_handler_times")]
static ALL: All = All {
    count: AtomicU64::new(0),
    handlers: [const { [const { AtomicU32::new(0) }; 8] }; MOST],
};
