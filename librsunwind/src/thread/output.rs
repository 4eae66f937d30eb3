//! Where a thread writes: its chunk of the segment, and what the next record there may lean on.
//!
//! Used in the handler, or with all signals held back: handlers of the program's may lead to
//! records, too.
//!
//! # Safety
//! The chunk is the thread's own, and a slice of it lives only within a call.
#![allow(unsafe_code)]

use super::account::Account;
use crate::segment::Chunk;
use core::cell::Cell;
use engine::wire::codec::Encoder;
use engine::wire::kernel::{self, KernelHead, MAX_DEPTH};
use engine::wire::record::{self, RecordKind};
use engine::wire::sample::{self, Frame, SampleHead};

/// So many frames have room in an empty chunk, whatever they are.
const LEAST_KEPT: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Output {
    chunk: Cell<Option<Chunk>>,
    committed: Cell<usize>,
    /// The sample before in this chunk.
    before: Cell<Option<Before>>,
    /// Likewise of the kernel, with its frames.
    kernel_before: Cell<Option<(KernelHead, usize)>>,
    kernel_frames: Cell<[u64; MAX_DEPTH]>,
}

/// The sample before.
#[derive(Clone, Copy, Debug)]
struct Before {
    head: SampleHead,
    /// How many frames it has.
    count: usize,
    /// The number of its walk.
    walk: u64,
}

/// The frames of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack<'a> {
    /// From leaf to root.
    pub frames: &'a [Frame],
    /// Those of the sample before.
    pub before: &'a [Frame],
    /// What is known of both: see [`engine::last_walk::LastWalk::unchanged`].
    pub unchanged: (u64, usize),
}

impl Output {
    /// Without a chunk.
    pub fn new() -> Self {
        Self {
            chunk: Cell::new(None),
            committed: Cell::new(0),
            before: Cell::new(None),
            kernel_before: Cell::new(None),
            kernel_frames: Cell::new([0; MAX_DEPTH]),
        }
    }

    /// The chunk, if there is one.
    pub fn chunk(&self) -> Option<Chunk> {
        self.chunk.get()
    }

    /// Hands the chunk over: nothing more is written to it.
    pub fn seal(&self) {
        if let Some(full) = self.chunk.take() {
            full.seal();
        }
    }

    /// Goes on in another chunk, or in none.
    pub fn begin(&self, chunk: Option<Chunk>) {
        self.committed.set(0);
        self.before.set(None);
        self.kernel_before.set(None);
        self.chunk.set(chunk);
    }

    /// Writes a record, and the totals with it; `false` if it does not fit.
    pub fn write(
        &self,
        account: &Account,
        kind: RecordKind,
        encode: &impl Fn(&mut Encoder<'_>),
    ) -> bool {
        let Some(chunk) = self.chunk.get() else {
            return false;
        };
        // SAFETY: the chunk is this thread's.
        let Some(committed) = (unsafe { append(chunk, self.committed.get(), kind, encode) }) else {
            return false;
        };
        self.committed.set(committed);
        account.publish(&chunk.header().totals);
        chunk.commit(committed);
        true
    }

    /// How many frames the sample has that the next one leans on; 0 if there is none.
    pub fn frames_before(&self) -> usize {
        self.before.get().map_or(0, |before| before.count)
    }

    /// Writes a sample.
    pub fn sample(&self, account: &Account, head: &SampleHead, stack: &Stack<'_>) -> bool {
        let before = self.before.get();
        let (walk, unchanged) = stack.unchanged;
        let is_next = before.is_some_and(|before| before.walk.wrapping_add(1) == walk);
        let unchanged = if is_next { unchanged } else { 0 };
        let written = self.write(account, RecordKind::Sample, &|out: &mut Encoder<'_>| {
            let previous = before.as_ref().map(|it| (&it.head, stack.before));
            sample::encode_after(out, previous, unchanged, head, stack.frames);
        });
        if written {
            self.before.set(Some(Before {
                head: *head,
                count: stack.frames.len(),
                walk,
            }));
        }
        written
    }

    /// Writes a sample for which a chunk of its own has no room: as much of both ends of its stack
    /// as there is room for.
    #[cold]
    pub fn cut_sample(&self, account: &Account, head: &SampleHead, frames: &[Frame]) -> bool {
        let mut count = frames.len();
        let written = loop {
            count = count.wrapping_sub(count >> 3).wrapping_sub(1);
            if count < LEAST_KEPT || count > frames.len() {
                break false;
            }
            let before = self.before.get();
            let written = self.write(account, RecordKind::Sample, &|out: &mut Encoder<'_>| {
                let before = before.as_ref().map(|before| &before.head);
                sample::encode_cut(out, before, head, frames, count);
            });
            if written {
                break true;
            }
        };
        if written {
            self.before.set(Some(Before {
                head: *head,
                count: 0,
                walk: 0,
            }));
        }
        written
    }

    /// Writes a sample of the kernel's.
    pub fn kernel_sample(&self, account: &Account, head: &KernelHead, frames: &[u64]) -> bool {
        let (before, mut kept) = (self.kernel_before.get(), self.kernel_frames.get());
        let written = self.write(account, RecordKind::Kernel, &|out: &mut Encoder<'_>| {
            let previous = before
                .as_ref()
                .map(|(head, count)| (head, kept.get(..*count).unwrap_or(&[])));
            kernel::encode(out, previous, head, frames);
        });
        if written && let Some(place) = kept.get_mut(..frames.len()) {
            let pairs = place.iter_mut().zip(frames);
            pairs.for_each(|(to, from)| *to = *from);
            self.kernel_frames.set(kept);
            self.kernel_before.set(Some((*head, frames.len())));
        }
        written
    }
}

