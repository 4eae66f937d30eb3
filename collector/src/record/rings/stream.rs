//! One thread's ring on its way into the recording: its samples are gathered in chunks as that thread could have written them itself.

use super::super::writer::Writer;
use super::ring::Ring;
use crate::fallback::{Entry, Frozen, Onlooker};
use crate::perf_event;
use crate::recording::records::Records;
use crate::recording::write::OwnChunks;
use engine::wire::chunk::{ChunkInfo, FROM_OUTSIDE, FROM_RING};
use engine::wire::offer::{CPU_EVENT, MAX_EVENTS, Offer};
use engine::wire::record::RecordKind;
use engine::wire::ring::{RingRecord, RingSample};
use engine::wire::sample::{self, SampleHead, Trigger, flags};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A chunk is written when it has this many bytes …
const FULL: usize = 28 << 10;
/// … or is this old.
const OLD: Duration = Duration::from_secs(1);

/// A thread's ring and what was taken out of it.
#[derive(Debug)]
pub struct Stream {
    /// Whose it is.
    pub offer: Offer,
    ring: Ring,
    /// The events that write into it: they say in the end what found no room, and others than the ring's own live only as long as they
    /// are held.
    events: Vec<OwnedFd>,
    gathered: Gathered,
    /// Samples that found the ring full, of those that the ring has spoken of.
    told: u64,
    newest: Newest,
    seen: Option<Seen>,
}

/// Where the thread was at its newest sample.
#[derive(Clone, Copy, Debug)]
enum Newest {
    /// In user mode, or not known.
    Out,
    /// In the kernel: cursor, time, and where it had entered.
    In(u64, u64, Entry),
}

/// What was seen of the thread from outside.
#[derive(Debug)]
struct Seen {
    entry: Entry,
    cursor: u64,
    time_ns: u64,
    stack: Frozen,
    /// It was in user mode since.
    left: bool,
}

/// Records that are not written yet.
#[derive(Debug, Default)]
struct Gathered {
    records: Records,
    since: Option<Instant>,
    /// Samples that found the ring full, as far as the ring has said: with the next sample that fits.
    lost: u64,
}

