//! What the collector adds to a recording, in chunks of its own (tid 0), and the page by which it
//! and the programs know that the other lives.

use super::WireError;
use super::codec::{Decoder, Encoder};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Name of the control file in a session directory. Segments lie beside it, named
/// `PID.PROCESSKEY.seg` (both hexadecimal).
pub const CONTROL_FILE: &str = "control";
/// First word of the control page.
pub const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"RSCONTRL");
/// Targets disarm when the heartbeat is older than this and the collector's process is gone, which
/// in another PID namespace it always seems to be: it beats every two seconds at the least.
pub const HEARTBEAT_LIMIT_NS: u64 = 5_000_000_000;

/// [`Control::state`] while the session runs.
pub const RUNNING: u32 = 1;
/// [`Control::state`] when it is over: programs disarm at their next sample.
pub const OVER: u32 = 2;

/// The page shared by the collector, which writes it, and all programs, which read it.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    /// [`CONTROL_MAGIC`].
    pub magic: AtomicU64,
    /// [`super::file::VERSION`].
    pub version: AtomicU32,
    /// [`RUNNING`] or [`OVER`].
    pub state: AtomicU32,
    /// When the collector last looked around (`CLOCK_MONOTONIC`, ns).
    pub heartbeat_ns: AtomicU64,
    /// The collector, in its own PID namespace.
    pub collector_pid: AtomicU32,
    /// How samples are to come from now on ([`Orders`]).
    pub orders: AtomicU32,
}

/// What a session asks of programs that it records already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Samples are so many periods apart, or more.
    pub periods: u32,
    /// What they may take of CPU time, in 100,000ths; 0 is what the settings say.
    pub share: u32,
}

impl Orders {
    const SHARE_BITS: u32 = 17;
    /// No more can be asked for.
    pub const MOST_PERIODS: u32 = (1 << (u32::BITS - Self::SHARE_BITS)) - 1;
    /// Likewise.
    pub const MOST_SHARE: u32 = (1 << Self::SHARE_BITS) - 1;

    /// As [`Control::orders`] has them.
    #[must_use]
    pub fn pack(self) -> u32 {
        let periods = self.periods.min(Self::MOST_PERIODS);
        periods << Self::SHARE_BITS | self.share.min(Self::MOST_SHARE)
    }

    /// What [`Orders::pack`] gave.
    #[must_use]
    pub const fn unpack(packed: u32) -> Self {
        Self {
            periods: packed >> Self::SHARE_BITS,
            share: packed & Self::MOST_SHARE,
        }
    }
}

/// The collector's account of a whole recording. Missing if it did not live to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Session<'a> {
    /// When recording started (`CLOCK_MONOTONIC`, ns).
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns.
    pub realtime_offset_ns: u64,
    /// The command's wait status, as `waitpid` gives it.
    pub wait_status: u32,
    /// Processors online.
    pub processors: u32,
    /// Sampling rate asked for, thousandths of Hz.
    pub asked_millihertz: u64,
    /// Sampling period in force, ns.
    pub period_ns: u64,
    /// `uname -r`.
    pub kernel: &'a [u8],
    /// `uname -n`.
    pub host: &'a [u8],
    /// The command: arguments, each ended by a zero byte.
    pub command: &'a [u8],
    /// The command's process, in the collector's PID namespace; 0 if unknown.
    pub pid: u32,
    /// What the kernel charged the command and all descendants that were waited for, until their
    /// ends (`wait4`), ns; 0 if it did not end.
    pub charged_ns: u64,
    /// What a perf event of CPU time with its signal costs on this machine where the program cannot
    /// see it, before its sample and behind its handler, ns; 0 if unknown.
    pub event_ns: u64,
    /// What it costs where the program can see it, from its sample to its handler, ns; 0 if
    /// unknown.
    pub signal_ns: u64,
    /// Context switches of the command and of all descendants that were waited for, until their
    /// ends (`wait4`); 0 if it did not end.
    pub switches: u64,
    /// What a perf event of CPU time makes a context switch of its thread cost more, with the
    /// events that tell of programs, ns; 0 if unknown.
    pub switch_ns: u64,
    /// What those events make the beginning and the end of a thread cost more, without what their
    /// reader takes, ns; 0 if unknown, or there were none.
    pub thread_ns: u64,
    /// CPU time of the collector itself until it wrote this, ns; 0 if unknown.
    pub collector_ns: u64,
    /// What recording makes the start and the end of a program cost more where no clock of the
    /// library's runs, ns; 0 if unknown, or too few programs were started.
    pub load_ns: u64,
    /// What hypervisors took of all processors meanwhile, ns: perf's events count it, the clocks of
    /// threads do not; 0 if unknown.
    pub stolen_ns: u64,
}