/// Writes a record behind what is committed in a chunk, and gives what is to be committed then;
/// `None` if it does not fit.
///
/// # Safety
/// The caller owns the chunk.
pub(super) unsafe fn append(
    chunk: Chunk,
    committed: usize,
    kind: RecordKind,
    encode: impl Fn(&mut Encoder<'_>),
) -> Option<usize> {
    // SAFETY: the caller's promise, and this slice is the only one.
    let tail = unsafe { chunk.tail(committed) };
    let mut out = Encoder::new(tail.get_mut(record::HEADER_SIZE..)?);
    encode(&mut out);
    let length = out.finish()?;
    let length = record::seal(tail, kind, length)?;
    Some(committed.saturating_add(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;
    use engine::address::RuntimeAddress;
    use engine::wire::chunk::{HEADER_SIZE, SEGMENT_STRIDE};

    #[test]
    fn records_are_written_until_the_chunk_is_full() {
        let mut memory = vec![0u64; SEGMENT_STRIDE / 8];
        let start = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: memory of that size, which outlives all uses below.
        let chunk = unsafe { Chunk::at(start) };
        let (output, account) = (Output::new(), Account::default());
        let word = |out: &mut Encoder<'_>| out.number(1 << 60);
        assert!(
            !output.write(&account, RecordKind::Event, &word),
            "no chunk"
        );
        output.begin(Some(chunk));
        let mut written = 0u32;
        while output.write(&account, RecordKind::Event, &word) {
            written += 1;
            account.count_sample(1, true);
        }
        let committed = chunk.header().committed.load(Relaxed) as usize;
        assert!(written > 100 && HEADER_SIZE + committed <= SEGMENT_STRIDE);
        let shown = chunk.header().totals.samples.load(Relaxed);
        assert_eq!(shown, u64::from(written - 1), "as of the last record");
        output.seal();
        assert!(output.chunk().is_none());
    }

    #[test]
    fn samples_lean_on_the_one_before_in_their_chunk() {
        let mut memory = vec![0u64; SEGMENT_STRIDE / 8];
        // SAFETY: as above.
        let chunk = unsafe { Chunk::at(memory.as_mut_ptr().cast()) };
        let (output, account) = (Output::new(), Account::default());
        output.begin(Some(chunk));
        let committed = || chunk.header().committed.load(Relaxed);
        let (head, frames) = (SampleHead::default(), [Frame::default(); 200]);
        let sample = |before: &[Frame], unchanged| {
            let stack = Stack {
                frames: &frames,
                before,
                unchanged,
            };
            output.sample(&account, &head, &stack)
        };
        assert!(sample(&[], (1, 0)));
        let first = committed();
        assert_eq!(output.frames_before(), 200);
        assert!(sample(&frames, (2, 190)));
        assert!(
            committed() - first < first / 2,
            "the same stack again is short"
        );
        let (head, frames) = (KernelHead::default(), [0xffff_ffff_8100_0000; 100]);
        let before = committed();
        assert!(output.kernel_sample(&account, &head, &frames));
        let first = committed() - before;
        assert!(output.kernel_sample(&account, &head, &frames));
        assert!(committed() - before - first < first / 2);
        output.begin(Some(chunk));
        assert_eq!(output.frames_before(), 0, "another chunk");
    }
    #[test]
    fn a_sample_with_no_room_in_any_chunk_is_cut() {
        let mut memory = vec![0u64; SEGMENT_STRIDE / 8];
        // SAFETY: as above.
        let chunk = unsafe { Chunk::at(memory.as_mut_ptr().cast()) };
        let (output, account) = (Output::new(), Account::default());
        let far = [0x40_1000, 0x7fff_ffff_f000].map(|pc| Frame {
            pc: RuntimeAddress(pc),
            ..Frame::default()
        });
        let frames = far.repeat(2048);
        let head = SampleHead::default();
        let stack = Stack {
            frames: &frames,
            before: &[],
            unchanged: (1, 0),
        };
        assert!(
            !output.cut_sample(&account, &head, &frames),
            "without a chunk"
        );
        output.begin(Some(chunk));
        assert!(!output.sample(&account, &head, &stack));
        assert!(output.cut_sample(&account, &head, &frames));
        let committed = chunk.header().committed.load(Relaxed) as usize;
        assert!(committed > SEGMENT_STRIDE * 3 / 4, "{committed}");
        assert_eq!(output.frames_before(), 0, "nothing leans on it");
    }
}
