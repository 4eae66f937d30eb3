//! One thread's ring on its way into the recording: its samples are gathered in chunks as that thread could have written them itself.

use super::super::writer::Writer;
use super::ring::Ring;
use engine::wire::chunk::{ChunkInfo, FROM_RING};
use engine::wire::codec::Encoder;
use engine::wire::kernel::{self, KernelHead};
use engine::wire::offer::Offer;
use engine::wire::record::{self, RecordKind};
use engine::wire::ring::RingRecord;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A chunk is written when it has this many bytes …
const FULL: usize = 28 << 10;
/// … or is this old.
const OLD: Duration = Duration::from_secs(1);
/// No record of a kernel sample is longer, bytes.
const LONGEST: usize = 4096;

/// A thread's ring and what was taken out of it.
#[derive(Debug)]
pub struct Stream {
    /// Whose it is.
    pub offer: Offer,
    ring: Ring,
    /// What keeps events alive that write into the ring beside its own.
    _others: Vec<OwnedFd>,
    gathered: Gathered,
}

/// Records that are not written yet.
#[derive(Debug, Default)]
struct Gathered {
    records: Vec<u8>,
    since: Option<Instant>,
    before: Option<(KernelHead, Vec<u64>)>,
    /// Samples that found the ring full.
    lost: u64,
}

impl Stream {
    /// A ring that was offered, and the descriptors of other events that write into it.
    #[must_use]
    pub fn new(offer: Offer, ring: Ring, others: Vec<OwnedFd>) -> Self {
        Self {
            offer,
            ring,
            _others: others,
            gathered: Gathered::default(),
        }
    }

    /// Whether nothing more will come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Empties the ring; gives how full it was, 0 to 1.
    pub fn take(&mut self, thread_is_gone: bool) -> f64 {
        let (offer, gathered) = (&self.offer, &mut self.gathered);
        self.ring
            .take(thread_is_gone, |record, frames| match record {
                RingRecord::Sample(sample) => {
                    if let Some(head) = sample.recorded(&offer.events, offer.base) {
                        gathered.add(&head, frames);
                    }
                }
                RingRecord::Lost(count) => gathered.lost = gathered.lost.saturating_add(count),
                RingRecord::Other => {}
            })
    }

    /// Whether there is enough to be written.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let old = |since: &Instant| since.elapsed() >= OLD;
        self.gathered.records.len() >= FULL || self.gathered.since.as_ref().is_some_and(old)
    }

    /// Writes what was gathered; `number` is the chunk's, among those of this recording that came from rings.
    ///
    /// # Errors
    /// As write.
    pub fn write(&mut self, number: &mut u64, writer: &mut Writer) -> io::Result<()> {
        let gathered = &mut self.gathered;
        if gathered.records.is_empty() && gathered.lost == 0 {
            return Ok(());
        }
        let info = ChunkInfo {
            committed: u32::try_from(gathered.records.len()).unwrap_or(0),
            pid: self.offer.pid,
            tid: self.offer.tid,
            process_key: self.offer.process_key,
            thread_key: self.offer.thread_key,
            sequence: FROM_RING | *number,
            lost_in_ring: gathered.lost,
            ..ChunkInfo::default()
        };
        *number += 1;
        writer.chunk(&info, &gathered.records)?;
        *gathered = Gathered::default();
        Ok(())
    }
}

impl Gathered {
    fn add(&mut self, head: &KernelHead, frames: &[u64]) {
        let start = self.records.len();
        self.records.resize(start + LONGEST, 0);
        let room = self.records.get_mut(start..).unwrap_or(&mut []);
        let length = room.get_mut(record::HEADER_SIZE..).and_then(|payload| {
            let mut out = Encoder::new(payload);
            let before = self.before.as_ref();
            let before = before.map(|(head, frames)| (head, frames.as_slice()));
            kernel::encode(&mut out, before, head, frames);
            out.finish()
        });
        let length = length.and_then(|length| record::seal(room, RecordKind::Kernel, length));
        self.records.truncate(start + length.unwrap_or(0));
        if length.is_some() {
            self.before = Some((*head, frames.to_vec()));
            self.since.get_or_insert_with(Instant::now);
        }
    }
}
