//! The perf rings of all threads: offered by them, emptied here a few times a second, written into
//! the recording.
//!
//! ```text
//! thread ─ offer ─► socket ─► offers ─► ring (mapped) ─► stream ─► writer
//!                                         ▲
//! kernel ─ records ───────────────────────┘        the thread's handler only looks at the cursor
//! ```
//!
//! Not here: who takes records out when there is no collector, or not yet ([`engine::wire::ring`]
//! has the agreement).

mod lent_ring;
mod offers;
mod stream;

use super::owners::Owners;
use super::writer::Writer;
use crate::remote::RemoteUnwinder;
use engine::wire::offer::MAX_EVENTS;
use lent_ring::Ring;
use nix::unistd::geteuid;
use offers::{Offered, Offers};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use stream::{Missing, Stream};

/// Most rings mapped at once; the threads of others empty theirs themselves.
const MOST: usize = 16_384;
/// Descriptors beyond this number are not held for their last word alone.
const MOST_HELD: i32 = 512;
/// A ring is to be at most this full at a look.
const FILL: f64 = 0.25;
/// However fast rings fill, there is this much time between two looks.
const SHORTEST: Duration = Duration::from_millis(15);

/// While threads change their pace (an offer says so), what they let go of is looked for that
/// often: it raises signals until then …
const LETTING_GO: Duration = Duration::from_millis(20);
/// … and they do while there was such an offer in that time.
const CHANGING: Duration = Duration::from_secs(1);

/// How long threads are looked at from outside, all in all.
const LOOKING: Duration = Duration::from_millis(500);
/// How long the next sample of those that work in the kernel is waited for.
const STAYING: Duration = Duration::from_millis(200);

/// All rings of a session.
#[derive(Debug)]
pub struct Rings {
    offers: Option<Offers>,
    streams: Vec<Stream>,
    /// Chunks written.
    written: u64,
    looked: Instant,
    /// After which time the ring that fills fastest is to be looked at again.
    pause: Duration,
    /// When a thread last changed its pace, as far as that is known.
    changed: Option<Instant>,
    remote: RemoteUnwinder,
    /// Of each event, where it is known.
    missing: [Missing; MAX_EVENTS],
}

impl Rings {
    /// Listens for offers in a session's directory. Where that cannot be, threads empty their rings
    /// themselves.
    #[must_use]
    pub fn listen(session: &Path) -> Self {
        // As for the rest of the session: programs that give up root's rights go on.
        let mode = if geteuid().is_root() { 0o666 } else { 0o600 };
        Self {
            offers: Offers::listen(session, mode).ok(),
            streams: Vec::new(),
            written: 0,
            looked: Instant::now(),
            pause: Duration::MAX,
            changed: None,
            remote: RemoteUnwinder::default(),
            missing: [Missing::default(); MAX_EVENTS],
        }
    }

    /// How long they can be left alone after a look, as fast as they fill.
    #[must_use]
    pub fn pause(&self) -> Duration {
        match self.changed {
            Some(changed) if changed.elapsed() < CHANGING => self.pause.min(LETTING_GO),
            _ => self.pause,
        }
    }

