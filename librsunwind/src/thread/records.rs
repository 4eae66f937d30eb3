//! What a thread writes to its chunk of the segment: records, samples and what they lean on, its running totals.
//!
//! # Safety
//! The chunk is the thread's own; slices of it and of the frame buffers live only within a call, with the signal held back or in the
//! handler.
#![allow(unsafe_code)]

use super::ThreadState;
use crate::segment::SEGMENT;
use crate::sys::HeldBack;
use crate::trigger::ring::Drained;
use crate::trigger::{Armed, SIGNAL};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use engine::wire::codec::Encoder;
use engine::wire::kernel::{self, KernelHead};
use engine::wire::record::{self, RecordKind};
use engine::wire::sample::{Frame, SampleHead};

impl ThreadState {
    /// Writes a record to the thread's chunk, claiming another one if it does not fit. A failure is silent here: only samples are
    /// counted, by their caller. No sample can come between: it would be written to the same place.
    pub fn write(&mut self, kind: RecordKind, encode: impl Fn(&mut Encoder<'_>)) -> bool {
        let _held = HeldBack::new(SIGNAL);
        if self.chunk.is_some() && self.write_here(kind, &encode) {
            return true;
        }
        self.next_chunk() && self.write_here(kind, &encode)
    }

    /// Writes a sample of the first `count` frames of [`ThreadState::frame_buffer`], and counts it.
    pub fn write_sample(&mut self, head: SampleHead, count: usize) {
        let written = (self.chunk.is_some() && self.sample_here(&head, count))
            || (self.next_chunk() && self.sample_here(&head, count));
        let (samples, weight) = if written {
            (&self.totals.samples, &self.totals.weight)
        } else {
            (&self.totals.lost_samples, &self.totals.lost_weight)
        };
        samples.fetch_add(1, Relaxed);
        weight.fetch_add(head.weight, Relaxed);
        if written {
            self.before = Some((head, count));
            self.frames.swap(0, 1);
        } else if let (None, Some(header)) = (self.chunk, SEGMENT.header()) {
            header.homeless_samples.fetch_add(1, Relaxed);
            header.homeless_weight.fetch_add(head.weight, Relaxed);
        }
    }

    fn sample_here(&mut self, head: &SampleHead, count: usize) -> bool {
        let [new, old] = self.frames;
        // SAFETY: both point at `room` frames of this state's mapping; `count` and the count before are at most `room`.
        let frames = unsafe { core::slice::from_raw_parts(new, count.min(self.room)) };
        let before = self.before;
        self.write_here(RecordKind::Sample, &|out: &mut Encoder<'_>| {
            // SAFETY: as above.
            let previous = before
                .as_ref()
                .map(|(head, count)| (head, unsafe { core::slice::from_raw_parts(old, *count) }));
            engine::wire::sample::encode(out, previous, head, frames);
        })
    }

    /// Takes everything out of the thread's perf ring and writes the kernel's half of the samples, unless the collector does.
    pub fn drain_perf(&mut self) -> Drained {
        let mut armed = core::mem::take(&mut self.armed);
        let drained = match &mut armed {
            Armed::Perf(event) => {
                event.drain(|head, frames| self.write_kernel_sample(head, frames))
            }
            _ => Drained::default(),
        };
        self.armed = armed;
        self.nonce = self.nonce.max(drained.cursor);
        self.totals.lost_in_ring.fetch_add(drained.lost, Relaxed);
        drained
    }

    fn write_kernel_sample(&mut self, head: &KernelHead, frames: &[u64]) {
        let written = (self.chunk.is_some() && self.kernel_sample_here(head, frames))
            || (self.next_chunk() && self.kernel_sample_here(head, frames));
        if written && let Some(kept) = self.kernel_frames.get_mut(..frames.len()) {
            kept.iter_mut()
                .zip(frames)
                .for_each(|(to, from)| *to = *from);
            self.kernel_before = Some((*head, frames.len()));
        }
    }

    fn kernel_sample_here(&mut self, head: &KernelHead, frames: &[u64]) -> bool {
        let (before, kept) = (self.kernel_before, self.kernel_frames);
        self.write_here(RecordKind::Kernel, &|out: &mut Encoder<'_>| {
            let previous = before
                .as_ref()
                .map(|(head, count)| (head, kept.get(..*count).unwrap_or(&[])));
            kernel::encode(out, previous, head, frames);
        })
    }

    /// Room for the frames of the next sample.
    ///
    /// # Safety
    /// The slice must be gone before the next call of any method that touches frames.
    pub unsafe fn frame_buffer(&mut self) -> &'static mut [Frame] {
        let [new, _] = self.frames;
        // SAFETY: `room` frames of this state's mapping.
        unsafe { core::slice::from_raw_parts_mut(new, self.room) }
    }

    /// Room for a walk that is no sample.
    ///
    /// # Safety
    /// As [`ThreadState::frame_buffer`].
    pub unsafe fn spare_frames(&mut self) -> &'static mut [Frame] {
        // SAFETY: `room` frames of this state's mapping, which nothing else uses.
        unsafe { core::slice::from_raw_parts_mut(self.spare, self.room) }
    }

    fn write_here(&mut self, kind: RecordKind, encode: &impl Fn(&mut Encoder<'_>)) -> bool {
        let Some(chunk) = self.chunk else {
            return false;
        };
        // SAFETY: the chunk is this thread's, and this slice the only one.
        let tail = unsafe { chunk.tail(self.committed) };
        let Some(payload) = tail.get_mut(record::HEADER_SIZE..) else {
            return false;
        };
        let mut out = Encoder::new(payload);
        encode(&mut out);
        let Some(length) = out
            .finish()
            .and_then(|length| record::seal(tail, kind, length))
        else {
            return false;
        };
        self.committed = self.committed.saturating_add(length);
        self.publish_totals();
        chunk.commit(self.committed);
        true
    }

    fn next_chunk(&mut self) -> bool {
        if let Some(full) = self.chunk.take() {
            full.seal();
        }
        self.committed = 0;
        self.before = None;
        self.kernel_before = None;
        self.chunk = SEGMENT
            .claim(self.tid.load(Relaxed), self.key.load(Relaxed))
            .ok();
        self.publish_totals();
        self.chunk.is_some()
    }

    /// Adds to the time spent in the handler.
    pub fn count_handler_time(&mut self, nanoseconds: u64) {
        self.totals.handler_ns.fetch_add(nanoseconds, Relaxed);
        self.publish_totals();
    }

    fn publish_totals(&self) {
        let Some(chunk) = self.chunk else { return };
        let (from, to) = (&self.totals, &chunk.header().totals);
        let copy = |from: &AtomicU64, to: &AtomicU64| to.store(from.load(Relaxed), Relaxed);
        copy(&from.samples, &to.samples);
        copy(&from.weight, &to.weight);
        copy(&from.lost_samples, &to.lost_samples);
        copy(&from.lost_weight, &to.lost_weight);
        copy(&from.handler_ns, &to.handler_ns);
        copy(&from.cpu_ns, &to.cpu_ns);
        copy(&from.unarmed_cpu_ns, &to.unarmed_cpu_ns);
        copy(&from.lost_in_ring, &to.lost_in_ring);
    }
}
