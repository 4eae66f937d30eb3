//! The identity and the settings of one program run.

use super::WireError;
use super::codec::{Decoder, Encoder};

/// How a program run came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Origin {
    /// The program was started (exec) with the preload library.
    #[default]
    Exec = 0,
    /// fork of a profiled process: the same program, another pid.
    Fork = 1,
    /// The runtime was started from within the program.
    Linked = 2,
}

/// First record of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Process<'a> {
    /// How it came to be.
    pub origin: Origin,
    /// Parent, in the process's own PID namespace.
    pub parent_pid: u32,
    /// [`super::chunk::ChunkHeader::process_key`] of the profiled parent, for a fork; else 0.
    pub parent_key: u64,
    /// When profiling of it started (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at that moment, ns.
    pub realtime_offset_ns: u64,
    /// Start time of the process (field 22 of `/proc/PID/stat`, clock ticks since boot).
    pub start_ticks: u64,
    /// Sampling period asked for, ns.
    pub asked_period_ns: u64,
    /// Sampling period in force, ns: longer than asked where events cost too much.
    pub period_ns: u64,
    /// Depth limit in force, frames.
    pub max_depth: u64,
    /// What the process calls itself elsewhere: its pids from the outermost visible PID namespace
    /// to its own (`NSpid`), text.
    pub ns_pids: &'a [u8],
    /// The inode of its PID namespace (`/proc/self/ns/pid`); 0 if unknown.
    pub pid_namespace: u64,
    /// The executable, as `/proc/self/exe` names it.
    pub executable: &'a [u8],
    /// `/proc/self/cmdline`: arguments, each ended by a zero byte.
    pub command: &'a [u8],
    /// CPU time of the whole process when the runtime began in this program, ns: its clock goes on
    /// through exec. 0 for a fork, and if unknown.
    pub cpu_ns: u64,
    /// The same of the thread that it began in.
    pub thread_cpu_ns: u64,
    /// What the process is called, if that is another name of its executable's file than the one
    /// above; else empty. Known of processes that are seen from outside, as what follows is.
    pub called: &'a [u8],
    /// The path of its cgroup; empty if unknown.
    pub cgroup: &'a [u8],
    /// The name of the container that it runs in; empty if it runs in none.
    pub container: &'a [u8],
}

impl<'a> Process<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.byte(self.origin as u8);
        out.number(u64::from(self.parent_pid));
        out.number(self.parent_key);
        out.number(self.time_ns);
        out.number(self.realtime_offset_ns);
        out.number(self.start_ticks);
        out.number(self.asked_period_ns);
        out.number(self.period_ns);
        out.number(self.max_depth);
        out.bytes(self.ns_pids);
        out.number(self.pid_namespace);
        out.bytes(self.executable);
        out.bytes(self.command);
        out.number(self.cpu_ns);
        out.number(self.thread_cpu_ns);
        out.bytes(self.called);
        out.bytes(self.cgroup);
        out.bytes(self.container);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        let origin = match from.byte()? {
            0 => Origin::Exec,
            1 => Origin::Fork,
            2 => Origin::Linked,
            other => return Err(WireError::BadValue("origin", u64::from(other))),
        };
        Ok(Self {
            origin,
            parent_pid: from.small("parent pid")?,
            parent_key: from.number()?,
            time_ns: from.number()?,
            realtime_offset_ns: from.number()?,
            start_ticks: from.number()?,
            asked_period_ns: from.number()?,
            period_ns: from.number()?,
            max_depth: from.number()?,
            ns_pids: from.bytes()?,
            pid_namespace: from.number()?,
            executable: from.bytes()?,
            command: from.bytes()?,
            // From version 3 on.
            cpu_ns: from.number().unwrap_or(0),
            thread_cpu_ns: from.number().unwrap_or(0),
            called: from.bytes().unwrap_or_default(),
            cgroup: from.bytes().unwrap_or_default(),
            container: from.bytes().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_round_trip() {
        let process = Process {
            origin: Origin::Fork,
            parent_pid: 1,
            parent_key: u64::MAX,
            time_ns: 3,
            realtime_offset_ns: 4,
            start_ticks: 5,
            asked_period_ns: 1_000_000,
            period_ns: 2_000_000,
            max_depth: 1024,
            ns_pids: b"4711\t1",
            pid_namespace: 4_026_531_836,
            executable: b"/bin/sh",
            command: b"sh\0-c\0:\0",
            cpu_ns: 77,
            thread_cpu_ns: 300,
            called: b"rbash",
            cgroup: b"/a/b",
            container: b"web",
        };
        let mut buffer = [0; 128];
        let mut out = Encoder::new(&mut buffer);
        process.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Process::decode(&buffer[..length]), Ok(process));
        // Recordings of before these were there.
        let without_names = Process {
            called: b"",
            cgroup: b"",
            container: b"",
            ..process
        };
        let length = length - (1 + 5) - (1 + 4) - (1 + 3);
        assert_eq!(Process::decode(&buffer[..length]), Ok(without_names));
        let of_version_2 = Process {
            cpu_ns: 0,
            thread_cpu_ns: 0,
            ..without_names
        };
        assert_eq!(Process::decode(&buffer[..length - 3]), Ok(of_version_2));
        assert!(Process::decode(&buffer[..length - 4]).is_err());
    }
}
