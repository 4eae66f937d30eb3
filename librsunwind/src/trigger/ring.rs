//! A mapped perf ring: what the kernel has written into it, taken out here unless the collector
//! does that ([`engine::wire::ring`]).
//!
//! # Safety
//! The ring is shared with the kernel and perhaps with the collector: positions are read and
//! written with the orderings that `perf_event_open(2)` asks for, and records are read within the
//! ring's size whatever they say.
#![allow(unsafe_code)]

use crate::sys::{self, Errno, File, PAGE};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use engine::wire::kernel::MAX_DEPTH;
use engine::wire::offer::MAX_EVENTS;
use engine::wire::ring::{
    BUSY, CLOSED, COUNTED_OFFSET, FirstSample, HEAD_OFFSET, LONGEST_SAMPLE, OWNER_OFFSET, REPLACED,
    RingRecord, RingSample, SERVED_OFFSET, TAIL_OFFSET, THREAD, first_sample, read,
};

/// A ring of this thread.
#[derive(Debug)]
pub struct Ring {
    page: *mut u8,
    data_size: usize,
    /// Up to where its thread has seen it.
    seen: Cell<u64>,
    /// Up to where signals have come: beyond that where some were left to the next walk.
    heard: Cell<u64>,
    /// At the last look the kernel may have found no room.
    was_full: Cell<bool>,
}

/// What the ring held since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// End position of the newest record.
    pub cursor: u64,
    /// Samples found; where the collector takes them out, 1 if there are new ones.
    pub samples: u64,
    /// Samples that the kernel could not write, because the ring was full; known only to who takes
    /// records out.
    pub lost: u64,
    /// It is full, and has been since the last look: there are new samples, but they were not
    /// written.
    pub stands_still: bool,
    /// The thread has taken all out, but some may have found no room: the kernel tells of them with
    /// the next sample that finds some.
    pub was_full: bool,
    /// The first record since the last signal, if it is a sample: what this one was raised for.
    pub first: Option<FirstSample>,
}

impl Ring {
    /// Maps the ring of an event, with room for `pages` pages of data.
    ///
    /// # Errors
    /// `ENOMEM` when locked memory is used up: mmap says `EPERM` then, which elsewhere is a refusal
    /// for good.
    pub fn map(event: &File, pages: usize) -> Result<Self, Errno> {
        let data_size = pages.saturating_mul(PAGE);
        let page = sys::map_file(event, 0, PAGE.saturating_add(data_size), true, 0);
        Ok(Self {
            page: page.map_err(|error| match error.0 {
                libc::EPERM => Errno(libc::ENOMEM),
                _ => error,
            })?,
            data_size,
            seen: Cell::new(0),
            heard: Cell::new(0),
            was_full: Cell::new(false),
        })
    }

    /// Bytes of data.
    pub fn data_size(&self) -> usize {
        self.data_size
    }

    /// End position of the newest record now.
    ///
    /// # Signal safety
    /// Reads the mapped ring.
    pub fn cursor(&self) -> u64 {
        self.shared_word(HEAD_OFFSET).load(Ordering::Acquire)
    }

    /// Whether the kernel may find no room for a sample.
    ///
    /// # Signal safety
    /// Reads the mapped ring.
    pub fn is_full(&self) -> bool {
        self.is_full_at(self.cursor())
    }

    fn is_full_at(&self, head: u64) -> bool {
        let tail = self.shared_word(TAIL_OFFSET).load(Ordering::Relaxed);
        (self.data_size as u64).saturating_sub(head.wrapping_sub(tail)) < LONGEST_SAMPLE
    }

    /// Whether samples may have found no room of which the kernel has not told yet: it does so with
    /// the next that finds some.
    pub fn may_have_to_tell(&self) -> bool {
        self.was_full.get()
    }

    /// Says in the ring that the collector may claim it.
    pub fn lend(&self) {
        self.shared_word(OWNER_OFFSET)
            .store(THREAD, Ordering::Release);
    }

    /// Another ring is in its place from here on.
    pub fn give_way(&self) {
        self.shared_word(OWNER_OFFSET)
            .fetch_or(REPLACED, Ordering::Release);
    }

    /// Takes everything out and shows each sample with its kernel stack, unless that is the
    /// collector's business; `shared` says that it may be.
    ///
    /// # Signal safety
    /// Reads and writes the mapped ring; bounded by its size.
    pub fn look(&self, shared: bool, visit: impl FnMut(&RingSample, &[u64])) -> Drained {
        let is_all = self.heard.get() == self.seen.get();
        let drained = self.look_for(shared, visit);
        let first = self.hear(drained.cursor).map(|first| FirstSample {
            is_alone: first.is_alone && is_all,
            ..first
        });
        Drained { first, ..drained }
    }

