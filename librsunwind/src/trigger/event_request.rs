//! Asking a collector that has more rights than the program to open the event of this thread, with
//! kernel mode: it sends a descriptor.
//!
//! The event is then as one of our own: only its mapping is kept, the collector keeps nothing of
//! it. (It is not offered back: events that another process opened and still holds cannot be put to
//! rest before an exec.)

use super::handover::Recipient;
use crate::sys::{self, Errno, File};
use engine::wire::event_request::{EventRequest, PATIENCE_MS, SOCKET_FILE};

/// Asks for it; waits for a moment at most.
///
/// # Signal safety
/// Raw system calls.
///
/// # Errors
/// `ETIMEDOUT` if there was no answer in time, `EACCES` if there is nobody to ask or the answer was
/// no: asking again will not help.
pub fn ask(period_ns: u64, recipient: &Recipient<'_>) -> Result<File, Errno> {
    let path = recipient.directory.then(b"/").then(SOCKET_FILE.as_bytes());
    let request = EventRequest {
        tid: recipient.offer.tid,
        period_ns,
    };
    let answer = sys::ask_for_descriptor(path.bytes(), &request.to_bytes(), PATIENCE_MS);
    answer.map_err(|error| match error.0 {
        libc::EAGAIN => Errno(libc::ETIMEDOUT),
        _ => Errno(libc::EACCES),
    })
}
