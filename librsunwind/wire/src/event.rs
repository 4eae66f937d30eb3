//! Things that happen to a process.

use super::WireError;
use super::codec::{Decoder, Encoder};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// It calls exec; the text is the path. If exec fails, [`EventKind::ExecFailed`] follows.
    Exec = 2,
    /// exec returned; the value is errno.
    ExecFailed = 3,
    /// It forked; the value is the child's pid.
    Fork = 4,
    /// Profiling ended because the session did, or its collector died.
    SessionOver = 5,
    /// The runtime disarmed itself; the text says why.
    Disarmed = 6,
    /// Something that a reader of the profile should know; the text says it. Where the value is
    /// [`ACCOUNT`] nothing is wrong.
    Note = 7,
}

/// The value of a note that says what was done, all of which went well.
pub const ACCOUNT: u64 = u64::MAX;

/// One of them, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// What.
    pub kind: EventKind,
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// See [`EventKind`].
    pub value: u64,
    /// See [`EventKind`].
    pub text: &'a [u8],
}

impl<'a> Event<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.byte(self.kind as u8);
        out.number(self.time_ns);
        out.number(self.value);
        out.bytes(self.text);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        let kind = match from.byte()? {
            2 => EventKind::Exec,
            3 => EventKind::ExecFailed,
            4 => EventKind::Fork,
            5 => EventKind::SessionOver,
            6 => EventKind::Disarmed,
            7 => EventKind::Note,
            other => return Err(WireError::BadValue("event", u64::from(other))),
        };
        Ok(Self {
            kind,
            time_ns: from.number()?,
            value: from.number()?,
            text: from.bytes()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        let event = Event {
            kind: EventKind::Exec,
            time_ns: 1,
            value: 2,
            text: b"/bin/true",
        };
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        event.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Event::decode(&buffer[..length]), Ok(event));
    }
}
