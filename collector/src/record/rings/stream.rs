//! One thread's ring on its way into the recording: its samples are gathered in chunks as that
//! thread could have written them itself.

use super::super::writer::Writer;
use super::lent_ring::Ring;
use crate::perf_event;
use crate::recording::records::Records;
use crate::recording::write::OwnChunks;
use crate::remote::{Entry, KeptStack, RemoteStack, RemoteUnwinder};
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

/// What no sample of an event has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Missing {
    /// Samples that found a ring full.
    pub lost: u64,
    /// What threads counted behind their last samples, in the event's own units.
    pub rest: u64,
}

/// A thread's ring and what was taken out of it.
#[derive(Debug)]
pub struct Stream {
    /// Whose it is.
    pub offer: Offer,
    ring: Ring,
    /// The events that write into it: they say in the end what found no room, and others than the
    /// ring's own live only as long as they are held.
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
    /// Where it had entered the kernel.
    place: (u64, u64),
    stack: Look,
    /// Its newest sample then, if it was of that call: the cursor.
    before: Option<u64>,
    /// Its last sample in that call: cursor, time and frame pointer.
    last: Option<(u64, u64, u64)>,
    /// It was elsewhere since.
    left: bool,
}

#[derive(Debug)]
enum Look {
    Unwound(RemoteStack),
    /// It slept in a call in which it was not sampled: a sample that comes when it wakes up, as it
    /// is killed above all, is of that call.
    Asleep(KeptStack),
}

impl Seen {
    fn new(place: (u64, u64), stack: Look, newest: Newest) -> Self {
        let mut seen = Self {
            place,
            stack,
            before: None,
            last: None,
            left: false,
        };
        if newest.place() == Some(place) {
            seen.note(newest);
        }
        seen.before = seen.last.map(|(cursor, ..)| cursor);
        seen
    }

    /// The thread was sampled since.
    fn note(&mut self, newest: Newest) {
        match newest {
            Newest::In(cursor, time_ns, entry) if entry.place() == self.place && !self.left => {
                self.last = Some((cursor, time_ns, entry.fp));
            }
            _ => self.left = true,
        }
    }

    /// Whether its stack is that of its last sample there: it slept, or a sample behind the look is
    /// of the same call.
    fn is_sure(&self) -> bool {
        let behind = self.last.map(|(cursor, ..)| cursor) != self.before;
        behind || matches!(&self.stack, Look::Unwound(stack) if stack.sleeps)
    }
}