impl<'a> Session<'a> {
    /// Writes the payload.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.start_ns);
        out.number(self.end_ns);
        out.number(self.realtime_offset_ns);
        out.number(u64::from(self.wait_status));
        out.number(u64::from(self.processors));
        out.number(self.asked_millihertz);
        out.number(self.period_ns);
        out.bytes(self.kernel);
        out.bytes(self.host);
        out.bytes(self.command);
        out.number(u64::from(self.pid));
        out.number(self.charged_ns);
        out.number(self.event_ns);
        out.number(self.signal_ns);
        out.number(self.switches);
        out.number(self.switch_ns);
        out.number(self.thread_ns);
        out.number(self.collector_ns);
        out.number(self.load_ns);
        out.number(self.stolen_ns);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            start_ns: from.number()?,
            end_ns: from.number()?,
            realtime_offset_ns: from.number()?,
            wait_status: from.small("wait status")?,
            processors: from.small("processors")?,
            asked_millihertz: from.number()?,
            period_ns: from.number()?,
            kernel: from.bytes()?,
            host: from.bytes()?,
            command: from.bytes()?,
            // From version 3 on.
            pid: from.small("pid").unwrap_or(0),
            charged_ns: from.number().unwrap_or(0),
            event_ns: from.number().unwrap_or(0),
            signal_ns: from.number().unwrap_or(0),
            switches: from.number().unwrap_or(0),
            switch_ns: from.number().unwrap_or(0),
            thread_ns: from.number().unwrap_or(0),
            collector_ns: from.number().unwrap_or(0),
            load_ns: from.number().unwrap_or(0),
            stolen_ns: from.number().unwrap_or(0),
        })
    }
}

/// A piece of `/tmp/perf-PID.map`, of the process named in the chunk's header. Pieces are whole
/// lines, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfMap<'a> {
    /// Lines `START SIZE symbol`, hexadecimal.
    pub lines: &'a [u8],
}

impl<'a> PerfMap<'a> {
    /// Writes the payload.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.bytes(self.lines);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// [`WireError::BadLength`].
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self {
            lines: Decoder::new(payload).bytes()?,
        })
    }
}

/// What a segment's file header counted ([`super::file::FileHeader`]), of the process named in the
/// chunk's header. The collector writes one per segment, when it is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SegmentTotals {
    /// Samples of threads that had no chunk to write to.
    pub chunkless_samples: u64,
    /// Their weight, in sampling periods.
    pub chunkless_weight: u64,
    /// Threads that could not be armed.
    pub unarmed_threads: u64,
    /// Bytes that the collector left out because they did not check.
    pub damaged_bytes: u64,
}

impl SegmentTotals {
    /// Writes the payload.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.chunkless_samples);
        out.number(self.chunkless_weight);
        out.number(self.unarmed_threads);
        out.number(self.damaged_bytes);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            chunkless_samples: from.number()?,
            chunkless_weight: from.number()?,
            unarmed_threads: from.number()?,
            damaged_bytes: from.number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_round_trips() {
        let session = Session {
            start_ns: 1,
            end_ns: 2,
            realtime_offset_ns: 3,
            wait_status: 9,
            processors: 2,
            asked_millihertz: 999_000,
            period_ns: 1_001_001,
            kernel: b"6.18",
            host: b"vm",
            command: b"true\0",
            pid: 4711,
            charged_ns: 1_000_000,
            event_ns: 5,
            signal_ns: 6,
            switches: 7,
            switch_ns: 8,
            thread_ns: 9,
            collector_ns: 10,
            load_ns: 11,
            stolen_ns: 12,
        };
        let mut buffer = [0; 128];
        let mut out = Encoder::new(&mut buffer);
        session.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Session::decode(&buffer[..length]), Ok(session));
    }

    #[test]
    fn the_totals_of_a_segment_round_trip() {
        let totals = SegmentTotals {
            chunkless_samples: 1,
            chunkless_weight: 200,
            unarmed_threads: 3,
            damaged_bytes: u64::MAX,
        };
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        totals.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(SegmentTotals::decode(&buffer[..length]), Ok(totals));
    }
}
