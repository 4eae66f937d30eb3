//! Records on their way into one chunk: samples lean on the one before, so they are encoded here
//! one after the other.
//!
//! Not here: what is recorded (`copy`, `record/rings`), and the header of the chunk.

use engine::wire::chunk::ChunkInfo;
use engine::wire::codec::Encoder;
use engine::wire::event::{ACCOUNT, Event, EventKind};
use engine::wire::kernel::{self, KernelHead};
use engine::wire::record::{self, RecordKind};
use engine::wire::sample::{self, Frame, SampleHead};

/// A chunk is closed when it has this many bytes.
const FULL: usize = 32 << 10;
/// Room in which nearly all records can be encoded, bytes.
const USUAL: usize = 4 << 10;
/// The longest record there is, bytes.
pub const LONGEST_RECORD: usize = u16::MAX as usize * 8;

/// A chunk for a recording: its header and its records.
pub type Chunk = (ChunkInfo, Vec<u8>);

/// The records of a chunk.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    before: Option<(SampleHead, Vec<Frame>)>,
    kernel_before: Option<(KernelHead, Vec<u64>)>,
}

impl Records {
    /// Adds a sample, from leaf to root; `false`, and nothing, if it has more frames than one can
    /// have.
    pub fn sample(&mut self, head: &SampleHead, frames: &[Frame]) -> bool {
        let before = self.before.as_ref().map(|(head, frames)| (head, &**frames));
        let written = append(&mut self.bytes, RecordKind::Sample, |out| {
            sample::encode(out, before, head, frames);
        });
        if written {
            self.before = Some((*head, frames.to_vec()));
        }
        written
    }

    /// Adds the kernel's half of a sample; of a deeper stack the inner part.
    pub fn kernel(&mut self, head: &KernelHead, frames: &[u64]) {
        let frames = &frames[..frames.len().min(kernel::MAX_DEPTH)];
        let before = self.kernel_before.as_ref();
        let before = before.map(|(head, frames)| (head, &**frames));
        let written = append(&mut self.bytes, RecordKind::Kernel, |out| {
            kernel::encode(out, before, head, frames);
        });
        if written {
            self.kernel_before = Some((*head, frames.to_vec()));
        }
    }

    /// Adds another record; what is too long to be one is left out.
    pub fn other(&mut self, kind: RecordKind, encode: impl Fn(&mut Encoder<'_>)) {
        let _ = append(&mut self.bytes, kind, encode);
    }

    /// Adds what a reader should know, in a sentence.
    pub fn note(&mut self, time_ns: u64, text: &str) {
        self.note_with(time_ns, 0, text);
    }

    /// Adds what was done, all of which went well.
    pub fn account(&mut self, time_ns: u64, text: &str) {
        self.note_with(time_ns, ACCOUNT, text);
    }

    fn note_with(&mut self, time_ns: u64, value: u64, text: &str) {
        let note = Event {
            kind: EventKind::Note,
            time_ns,
            value,
            text: text.as_bytes(),
        };
        self.other(RecordKind::Event, |out| note.encode(out));
    }

    /// Whether the chunk should be closed.
    #[must_use]
    pub const fn are_enough(&self) -> bool {
        self.bytes.len() >= FULL
    }

    /// Bytes of them.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn are_none(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of them in a chunk that is no thread's.
    #[must_use]
    pub fn into_chunk(mut self, owner: ChunkInfo) -> Chunk {
        let records = self.take();
        let committed = u32::try_from(records.len()).unwrap_or(u32::MAX);
        (ChunkInfo { committed, ..owner }, records)
    }

    /// Takes them; what follows decodes by itself.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self).bytes
    }
}

/// Appends a record; nothing, and `false`, if it is longer than one can be.
pub fn append(bytes: &mut Vec<u8>, kind: RecordKind, encode: impl Fn(&mut Encoder<'_>)) -> bool {
    let start = bytes.len();
    for room in [USUAL, LONGEST_RECORD] {
        bytes.resize(start + room, 0);
        let place = &mut bytes[start..];
        let mut out = Encoder::new(&mut place[record::HEADER_SIZE..]);
        encode(&mut out);
        let length = out.finish();
        let length = length.and_then(|length| record::seal(place, kind, length));
        bytes.truncate(start + length.unwrap_or(0));
        if length.is_some() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_leaves_no_trace() {
        let head = SampleHead::default();
        let (short, long) = (vec![Frame::default(); 3], vec![Frame::default(); 1 << 20]);
        let [mut plain, mut tried] = [Records::default(), Records::default()];
        for records in [&mut plain, &mut tried] {
            assert!(records.sample(&head, &short));
        }
        assert!(!tried.sample(&head, &long));
        for records in [&mut plain, &mut tried] {
            assert!(records.sample(&head, &short));
        }
        assert_eq!(plain.take(), tried.take());
    }

    #[test]
    fn a_record_may_be_as_long_as_its_length_can_say() {
        let mut bytes = Vec::new();
        let fill = |length: usize| move |out: &mut Encoder<'_>| out.bytes(&vec![7; length]);
        // Their length comes before them, in three bytes here.
        let longest = LONGEST_RECORD - record::HEADER_SIZE - 3;
        assert!(append(&mut bytes, RecordKind::PerfMap, fill(longest)));
        assert_eq!(bytes.len(), LONGEST_RECORD);
        assert!(!append(&mut bytes, RecordKind::PerfMap, fill(longest + 1)));
        assert_eq!(bytes.len(), LONGEST_RECORD);
    }
}
