//! Offering the thread's ring to the collector: the descriptors of its events are sent to the
//! session's socket.
//!
//! Nothing is waited for: if the collector does not take the offer up, the thread goes on emptying
//! the ring itself ([`engine::wire::ring`]).

use crate::sys::{self, Errno, File};
use crate::text::{PATH_SIZE, Text};
use engine::wire::offer::{MAX_EVENTS, Offer, SOCKET_FILE};

/// The collector to which the ring is offered, and what to tell it of the thread.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'s> {
    /// The session's directory.
    pub directory: &'s Text<PATH_SIZE>,
    /// Whose ring it is; the ring's own facts are filled in.
    pub offer: Offer,
    /// Whether locked memory is to be spared: there are many threads, and a limit.
    pub sparing: bool,
}

/// Sends the offer with the events given, of which the first is the one to map.
///
/// # Signal safety
/// Raw system calls that do not block.
///
/// # Errors
/// As the calls: no collector at that path, its queue is full, ….
pub fn offer<'f>(
    offer: &Offer,
    events: impl Iterator<Item = &'f File>,
    directory: &Text<PATH_SIZE>,
) -> Result<(), Errno> {
    let path = directory.then(b"/").then(SOCKET_FILE.as_bytes());
    let mut descriptors = [-1i32; MAX_EVENTS];
    let mut count = 0usize;
    for (slot, event) in descriptors.iter_mut().zip(events) {
        *slot = event.raw();
        count = count.wrapping_add(1);
    }
    let descriptors = descriptors.get(..count).unwrap_or(&[]);
    sys::send_descriptors(path.bytes(), &offer.to_bytes(), descriptors)
}
