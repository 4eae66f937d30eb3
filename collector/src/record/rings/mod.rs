//! The perf rings of all threads: offered by them, emptied here a few times a second, written into the recording.
//!
//! ```text
//! thread ─ offer ─► socket ─► offers ─► ring (mapped) ─► stream ─► writer
//!                                         ▲
//! kernel ─ records ───────────────────────┘        the thread's handler only looks at the cursor
//! ```
//!
//! Not here: who takes records out when there is no collector, or not yet ([`engine::wire::ring`] has the agreement).

mod offers;
mod ring;
mod stream;

use super::writer::Writer;
use crate::fallback::Onlooker;
use engine::wire::offer::MAX_EVENTS;
use nix::unistd::geteuid;
use offers::Offers;
use ring::Ring;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use stream::Stream;

/// Most rings mapped at once; the threads of others empty theirs themselves.
const MOST: usize = 16_384;
/// Descriptors beyond this number are not held for their last word alone.
const MOST_HELD: i32 = 512;
/// A ring that was this full at a look is to be looked at sooner.
const BUSY: f64 = 0.1;

/// How long threads are looked at from outside, all in all.
const LOOKING: Duration = Duration::from_millis(500);

/// All rings of a session.
#[derive(Debug)]
pub struct Rings {
    offers: Option<Offers>,
    streams: Vec<Stream>,
    /// Chunks written.
    written: u64,
    busy: bool,
    onlooker: Onlooker,
    /// Samples of each event that found a ring full, where it is known.
    lost: [u64; MAX_EVENTS],
}

impl Rings {
    /// Listens for offers in a session's directory. Where that cannot be, threads empty their rings themselves.
    #[must_use]
    pub fn listen(session: &Path) -> Self {
        // As for the rest of the session: programs that give up root's rights go on.
        let mode = if geteuid().is_root() { 0o666 } else { 0o600 };
        Self {
            offers: Offers::listen(session, mode).ok(),
            streams: Vec::new(),
            written: 0,
            busy: false,
            onlooker: Onlooker::default(),
            lost: [0; MAX_EVENTS],
        }
    }

    /// Whether rings fill so fast that the next look should be soon.
    #[must_use]
    pub const fn are_busy(&self) -> bool {
        self.busy
    }

    /// Samples of an event beside CPU time that found a ring full, of threads that nothing more comes from.
    #[must_use]
    pub fn lost_of(&self, event: u32) -> u64 {
        self.lost.get(event as usize).copied().unwrap_or(0)
    }

    /// One look around: takes up offers, empties all rings, lets go of those that nothing will come from.
    ///
    /// # Errors
    /// As write.
    pub fn look(&mut self, writer: &mut Writer) -> io::Result<()> {
        let offered = self.offers.as_mut().map(Offers::taken);
        for (offer, mut events) in offered.into_iter().flatten() {
            let size = usize::try_from(offer.data_size).unwrap_or(0);
            if self.streams.len() < MOST
                && let Some(first) = events.first()
                && let Ok(ring) = Ring::map(first, size)
            {
                // The ring lives without its event's descriptor, of which there is a limit.
                if first.as_raw_fd() >= MOST_HELD {
                    events.remove(0);
                }
                self.streams.push(Stream::new(offer, ring, events));
            }
        }
        self.busy = false;
        let mut done = Vec::new();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let closed = stream.is_closed();
            self.busy |= stream.take(false) > BUSY;
            if closed {
                stream.settle(&mut self.lost);
            }
            if closed || stream.is_due() {
                stream.write(&mut self.written, writer)?;
            }
            if closed {
                stream.write_seen(&mut self.written, &self.onlooker, writer)?;
                done.push(index);
            }
        }
        for index in done.into_iter().rev() {
            self.streams.swap_remove(index);
        }
        Ok(())
    }

    /// Recording ends: looks at threads that are in the kernel, where they may stay for long, from outside.
    pub fn look_from_outside(&mut self) {
        let began = Instant::now();
        for stream in &mut self.streams {
            stream.take(false);
            if !stream.is_closed() && began.elapsed() < LOOKING {
                stream.look_from_outside(&mut self.onlooker);
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
                stream.settle(&mut self.lost);
                stream.write(&mut self.written, writer)?;
                stream.write_seen(&mut self.written, &self.onlooker, writer)?;
                self.streams.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }
}