/// Records that are not written yet.
#[derive(Debug, Default)]
struct Gathered {
    records: Records,
    since: Option<Instant>,
    /// Samples that found the ring full, as far as the ring has said: with the next sample that
    /// fits.
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
            .take(thread_is_gone, |record, frames, counted| match record {
                RingRecord::Sample(sample) => {
                    let count = |place: usize, count: u64| {
                        let before = counted[place];
                        counted[place] = before.max(count);
                        before
                    };
                    let waits = || sample.unserved(offer);
                    let waits = (sample.head.cursor > served).then(waits).flatten();
                    if let Some(head) = sample.recorded(offer, count).or(waits) {
                        gathered.records.kernel(&head, frames);
                        gathered.since.get_or_insert_with(Instant::now);
                    }
                    *newest = Newest::of(&sample, offer.base);
                    if let Some(seen) = seen {
                        seen.note(*newest);
                    }
                }
                RingRecord::Lost(count) => {
                    gathered.lost = gathered.lost.saturating_add(count);
                    *told = told.saturating_add(count);
                }
                RingRecord::Other => {}
            })
    }

    /// Nothing more will come: counts the samples that found the ring full with none behind them,
    /// and adds what is missing of each event beside CPU time to `missing`.
    pub fn settle(&mut self, missing: &mut [Missing; MAX_EVENTS]) {
        if self.ring.is_replaced() {
            return; // they have counted on, and that is in the other ring
        }
        let mut all = 0u64;
        for event in &self.events {
            let found = perf_event::ask(event)
                .and_then(|said| Some((Offer::find(&self.offer.events, said.id)?, said)));
            let Some(((place, number), said)) = found else {
                continue;
            };
            all = all.saturating_add(said.lost);
            if number != CPU_EVENT
                && let Some(missing) = missing.get_mut(number as usize)
            {
                let rest = said.count.saturating_sub(self.ring.counted(place));
                missing.lost = missing.lost.saturating_add(said.lost);
                missing.rest = missing.rest.saturating_add(rest);
            }
        }
        let untold = all.saturating_sub(self.told);
        self.gathered.lost = self.gathered.lost.saturating_add(untold);
        self.told = self.told.saturating_add(untold);
    }

    /// Reads the stack of the thread from outside if it was in the kernel at its newest sample, or
    /// sleeps there: it may stay to the end.
    pub fn look_from_outside(&mut self, remote: &mut RemoteUnwinder) {
        let (pid, tid) = (self.offer.pid, self.offer.tid);
        let sampled = match self.newest {
            Newest::In(_, _, entry) => {
                let stack = remote.look(pid, tid, entry);
                stack.map(|stack| (entry.place(), Look::Unwound(stack)))
            }
            Newest::Out => None,
        };
        let looked = sampled.or_else(|| {
            let kept = remote.keep(pid, tid)?;
            Some((kept.place, Look::Asleep(kept)))
        });
        self.seen = looked.map(|(place, stack)| Seen::new(place, stack, self.newest));
    }

    /// Whether the thread works in the kernel and no sample has said yet that it stayed in the call
    /// in which its stack was read.
    pub fn is_in_doubt(&self) -> bool {
        let works = |seen: &Seen| matches!(seen.stack, Look::Unwound(_));
        let doubted = |seen: &Seen| works(seen) && !seen.left && !seen.is_sure();
        !self.is_closed() && (self.is_elsewhere() || self.seen.as_ref().is_some_and(doubted))
    }

    /// Whether its newest sample was taken in the kernel.
    pub const fn is_in_kernel(&self) -> bool {
        self.newest.place().is_some()
    }

    /// Whether it has left that call before that was known, and works in another one.
    pub fn is_elsewhere(&self) -> bool {
        let left = |seen: &Seen| seen.left && !seen.is_sure();
        self.is_in_kernel() && self.seen.as_ref().is_some_and(left)
    }

    /// Writes what was seen from outside, if it belongs to the newest samples: the thread slept in
    /// the call, or was sampled in it before and after its stack was read.
    ///
    /// # Errors
    /// As write.
    pub fn write_seen(
        &mut self,
        number: &mut u64,
        remote: &RemoteUnwinder,
        writer: &mut Writer,
    ) -> io::Result<()> {
        let Some((cursor, time_ns, sp, stack)) = self.seen_at_last(remote) else {
            return Ok(());
        };
        let head = SampleHead {
            nonce: cursor,
            time_ns,
            weight: 0,
            trigger: Trigger::PerfKernel,
            stop: stack.stop,
            flags: flags::FROM_OUTSIDE,
            sp,
            elided: stack.elided.0,
            elided_at: stack.elided.1,
            ..SampleHead::default()
        };
        let frames = &stack.frames;
        let mut chunks = OwnChunks::new(ChunkInfo {
            sequence: FROM_OUTSIDE | *number,
            ..self.owner()
        });
        for module in remote.modules(self.offer.pid, frames, time_ns) {
            let _ = chunks.push(RecordKind::Module, |out| module.encode(out));
        }
        let _ = chunks.push(RecordKind::Sample, |out| {
            sample::encode(out, None, &head, frames);
        });
        *number += 1;
        writer.chunks(chunks)
    }

    /// Cursor and time of the last sample in the call in which the thread was seen, its stack
    /// pointer there, and the stack.
    fn seen_at_last(&mut self, remote: &RemoteUnwinder) -> Option<(u64, u64, u64, RemoteStack)> {
        let seen = self.seen.take().filter(Seen::is_sure)?;
        let (cursor, time_ns, fp) = seen.last?;
        let stack = match seen.stack {
            Look::Unwound(stack) => stack,
            Look::Asleep(kept) => remote.unwind(self.offer.pid, &kept, fp)?,
        };
        let (_, sp) = seen.place;
        Some((cursor, time_ns, sp, stack))
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

    /// Whether there is enough to be written, or some of it may be old: `waited` is the time since
    /// the look before.
    #[must_use]
    pub fn is_due(&self, waited: Duration) -> bool {
        let old = |since: &Instant| since.elapsed() + waited >= OLD;
        self.gathered.records.length() >= FULL || self.gathered.since.as_ref().is_some_and(old)
    }

    /// Writes what was gathered; `number` is the chunk's, among those of this recording that came
    /// from rings.
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

    const fn place(&self) -> Option<(u64, u64)> {
        match self {
            Self::Out => None,
            Self::In(_, _, entry) => Some(entry.place()),
        }
    }
}
