//! Offering the thread's ring to the collector: the descriptors of its events are sent to the session's socket.
//!
//! Nothing is waited for: if the collector does not take the offer up, the thread goes on emptying the ring itself
//! ([`engine::wire::ring`]).

use crate::config::PATH_SIZE;
use crate::sys::{self, Errno, File};
use crate::text::Text;
use engine::wire::offer::{MAX_EVENTS, Offer, SOCKET_FILE};

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