    /// Where threads offer theirs: something can be read when one does.
    #[must_use]
    pub fn offers(&self) -> Option<BorrowedFd<'_>> {
        self.offers.as_ref().map(AsFd::as_fd)
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.streams.len()
    }

    /// What is missing of an event beside CPU time, of threads that nothing more comes from.
    #[must_use]
    pub fn missing_of(&self, event: u32) -> Missing {
        let missing = self.missing.get(event as usize);
        missing.copied().unwrap_or_default()
    }

    /// Takes up what was offered, and notes by whom; reasons not to go to `refused`.
    pub fn take_up(&mut self, owners: &mut Owners, refused: &mut Vec<String>) {
        let (streams, changed) = (&mut self.streams, &mut self.changed);
        let Some(offers) = self.offers.as_mut() else {
            return;
        };
        offers.take(refused, |offered| {
            let Offered {
                offer,
                mut events,
                sender,
            } = offered;
            owners.heard(offer.pid, offer.process_key, sender);
            if offer.periods > 1 {
                *changed = Some(Instant::now());
            }
            let size = usize::try_from(offer.data_size).unwrap_or(0);
            if streams.len() < MOST
                && let Some(first) = events.first()
                && let Ok(ring) = Ring::map(first, size)
            {
                // The ring lives without its event's descriptor, of which there is a limit.
                if first.as_raw_fd() >= MOST_HELD {
                    events.remove(0);
                }
                streams.push(Stream::new(offer, ring, events));
            }
        });
    }

    /// One look around: empties all rings, lets go of those that nothing will come from.
    ///
    /// # Errors
    /// As write.
    pub fn look(&mut self, writer: &mut Writer) -> io::Result<()> {
        let before = std::mem::replace(&mut self.looked, Instant::now());
        let waited = self.looked - before;
        let mut fullest = 0.0_f64;
        let mut done = Vec::new();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let closed = stream.is_closed();
            fullest = fullest.max(stream.take(false));
            if closed {
                stream.settle(&mut self.missing);
            }
            if closed || stream.is_due(waited) {
                stream.write(&mut self.written, writer)?;
            }
            if closed {
                stream.write_seen(&mut self.written, &self.remote, writer)?;
                done.push(index);
            }
        }
        for index in done.into_iter().rev() {
            self.streams.swap_remove(index);
        }
        self.pause = pause_after(waited, fullest);
        Ok(())
    }

    fn empty(&mut self) {
        for stream in &mut self.streams {
            stream.take(false);
        }
    }

    /// Recording ends: looks at threads that are in the kernel, where they may stay for long, from
    /// outside.
    pub fn look_from_outside(&mut self) {
        let began = Instant::now();
        self.empty();
        let mut emptied = Instant::now();
        // First those that were sampled where they are.
        for in_kernel in [true, false] {
            for index in 0..self.streams.len() {
                let Some(stream) = self.streams.get_mut(index) else {
                    break;
                };
                let is_next = stream.is_in_kernel() == in_kernel && !stream.is_closed();
                if is_next && began.elapsed() < LOOKING {
                    stream.look_from_outside(&mut self.remote);
                }
                // Looking at many takes longer than rings have room for.
                if emptied.elapsed() >= SHORTEST {
                    self.empty();
                    emptied = Instant::now();
                }
            }
        }
        // Who works in its call has stayed there if the next sample says so; if not, it is looked
        // at in the next call.
        let looked = Instant::now();
        while looked.elapsed() < STAYING && self.streams.iter().any(Stream::is_in_doubt) {
            thread::sleep(Duration::from_millis(1));
            for stream in &mut self.streams {
                stream.take(false);
                if stream.is_elsewhere() {
                    stream.look_from_outside(&mut self.remote);
                }
            }
        }
    }

    /// Takes what is left in the rings of a process that is gone.
    ///
    /// # Errors
    /// As write.
    pub fn close_process(
        &mut self,
        pid: u32,
        process_key: u64,
        writer: &mut Writer,
    ) -> io::Result<()> {
        self.close(writer, |stream| {
            (stream.offer.pid, stream.offer.process_key) == (pid, process_key)
        })
    }

    /// The last look: takes everything.
    ///
    /// # Errors
    /// As write.
    pub fn finish(&mut self, writer: &mut Writer) -> io::Result<()> {
        self.look(writer)?;
        self.offers = None;
        self.close(writer, |_| true)
    }

    fn close(&mut self, writer: &mut Writer, whose: impl Fn(&Stream) -> bool) -> io::Result<()> {
        let mut index = 0;
        while let Some(stream) = self.streams.get_mut(index) {
            if whose(stream) {
                stream.take(true);
                stream.settle(&mut self.missing);
                stream.write(&mut self.written, writer)?;
                stream.write_seen(&mut self.written, &self.remote, writer)?;
                self.streams.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }
}

/// The time in which a ring that was so full after that time fills as far as it may.
fn pause_after(elapsed: Duration, fullest: f64) -> Duration {
    let pause = elapsed.as_secs_f64() * FILL / fullest;
    Duration::try_from_secs_f64(pause).map_or(Duration::MAX, |pause| pause.max(SHORTEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_rings_fill_the_sooner_they_are_looked_at() {
        let after = |fullest| pause_after(Duration::from_millis(100), fullest);
        assert_eq!(after(0.0), Duration::MAX);
        assert_eq!(after(0.125), Duration::from_millis(200));
        assert_eq!(after(0.5), Duration::from_millis(50));
        assert_eq!(after(1.0), Duration::from_millis(25));
        let soon = pause_after(Duration::from_millis(15), 0.9);
        assert_eq!(soon, SHORTEST);
    }
}