impl Stream {
    /// A ring that was offered, and the descriptors of events that write into it.
    #[must_use]
    pub fn new(offer: Offer, ring: Ring, events: Vec<OwnedFd>) -> Self {
        Self {
            offer,
            ring,
            events,
            told: 0,
            gathered: Gathered::default(),
            newest: Newest::Out,
            seen: None,
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
        let (newest, seen, told) = (&mut self.newest, &mut self.seen, &mut self.told);
        let served = self.ring.served();
        self.ring
            .take(thread_is_gone, |record, frames| match record {
                RingRecord::Sample(sample) => {
                    let waits = || sample.unserved(&offer.events, offer.base);
                    let waits = (sample.head.cursor > served).then(waits).flatten();
                    if let Some(head) = sample.recorded(&offer.events, offer.base).or(waits) {
                        gathered.records.kernel(&head, frames);
                        gathered.since.get_or_insert_with(Instant::now);
                    }
                    *newest = Newest::of(&sample, offer.base);
                    if let Some(seen) = seen {
                        seen.left |= newest.entry() != Some(seen.entry);
                    }
                }
                RingRecord::Lost(count) => {
                    gathered.lost = gathered.lost.saturating_add(count);
                    *told = told.saturating_add(count);
                }
                RingRecord::Other => {}
            })
    }

    /// Nothing more will come: counts the samples that found the ring full with none behind them, and adds those of each event beside CPU
    /// time to `of_events`.
    pub fn settle(&mut self, of_events: &mut [u64; MAX_EVENTS]) {
        let mut all = 0u64;
        for event in &self.events {
            let Some(lost) = lost_of(event) else {
                continue;
            };
            all = all.saturating_add(lost);
            let number = Offer::event_of(&self.offer.events, perf_event::id(event));
            if let Some(sum) = of_events.get_mut(number as usize)
                && number != CPU_EVENT
            {
                *sum = sum.saturating_add(lost);
            }
        }
        let untold = all.saturating_sub(self.told);
        self.gathered.lost = self.gathered.lost.saturating_add(untold);
        self.told = self.told.saturating_add(untold);
    }

    /// Reads the stack of the thread from outside if it was in the kernel at its newest sample: it may stay there to the end.
    pub fn look_from_outside(&mut self, onlooker: &mut Onlooker) {
        if let Newest::In(cursor, time_ns, entry) = self.newest {
            let stack = onlooker.look(self.offer.pid, self.offer.tid, entry);
            self.seen = stack.map(|stack| Seen {
                entry,
                cursor,
                time_ns,
                stack,
                left: false,
            });
        }
    }

    /// Writes what was seen from outside, if it belongs to the newest samples: the thread slept in the call, or was sampled in it before
    /// and after its stack was read.
    ///
    /// # Errors
    /// As write.
    pub fn write_seen(
        &mut self,
        number: &mut u64,
        onlooker: &Onlooker,
        writer: &mut Writer,
    ) -> io::Result<()> {
        let Some(seen) = self.seen.take() else {
            return Ok(());
        };
        let (cursor, time_ns) = match self.newest {
            Newest::In(cursor, time_ns, entry) if entry == seen.entry && !seen.left => {
                (cursor, time_ns)
            }
            _ => (seen.cursor, seen.time_ns),
        };
        let sampled_behind = cursor != seen.cursor;
        if !seen.stack.sleeps && !sampled_behind {
            return Ok(());
        }
        let head = SampleHead {
            nonce: cursor,
            time_ns,
            weight: 0,
            trigger: Trigger::PerfKernel,
            stop: seen.stack.stop,
            flags: flags::FROM_OUTSIDE,
            sp: seen.entry.sp,
            held: None,
            elided: seen.stack.elided.0,
            elided_at: seen.stack.elided.1,
        };
        let frames = &seen.stack.frames;
        let mut chunks = OwnChunks::new(ChunkInfo {
            sequence: FROM_OUTSIDE | *number,
            ..self.owner()
        });
        for module in onlooker.modules(self.offer.pid, frames, time_ns) {
            let _ = chunks.push(RecordKind::Module, |out| module.encode(out));
        }
        let _ = chunks.push(RecordKind::Sample, |out| {
            sample::encode(out, None, &head, frames);
        });
        *number += 1;
        writer.chunks(chunks)
    }

    fn owner(&self) -> ChunkInfo {
        ChunkInfo {
            pid: self.offer.pid,
            tid: self.offer.tid,
            process_key: self.offer.process_key,
            thread_key: self.offer.thread_key,
            ..ChunkInfo::default()
        }
    }

    /// Whether there is enough to be written.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let old = |since: &Instant| since.elapsed() >= OLD;
        self.gathered.records.length() >= FULL || self.gathered.since.as_ref().is_some_and(old)
    }

    /// Writes what was gathered; `number` is the chunk's, among those of this recording that came from rings.
    ///
    /// # Errors
    /// As write.
    pub fn write(&mut self, number: &mut u64, writer: &mut Writer) -> io::Result<()> {
        let owner = self.owner();
        let mut gathered = std::mem::take(&mut self.gathered);
        if gathered.records.are_none() && gathered.lost == 0 {
            return Ok(());
        }
        let info = ChunkInfo {
            committed: u32::try_from(gathered.records.length()).unwrap_or(0),
            sequence: FROM_RING | *number,
            lost_in_ring: gathered.lost,
            ..owner
        };
        *number += 1;
        writer.chunk(&info, &gathered.records.take())
    }
}

/// How many samples of an event found no room; `None` where the kernel does not say.
fn lost_of(event: &OwnedFd) -> Option<u64> {
    let mut words = [0; 16]; // its value, and that
    let length = nix::unistd::read(event, &mut words).ok()?;
    (length == words.len()).then(|| u64::from_ne_bytes(std::array::from_fn(|at| words[8 + at])))
}

impl Newest {
    fn of(sample: &RingSample, base: u64) -> Self {
        let head = &sample.head;
        let entry = Entry {
            ip: head.user_ip,
            sp: head.user_sp,
            fp: sample.user_fp,
        };
        match sample.in_kernel && entry.ip != 0 {
            true => Self::In(head.cursor.wrapping_add(base), head.time_ns, entry),
            false => Self::Out,
        }
    }

    const fn entry(&self) -> Option<Entry> {
        match self {
            Self::Out => None,
            Self::In(_, _, entry) => Some(*entry),
        }
    }
}