    /// A signal has come for what is there now, which is left to the next look. Gives the first
    /// record since the signal before, if it is a sample.
    ///
    /// # Signal safety
    /// Reads the mapped ring.
    pub fn pass(&self) -> Option<FirstSample> {
        self.hear(self.cursor())
    }

    fn hear(&self, head: u64) -> Option<FirstSample> {
        let before = self.heard.replace(head);
        // What was written since then is there until the kernel comes round to it.
        let is_there = head.wrapping_sub(before) <= self.data_size as u64;
        let first = is_there.then(|| first_sample(|at| self.word(at), before, head));
        first.flatten()
    }

    fn look_for(&self, shared: bool, visit: impl FnMut(&RingSample, &[u64])) -> Drained {
        if !shared {
            return self.drain(visit);
        }
        let owner = self.shared_word(OWNER_OFFSET);
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        if owner
            .compare_exchange(THREAD, BUSY, acquire, relaxed)
            .is_err()
        {
            return self.peek();
        }
        let drained = self.drain(visit);
        self.shared_word(OWNER_OFFSET)
            .store(THREAD, Ordering::Release);
        drained
    }

    fn drain(&self, mut visit: impl FnMut(&RingSample, &[u64])) -> Drained {
        let head = self.cursor();
        self.was_full.set(self.is_full_at(head));
        let mut drained = Drained {
            cursor: head,
            was_full: self.was_full.get(),
            ..Drained::default()
        };
        let mut frames = [0u64; MAX_DEPTH];
        let mut at = self.seen.get();
        while at < head {
            let Some((record, next)) = read(|at| self.word(at), at, head, &mut frames) else {
                break; // not a record: the ring is not what we think it is
            };
            match record {
                RingRecord::Sample(sample) => {
                    drained.samples = drained.samples.saturating_add(1);
                    visit(&sample, frames.get(..sample.depth).unwrap_or(&[]));
                }
                RingRecord::Lost(count) => drained.lost = drained.lost.saturating_add(count),
                RingRecord::Other => {}
            }
            at = next;
        }
        self.serve(head);
        self.shared_word(TAIL_OFFSET).store(head, Ordering::Release);
        drained
    }

    /// The cursor alone: the collector takes records out.
    fn peek(&self) -> Drained {
        let head = self.cursor();
        let moved = head != self.seen.get();
        self.was_full.set(self.is_full_at(head));
        self.serve(head);
        Drained {
            cursor: head,
            samples: u64::from(moved),
            lost: 0,
            stands_still: !moved && self.was_full.get(),
            was_full: false,
            first: None,
        }
    }

    /// Notes up to where there are user stacks: the samples found are about to get theirs.
    fn serve(&self, head: u64) {
        self.seen.set(head);
        self.shared_word(SERVED_OFFSET)
            .store(head, Ordering::Relaxed);
    }

    /// Notes what the event at a place has counted at a sample that is taken out, and gives what it
    /// had at the one before.
    ///
    /// # Signal safety
    /// Reads and writes the mapped ring.
    pub fn count(&self, place: usize, count: u64) -> u64 {
        let offset = place.min(MAX_EVENTS.wrapping_sub(1)).wrapping_mul(8);
        self.shared_word(COUNTED_OFFSET.wrapping_add(offset))
            .fetch_max(count, Ordering::Relaxed)
    }

    fn shared_word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the mapped control page, aligned; see `engine::wire::ring` for what is
        // there.
        unsafe { &*self.page.add(offset).cast::<AtomicU64>() }
    }

    fn word(&self, position: u64) -> u64 {
        let offset = (position as usize) & self.data_size.wrapping_sub(1) & !7;
        // SAFETY: the data follows the control page and its size is a power of two; records are
        // 8-byte aligned.
        unsafe {
            self.page
                .add(PAGE)
                .add(offset)
                .cast::<u64>()
                .read_volatile()
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared_word(OWNER_OFFSET)
            .fetch_or(CLOSED, Ordering::Release);
        // SAFETY: the mapping is this value's. With it goes this process's hold on the event.
        unsafe { sys::unmap(self.page, PAGE.saturating_add(self.data_size)) };
    }
}
