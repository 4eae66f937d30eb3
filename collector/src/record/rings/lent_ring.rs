//! A thread's perf ring, mapped here: what the kernel wrote into it is taken out, and only here.
//!
//! The thread shares the pages and is trusted with nothing: every word is read once, positions are
//! this side's own, and records are read within the ring's size whatever they say. The pages are
//! the kernel's, so nobody can cut them short.
//!
//! # Safety
//! The mapping is made and unmapped by this value; only words inside of it are touched, as atomics.
#![allow(unsafe_code)]

use engine::wire::kernel::MAX_DEPTH;
use engine::wire::offer::MAX_EVENTS;
use engine::wire::ring::{
    CLOSED, COLLECTOR, CONTROL_SIZE, COUNTED_OFFSET, HEAD_OFFSET, OWNER_OFFSET, REPLACED,
    RingRecord, RingSample, SERVED_OFFSET, TAIL_OFFSET, THREAD, read,
};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A mapped ring.
#[derive(Debug)]
pub struct Ring {
    page: NonNull<c_void>,
    data_size: usize,
    taken: Option<Taken>,
}

/// What was taken out, once the ring is claimed.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Up to where.
    position: u64,
    /// What each event, in the order of the offer, had counted at its newest sample.
    counted: Counted,
}

/// What each event of a ring had counted, in the order of the offer.
pub type Counted = [u64; MAX_EVENTS];

impl Ring {
    /// Maps the ring of an event, which lives on without the descriptor. `data_size` was checked to
    /// be a power of two of pages; the kernel refuses any other than the ring's own.
    ///
    /// # Errors
    /// `InvalidInput` if that is no perf event, `NotFound` if its thread has let go of the ring
    /// already, and as mmap (`EPERM` when locked memory is used up).
    pub fn map(event: &OwnedFd, data_size: usize) -> io::Result<Self> {
        let link = format!("/proc/self/fd/{}", event.as_raw_fd());
        if fs::read_link(link)? != Path::new("anon_inode:[perf_event]") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = NonZero::new(CONTROL_SIZE + data_size).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, placed by the kernel.
        let page = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, event, 0) }?;
        let ring = Self {
            page,
            data_size,
            taken: None,
        };
        if ring.word(OWNER_OFFSET).load(Acquire) == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(ring)
    }

    /// Claims the ring, if it is not ours already: not while the thread empties it. A thread that
    /// is gone is in nobody's way.
    fn claim(&mut self, thread_is_gone: bool) -> Option<Taken> {
        if self.taken.is_none() {
            let owner = self.word(OWNER_OFFSET);
            let found = owner.compare_exchange(THREAD, COLLECTOR, AcqRel, Acquire);
            let closed = found.is_err_and(|found| found & CLOSED != 0);
            if found.is_ok() || closed || thread_is_gone {
                let counted = |place| self.word(COUNTED_OFFSET + place * 8).load(Relaxed);
                self.taken = Some(Taken {
                    position: self.word(TAIL_OFFSET).load(Relaxed),
                    counted: std::array::from_fn(counted),
                });
            }
        }
        self.taken
    }

    /// Whether the thread has closed its events: nothing will be added.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.word(OWNER_OFFSET).load(Acquire) & CLOSED != 0
    }

    /// Whether the thread has put another in its place.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.word(OWNER_OFFSET).load(Acquire) & REPLACED != 0
    }

    /// What the event at that place of the offer had counted at its newest sample that was taken
    /// out.
    #[must_use]
    pub fn counted(&self, place: usize) -> u64 {
        let counted = self.taken.map(|taken| taken.counted.get(place).copied());
        counted.flatten().unwrap_or(0)
    }

    /// Up to which position the thread says that it has taken user stacks.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.word(SERVED_OFFSET).load(Relaxed)
    }

    /// Takes everything out that is not in another ring, too; gives how much of the ring that was,
    /// 0 to 1. `visit` notes what events have counted.
    pub fn take(
        &mut self,
        thread_is_gone: bool,
        mut visit: impl FnMut(RingRecord, &[u64], &mut Counted),
    ) -> f64 {
        let Some(taken) = self.claim(thread_is_gone) else {
            return 0.0;
        };
        let (mut at, mut counted) = (taken.position, taken.counted);
        let head = match self.is_replaced() {
            true => self
                .word(HEAD_OFFSET)
                .load(Acquire)
                .min(self.served())
                .max(at),
            false => self.word(HEAD_OFFSET).load(Acquire),
        };
        let waiting = head.wrapping_sub(at);
        let mut frames = [0; MAX_DEPTH];
        // More than fits is not true, and neither is what does not check: all of it is passed over.
        while at != head && waiting <= self.data_size as u64 {
            let Some((record, next)) = read(|at| self.data(at), at, head, &mut frames) else {
                break;
            };
            let depth = match &record {
                RingRecord::Sample(RingSample { depth, .. }) => *depth,
                _ => 0,
            };
            visit(record, frames.get(..depth).unwrap_or(&[]), &mut counted);
            at = next;
        }
        self.taken = Some(Taken {
            position: head,
            counted,
        });
        self.word(TAIL_OFFSET).store(head, Release);
        waiting as f64 / self.data_size as f64
    }

    /// A word of the control page, at one of the offsets that the wire contract names.
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offsets lie in the first page, aligned.
        unsafe { self.page.byte_add(offset).cast::<AtomicU64>().as_ref() }
    }

    fn data(&self, position: u64) -> u64 {
        let offset = position as usize & (self.data_size - 1) & !7;
        // SAFETY: below the size of the data, which follows the control page; aligned.
        let word = unsafe {
            self.page
                .byte_add(CONTROL_SIZE + offset)
                .cast::<AtomicU64>()
        };
        // SAFETY: as above.
        unsafe { word.as_ref() }.load(Relaxed)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        let _ = unsafe { munmap(self.page, CONTROL_SIZE + self.data_size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_perf_events_are_mapped() {
        // A file could be cut short while it is mapped, which would kill who reads it.
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let refused = Ring::map(&file.into(), 1 << 16).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
