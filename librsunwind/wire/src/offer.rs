//! What a thread says of its perf ring when it offers it to the collector: one message on the
//! socket [`SOCKET_FILE`] of the session directory, with the descriptors of its events, in the
//! order of [`Offer::events`]; the first is the one to map. A program run of another user than the
//! session's sends one without a ring as it begins: the kernel vouches for who has sent it, also
//! when it is gone. The message, in 64-bit words:
//!
//! ```text
//! magic | pid, tid | process key | thread key | base | bytes of data | (event id, event) …
//! ```

use super::{WireError, words};

/// Name of the socket in the session directory (`SOCK_SEQPACKET`).
pub const SOCKET_FILE: &str = "rings";
/// First word of a message.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RSRING02");
/// Most events that share a ring.
pub const MAX_EVENTS: usize = 8;
/// The event that samples CPU time; the numbers of others are given by whoever asks for them.
pub const CPU_EVENT: u32 = 0;
/// Bytes of a message.
pub const SIZE: usize = (7 + 2 * MAX_EVENTS) * 8;
/// Most data that a ring may have, bytes.
pub const LARGEST_RING: u64 = 4 << 20;
/// Most sampling periods that a sample stands for.
pub const MOST_PERIODS: u64 = 1 << 20;
/// A page of data.
const SMALLEST_RING: u64 = 4096;

/// The kernel's number of an event and ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventId {
    /// `PERF_EVENT_IOC_ID`; 0 in an unused slot.
    pub id: u64,
    /// Ours.
    pub event: u32,
}

/// A thread's ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Whose: the process, as in [`super::chunk::ChunkHeader::pid`].
    pub pid: u32,
    /// The thread, as in [`super::chunk::ChunkHeader::tid`].
    pub tid: u32,
    /// As in [`super::chunk::ChunkHeader::process_key`].
    pub process_key: u64,
    /// As in [`super::chunk::ChunkHeader::thread_key`].
    pub thread_key: u64,
    /// What the thread adds to positions in this ring, so that its nonces go on growing from one
    /// ring to the next.
    pub base: u64,
    /// Bytes of data behind the control page; a power of two, 0 without a ring.
    pub data_size: u64,
    /// Sampling periods that its samples of CPU time stand for.
    pub periods: u64,
    /// The events that write to it.
    pub events: [EventId; MAX_EVENTS],
}

impl Offer {
    /// The message.
    ///
    /// # Signal safety
    /// Arithmetic only.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let head = [
            MAGIC,
            u64::from(self.pid) | u64::from(self.tid) << 32,
            self.process_key,
            self.thread_key,
            self.base,
            self.data_size,
            self.periods,
        ];
        let events = self
            .events
            .iter()
            .flat_map(|event| [event.id, u64::from(event.event)]);
        words::put(&mut bytes, head.into_iter().chain(events));
        bytes
    }

    /// Reads a message, which may be anything.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadMagic`], or [`WireError::BadValue`] for a size
    /// that no ring has.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut words = words::read(bytes);
        let mut next = || words.next().ok_or(WireError::Truncated("an offered ring"));
        let magic = next()?;
        if magic != MAGIC {
            return Err(WireError::BadMagic(magic));
        }
        let ids = next()?;
        let mut offer = Self {
            pid: ids as u32,
            tid: (ids >> 32) as u32,
            process_key: next()?,
            thread_key: next()?,
            base: next()?,
            data_size: next()?,
            periods: next()?,
            events: [EventId::default(); MAX_EVENTS],
        };
        for event in &mut offer.events {
            *event = EventId {
                id: next()?,
                event: next()? as u32,
            };
        }
        let size = offer.data_size;
        let fits = (SMALLEST_RING..=LARGEST_RING).contains(&size) && size.is_power_of_two();
        if !fits && size != 0 {
            return Err(WireError::BadValue("bytes of a ring", offer.data_size));
        }
        if offer.periods > MOST_PERIODS {
            return Err(WireError::BadValue("periods of a sample", offer.periods));
        }
        Ok(offer)
    }

    /// The place of the event with that id, and our number of it.
    ///
    /// # Signal safety
    /// Arithmetic only.
    #[must_use]
    pub fn find(events: &[EventId; MAX_EVENTS], id: u64) -> Option<(usize, u32)> {
        let mut all = (0..).zip(events).filter(|_| id != 0);
        let found = all.find(|(_, event)| event.id == id);
        found.map(|(place, event)| (place, event.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_round_trips_and_anything_else_is_refused() {
        let mut offer = Offer {
            pid: 1,
            tid: 2,
            process_key: 3,
            thread_key: 4,
            base: 5,
            data_size: 1 << 16,
            ..Offer::default()
        };
        offer.events[0] = EventId { id: 70, event: 0 };
        offer.events[1] = EventId { id: 71, event: 3 };
        let bytes = offer.to_bytes();
        assert_eq!(Offer::parse(&bytes), Ok(offer));
        assert_eq!(Offer::find(&offer.events, 71), Some((1, 3)));
        assert_eq!(Offer::find(&offer.events, 70), Some((0, CPU_EVENT)));
        for id in [0, 99] {
            assert_eq!(Offer::find(&offer.events, id), None);
        }
        assert!(Offer::parse(&bytes[..SIZE - 1]).is_err());
        assert!(Offer::parse(&[0; SIZE]).is_err());
        let ringless = Offer {
            data_size: 0,
            ..offer
        };
        assert_eq!(Offer::parse(&ringless.to_bytes()), Ok(ringless));
        for data_size in [8, 4097, LARGEST_RING * 2, u64::MAX] {
            let bad = Offer { data_size, ..offer };
            assert!(Offer::parse(&bad.to_bytes()).is_err(), "{data_size}");
        }
    }
}
