//! What converts the times of perf records: several clocks read at one moment.
//!
//! perf's own clock (without `-k`) is the kernel's scheduler clock, which no system call reads: the
//! collector has the kernel write one record by that clock and another by `CLOCK_MONOTONIC` of the
//! same event. The page of a perf event says how it is got from the processor's counter, where the
//! kernel lets that be known.

use super::WireError;
use super::codec::{Decoder, Encoder};

/// Clocks at one moment, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`: the time of everything in a recording.
    pub monotonic_ns: u64,
    /// perf's own clock; 0 if it could not be had.
    pub perf_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`.
    pub raw_ns: u64,
    /// `CLOCK_BOOTTIME`.
    pub boot_ns: u64,
    /// `CLOCK_REALTIME`.
    pub real_ns: u64,
    /// `time_zero` of a perf event's page; this and the next two are 0 where the page does not
    /// offer them (`cap_user_time_zero`).
    pub time_zero: u64,
    /// `time_mult` of the page.
    pub time_mult: u32,
    /// `time_shift` of the page.
    pub time_shift: u32,
}

impl Clocks {
    /// Writes the payload.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.monotonic_ns);
        out.number(self.perf_ns);
        out.number(self.raw_ns);
        out.number(self.boot_ns);
        out.number(self.real_ns);
        out.number(self.time_zero);
        out.number(u64::from(self.time_mult));
        out.number(u64::from(self.time_shift));
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            monotonic_ns: from.number()?,
            perf_ns: from.number()?,
            raw_ns: from.number()?,
            boot_ns: from.number()?,
            real_ns: from.number()?,
            time_zero: from.number()?,
            time_mult: from.small("time_mult")?,
            time_shift: from.small("time_shift")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_round_trip() {
        let clocks = Clocks {
            monotonic_ns: 1 << 50,
            perf_ns: 2,
            raw_ns: 3,
            boot_ns: 4,
            real_ns: u64::MAX,
            time_zero: 6,
            time_mult: u32::MAX,
            time_shift: 31,
        };
        let mut buffer = [0; 128];
        let mut out = Encoder::new(&mut buffer);
        clocks.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Clocks::decode(&buffer[..length]), Ok(clocks));
        assert!(Clocks::decode(&buffer[..length - 1]).is_err());
    }
}
