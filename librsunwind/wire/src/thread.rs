//! A thread's identity, how it is sampled, and its account when it ends.

use super::WireError;
use super::codec::{Decoder, Encoder};
use super::sample::Trigger;

/// What every thread was asked by before there was a choice.
const SIGPROF: u32 = 27;

/// A thread was armed, or its trigger or name changed; the newest record of a thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Thread<'a> {
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// What samples it; [`Trigger::None`] if it could not be armed.
    pub trigger: Trigger,
    /// Sampling period in force, ns.
    pub period_ns: u64,
    /// Of how many of these its samples stand, since one costs too much for each.
    pub periods: u64,
    /// errno of the refusal of the next better trigger, 0 if there is none.
    pub refused: u32,
    /// The signal by which it is asked to unwind itself; 0 if by none. Version 2 does not say: it
    /// knew SIGPROF only.
    pub signal: u32,
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
        out.number(u64::from(self.signal));
        out.number(self.periods);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        Self::read(&mut Decoder::new(payload))
    }

    fn read(from: &mut Decoder<'a>) -> Result<Self, WireError> {
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
            signal: match from.is_at_end() {
                true => SIGPROF,
                false => from.small("signal")?,
            },
            periods: match from.is_at_end() {
                true => 1,
                false => from.number()?.max(1),
            },
        })
    }
}

/// What a program calls a thread by itself, without the kernel: its interpreter knows the name. The
/// newest holds, and before what the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ThreadName<'a> {
    /// When it was read (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// The name, UTF-8, perhaps cut.
    pub name: &'a [u8],
}

impl<'a> ThreadName<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.time_ns);
        out.bytes(self.name);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            time_ns: from.number()?,
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

impl ThreadEndReason {
    /// The reason of that number.
    ///
    /// # Errors
    /// [`WireError::BadValue`].
    pub const fn from_number(number: u8) -> Result<Self, WireError> {
        Ok(match number {
            0 => Self::ThreadExit,
            1 => Self::ProcessExit,
            2 => Self::Exec,
            3 => Self::Stopped,
            other => return Err(WireError::BadValue("end reason", other as u64)),
        })
    }
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
        Self::read(&mut Decoder::new(payload))
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Self {
            tid: from.small("tid")?,
            thread_key: from.number()?,
            time_ns: from.number()?,
            cpu_ns: from.number()?,
            reason: ThreadEndReason::from_number(from.byte()?)?,
        })
    }
}

/// All that there is to say of a thread that was never sampled: it has no chunk of its own, so the
/// one in which this stands may be anybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ThreadAccount<'a> {
    /// Which thread, and its end.
    pub end: ThreadEnd,
    /// How it was armed.
    pub thread: Thread<'a>,
    /// [`super::chunk::ThreadTotals::arming_ns`].
    pub arming_ns: u64,
    /// The function that it began in, by its address; 0 if that is not known.
    pub entry: u64,
}

impl<'a> ThreadAccount<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        self.end.encode(out);
        out.number(self.arming_ns);
        self.thread.encode(out);
        out.number(self.entry);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            end: ThreadEnd::read(&mut from)?,
            arming_ns: from.number()?,
            thread: Thread::read(&mut from)?,
            entry: match from.is_at_end() {
                true => 0,
                false => from.number()?,
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
            periods: 3,
            refused: 13,
            signal: 23,
            unarmed_cpu_ns: 9,
            name: b"worker",
        };
        let mut buffer = [0; 128];
        let mut out = Encoder::new(&mut buffer);
        thread.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Thread::decode(&buffer[..length]), Ok(thread));
        let name = ThreadName {
            time_ns: 5,
            name: b"worker-1 (serve)",
        };
        let mut out = Encoder::new(&mut buffer);
        name.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(ThreadName::decode(&buffer[..length]), Ok(name));
        assert!(ThreadName::decode(&buffer[..length - 1]).is_err());
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
        let account = ThreadAccount {
            end,
            thread,
            arming_ns: 11,
            entry: 0x1234_5678,
        };
        let mut out = Encoder::new(&mut buffer);
        account.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(ThreadAccount::decode(&buffer[..length]), Ok(account));
        assert!(ThreadAccount::decode(&buffer[..length - 10]).is_err());
    }
}
