//! What the kernel charged processes, as only they and those who wait for them know: what a process
//! used besides its threads' own accounts, and what each child cost until its very end, the removal
//! of its address space included.

use super::WireError;
use super::codec::{Decoder, Encoder};
use super::thread::ThreadEndReason;

/// A process, looked at for the last time by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProcessEnd {
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// CPU time of all its threads, those that have ended and those that nobody samples included,
    /// since it began, ns.
    pub cpu_ns: u64,
    /// What its children were charged that it had waited for, and theirs (`RUSAGE_CHILDREN`), ns.
    pub children_ns: u64,
    /// Why.
    pub reason: ThreadEndReason,
}

impl ProcessEnd {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.time_ns);
        out.number(self.cpu_ns);
        out.number(self.children_ns);
        out.byte(self.reason as u8);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            time_ns: from.number()?,
            cpu_ns: from.number()?,
            children_ns: from.number()?,
            reason: ThreadEndReason::from_number(from.byte()?)?,
        })
    }
}

/// A child that ended and was waited for, told by who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ChildEnd {
    /// When it was waited for (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// The child, in the PID namespace of who waited; 0 if it is known only that libc waited for
    /// one (`system`, `pclose`).
    pub pid: u32,
    /// Its status, as `waitpid` gives it.
    pub wait_status: u32,
    /// What the kernel charged it until its end, and its own children that it had waited for
    /// (`wait4`), ns.
    pub charged_ns: u64,
    /// It began behind that moment (`CLOCK_MONOTONIC`, ns), as far as is known.
    pub since_ns: u64,
    /// The errno for which it could not make its recording; 0 if it said nothing of the kind.
    pub refused: u32,
}

impl ChildEnd {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.time_ns);
        out.number(u64::from(self.pid));
        out.number(u64::from(self.wait_status));
        out.number(self.charged_ns);
        out.number(self.since_ns);
        out.number(u64::from(self.refused));
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            time_ns: from.number()?,
            pid: from.small("pid")?,
            wait_status: from.small("wait status")?,
            charged_ns: from.number()?,
            since_ns: from.number()?,
            refused: from.small("errno")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_round_trip() {
        let process = ProcessEnd {
            time_ns: 1,
            cpu_ns: u64::MAX,
            children_ns: 300,
            reason: ThreadEndReason::Exec,
        };
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        process.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(ProcessEnd::decode(&buffer[..length]), Ok(process));
        assert!(ProcessEnd::decode(&buffer[..length - 1]).is_err());
        let child = ChildEnd {
            time_ns: 1,
            pid: 4711,
            wait_status: 0x8f00,
            charged_ns: 5,
            since_ns: 6,
            refused: 13,
        };
        let mut out = Encoder::new(&mut buffer);
        child.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(ChildEnd::decode(&buffer[..length]), Ok(child));
        assert!(ChildEnd::decode(&buffer[..length - 1]).is_err());
    }
}
