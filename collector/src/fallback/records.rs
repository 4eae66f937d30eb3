//! Records on their way into one chunk: samples lean on the one before, so they are encoded here one after the other.
//!
//! Not here: what is recorded ([`super::thread`], [`super::switches`]), and the header of the chunk.

use engine::wire::codec::Encoder;
use engine::wire::kernel::{self, KernelHead};
use engine::wire::record::{self, RecordKind};
use engine::wire::sample::{self, Frame, SampleHead};

/// A chunk is closed when it has this many bytes.
const FULL: usize = 32 << 10;
/// Room to encode a record in.
const LONGEST_RECORD: usize = 64 << 10;

/// The records of a chunk.
#[derive(Debug, Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    before: Option<(SampleHead, Vec<Frame>)>,
    kernel_before: Option<(KernelHead, Vec<u64>)>,
}

impl Records {
    /// Adds a sample, from leaf to root; `false`, and nothing, if it has more frames than one can have.
    pub(super) fn sample(&mut self, head: &SampleHead, frames: &[Frame]) -> bool {
        let before = self.before.take();
        let before = before.as_ref().map(|(head, frames)| (head, &**frames));
        let written = write(&mut self.bytes, RecordKind::Sample, |out| {
            sample::encode(out, before, head, frames);
        });
        if written {
            self.before = Some((*head, frames.to_vec()));
        }
        written
    }

    /// Adds the kernel's half of a sample; of a deeper stack the inner part.
    pub(super) fn kernel(&mut self, head: &KernelHead, frames: &[u64]) {
        let frames = &frames[..frames.len().min(kernel::MAX_DEPTH)];
        let before = self.kernel_before.take();
        let before = before.as_ref().map(|(head, frames)| (head, &**frames));
        let written = write(&mut self.bytes, RecordKind::Kernel, |out| {
            kernel::encode(out, before, head, frames);
        });
        if written {
            self.kernel_before = Some((*head, frames.to_vec()));
        }
    }

    /// Adds another record; what is too long to be one is left out.
    pub(super) fn other(&mut self, kind: RecordKind, encode: impl FnOnce(&mut Encoder<'_>)) {
        let _ = write(&mut self.bytes, kind, encode);
    }

    /// Whether the chunk should be closed.
    pub(super) const fn are_enough(&self) -> bool {
        self.bytes.len() >= FULL
    }

    /// Whether there are none.
    pub(super) const fn are_none(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes them; what follows decodes by itself.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self).bytes
    }
}

/// Appends a record, or nothing and `false` if it is longer than one can be.
fn write(bytes: &mut Vec<u8>, kind: RecordKind, encode: impl FnOnce(&mut Encoder<'_>)) -> bool {
    let start = bytes.len();
    bytes.resize(start + LONGEST_RECORD, 0);
    let room = &mut bytes[start..];
    let mut out = Encoder::new(&mut room[record::HEADER_SIZE..]);
    encode(&mut out);
    let length = out
        .finish()
        .and_then(|length| record::seal(room, kind, length));
    bytes.truncate(start + length.unwrap_or(0));
    length.is_some()
}
