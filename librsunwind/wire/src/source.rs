//! What an event number of kernel samples ([`super::kernel::KernelHead::event`]) stands for:
//! written by the collector, which knows the names.

use super::WireError;
use super::codec::{Decoder, Encoder};
use super::offer::MAX_EVENTS;

/// The event of time off the CPU: samples are absences of a thread, dated by their beginning, and
/// what they count is how long they were, ns.
pub const OFF_CPU: u32 = MAX_EVENTS as u32;
/// Names no samples: that CPU time and time off the CPU were recorded to be shown together, as
/// wall-clock time.
pub const WALL: u32 = OFF_CPU + 1;

/// An event that was asked for beside CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Source<'a> {
    /// Its number in the recording.
    pub event: u32,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// A sample was taken every so many of its own units; 0 if so many a second.
    pub period: u64,
    /// As the user named it.
    pub name: &'a [u8],
    /// Samples of it that found a ring full, as far as the kernel says; 0 in recordings of versions
    /// that did not ask.
    pub lost: u64,
    /// What threads counted of it behind their last samples, in its own units: it is in none. 0 in
    /// recordings of versions that did not ask.
    pub rest: u64,
}

impl<'a> Source<'a> {
    /// Writes the payload.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(u64::from(self.event));
        out.number(u64::from(self.kind));
        out.number(self.config);
        out.number(self.period);
        out.bytes(self.name);
        out.number(self.lost);
        out.number(self.rest);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            event: from.small("event")?,
            kind: from.small("event type")?,
            config: from.number()?,
            period: from.number()?,
            name: from.bytes()?,
            lost: from.number().unwrap_or(0),
            rest: from.number().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_round_trips() {
        let source = Source {
            event: 3,
            kind: 2,
            config: u64::MAX,
            period: 1,
            name: b"sched:sched_switch",
            lost: 300,
            rest: 40_000,
        };
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        source.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Source::decode(&buffer[..length]), Ok(source));
    }
}
