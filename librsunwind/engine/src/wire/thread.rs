//! A thread's identity, how it is sampled, and its account when it ends.

use super::WireError;
use super::codec::{Decoder, Encoder};
use super::sample::Trigger;

/// A thread was armed, or its trigger or name changed; the newest record of a thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Thread<'a> {
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// What samples it; [`Trigger::None`] if it could not be armed.
    pub trigger: Trigger,
    /// Sampling period in force, ns.
    pub period_ns: u64,
    /// errno of the refusal of the next better trigger, 0 if there is none.
    pub refused: u32,
    /// CPU time that the thread had used before, ns.
    pub unarmed_cpu_ns: u64,
    /// `/proc/self/task/TID/comm`.
    pub name: &'a [u8],
}

impl<'a> Thread<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.time_ns);
        out.byte(self.trigger as u8);
        out.number(self.period_ns);
        out.number(u64::from(self.refused));
        out.number(self.unarmed_cpu_ns);
        out.bytes(self.name);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        let time_ns = from.number()?;
        let trigger = from.byte()?;
        Ok(Self {
            time_ns,
            trigger: Trigger::from_number(trigger)
                .ok_or(WireError::BadValue("trigger", u64::from(trigger)))?,
            period_ns: from.number()?,
            refused: from.small("errno")?,
            unarmed_cpu_ns: from.number()?,
            name: from.bytes()?,
        })
    }
}

/// Why a thread's account was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ThreadEndReason {
    /// The thread returned or called `pthread_exit`.
    #[default]
    ThreadExit = 0,
    /// The process exits.
    ProcessExit = 1,
    /// The thread calls exec.
    Exec = 2,
    /// Profiling was stopped; the thread goes on.
    Stopped = 3,
}

/// A thread's account at its end. Counts are in [`super::chunk::ThreadTotals`] of its last chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ThreadEnd {
    /// The thread spoken of (a process that exits closes the accounts of all its threads).
    pub tid: u32,
    /// Its [`super::chunk::ChunkHeader::thread_key`].
    pub thread_key: u64,
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// Its CPU time since it started, ns.
    pub cpu_ns: u64,
    /// Why.
    pub reason: ThreadEndReason,
}

impl ThreadEnd {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(u64::from(self.tid));
        out.number(self.thread_key);
        out.number(self.time_ns);
        out.number(self.cpu_ns);
        out.byte(self.reason as u8);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            tid: from.small("tid")?,
            thread_key: from.number()?,
            time_ns: from.number()?,
            cpu_ns: from.number()?,
            reason: match from.byte()? {
                0 => ThreadEndReason::ThreadExit,
                1 => ThreadEndReason::ProcessExit,
                2 => ThreadEndReason::Exec,
                3 => ThreadEndReason::Stopped,
                other => return Err(WireError::BadValue("thread end reason", u64::from(other))),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_their_ends_round_trip() {
        let thread = Thread {
            time_ns: 1,
            trigger: Trigger::Timer,
            period_ns: 4,
            refused: 13,
            unarmed_cpu_ns: 9,
            name: b"worker",
        };
        let mut buffer = [0; 128];
        let mut out = Encoder::new(&mut buffer);
        thread.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Thread::decode(&buffer[..length]), Ok(thread));
        let end = ThreadEnd {
            tid: 7,
            thread_key: 8,
            time_ns: 9,
            cpu_ns: 10,
            reason: ThreadEndReason::Exec,
        };
        let mut out = Encoder::new(&mut buffer);
        end.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(ThreadEnd::decode(&buffer[..length]), Ok(end));
    }
}
