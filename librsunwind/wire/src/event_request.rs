//! What a thread asks of a collector with more rights than its own: to open the event on its CPU
//! clock with kernel mode, and hand it over. One message on the socket [`SOCKET_FILE`] of the
//! session directory, which is there only with such a collector; the answer is one descriptor, or
//! nothing, and the end of the connection. It ends when the collector has closed the descriptor
//! itself, and not before that the thread starts the event: a second holder would keep it alive
//! beyond an exec, and its signals kill the next program.
//!
//! ```text
//! magic | tid | sampling period, ns        (64-bit words)
//! ```

use super::{WireError, words};

/// Name of the socket in the session directory (`SOCK_SEQPACKET`).
pub const SOCKET_FILE: &str = "events";
/// First word of a message.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RSEVENT1");
/// Bytes of a message.
pub const SIZE: usize = 24;
/// How long a thread waits for the answer, ms.
pub const PATIENCE_MS: u64 = 50;

/// A thread's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRequest {
    /// The thread, in its own PID namespace.
    pub tid: u32,
    /// Sampling period, ns of its CPU time.
    pub period_ns: u64,
}

impl EventRequest {
    /// The message.
    ///
    /// # Signal safety
    /// Arithmetic only.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        words::put(&mut bytes, [MAGIC, u64::from(self.tid), self.period_ns]);
        bytes
    }

    /// Reads a message, which may be anything.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadMagic`], or [`WireError::BadValue`] for a number
    /// that is no thread's.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut words = words::read(bytes);
        let mut next = || {
            words
                .next()
                .ok_or(WireError::Truncated("a request for an event"))
        };
        let magic = next()?;
        if magic != MAGIC {
            return Err(WireError::BadMagic(magic));
        }
        let tid = next()?;
        Ok(Self {
            tid: u32::try_from(tid).map_err(|_| WireError::BadValue("thread", tid))?,
            period_ns: next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_round_trips_and_anything_else_is_refused() {
        let request = EventRequest {
            tid: 7,
            period_ns: 1_000_000,
        };
        let bytes = request.to_bytes();
        assert_eq!(EventRequest::parse(&bytes), Ok(request));
        assert!(EventRequest::parse(&bytes[..SIZE - 1]).is_err());
        assert!(EventRequest::parse(&[0; SIZE]).is_err());
    }
}
