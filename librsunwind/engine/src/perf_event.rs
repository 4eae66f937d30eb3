//! `perf_event_attr` and the numbers that go with it, as `include/uapi/linux/perf_event.h` has
//! them: for every event that rsunwind opens, in the program or beside it.
//!
//! Not here: the system call (each side has its own), and the records that an event writes
//! ([`crate::wire::ring`] for those of threads that unwind themselves).

use crate::registers::PERF_REGISTERS;

/// Values of [`Attributes::kind`].
pub mod kind {
    /// `PERF_TYPE_HARDWARE`.
    pub const HARDWARE: u32 = 0;
    /// `PERF_TYPE_SOFTWARE`.
    pub const SOFTWARE: u32 = 1;
    /// `PERF_TYPE_TRACEPOINT`.
    pub const TRACEPOINT: u32 = 2;
    /// `PERF_TYPE_HW_CACHE`.
    pub const CACHE: u32 = 3;
    /// `PERF_TYPE_RAW`.
    pub const RAW: u32 = 4;
}

/// Values of [`Attributes::config`] for [`kind::SOFTWARE`].
pub mod software {
    /// `PERF_COUNT_SW_CPU_CLOCK`.
    pub const CPU_CLOCK: u64 = 0;
    /// `PERF_COUNT_SW_TASK_CLOCK`: CPU time of the thread, ns.
    pub const TASK_CLOCK: u64 = 1;
    /// `PERF_COUNT_SW_PAGE_FAULTS`.
    pub const PAGE_FAULTS: u64 = 2;
    /// `PERF_COUNT_SW_CONTEXT_SWITCHES`.
    pub const CONTEXT_SWITCHES: u64 = 3;
    /// `PERF_COUNT_SW_DUMMY`: never happens.
    pub const DUMMY: u64 = 9;
}

/// Bits of [`Attributes::sample_type`] (`PERF_SAMPLE_*`): what a sample has, in the order in which
/// it lies there but for the identifier, which is first.
#[expect(missing_docs, reason = "the kernel's own names")]
pub mod sample {
    pub const IP: u64 = 1;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of [`Attributes::flags`].
#[expect(missing_docs, reason = "the kernel's own names, where nothing is said")]
pub mod flag {
    /// It does not run before it is told to.
    pub const DISABLED: u64 = 1;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const EXCLUDE_IDLE: u64 = 1 << 7;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    /// The period is a rate, Hz.
    pub const FREQUENCY: u64 = 1 << 10;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const TASK: u64 = 1 << 13;
    /// [`super::Attributes::wakeup`] is in bytes.
    pub const WATERMARK: u64 = 1 << 14;
    pub const MMAP_DATA: u64 = 1 << 17;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    /// Without it newer kernels (7.2 does) take an event of user mode alone for one that may show
    /// the kernel, which needs more rights.
    pub const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    pub const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
    pub const CONTEXT_SWITCH: u64 = 1 << 26;
    /// The event ends when its thread replaces its program. Unknown before Linux 5.13.
    pub const REMOVE_ON_EXEC: u64 = 1 << 36;
    /// The kernel leaves the user's call chain for later, and names the entry by a cookie, which
    /// ends the sample's own chain: all who ask in one entry get the same. The chain itself is for
    /// events with [`DEFER_OUTPUT`]. Unknown before Linux 6.19.
    pub const DEFER_CALLCHAIN: u64 = 1 << 38;
    pub const DEFER_OUTPUT: u64 = 1 << 39;
}

/// What every event of a thread writes of a sample: identifier, ip, tid, time, what it has counted
/// with two more words ([`Attributes::read_format`]), call chain, registers of the user.
pub const SAMPLE_TYPE: u64 = sample::IDENTIFIER
    | sample::IP
    | sample::TID
    | sample::TIME
    | sample::READ
    | sample::CALLCHAIN
    | sample::REGS_USER;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED` and `_RUNNING`, of [`Attributes::read_format`]: two words in
/// the place of those of [`FORMAT_ID`] and [`FORMAT_LOST`], so that samples have one form.
pub const FORMAT_TIMES: u64 = 1 | 1 << 1;
/// `PERF_FORMAT_ID`, of [`Attributes::read_format`]: the event's number.
pub const FORMAT_ID: u64 = 1 << 2;
/// `PERF_FORMAT_LOST`, of [`Attributes::read_format`]: who reads the event learns how many of its
/// samples found no room in the ring. Unknown before Linux 6.0.
pub const FORMAT_LOST: u64 = 1 << 4;
/// `PERF_FLAG_FD_CLOEXEC`, of the system call.
pub const OPEN_CLOEXEC: usize = 8;
/// `CLOCK_MONOTONIC`, by which all samples are dated.
pub const CLOCK_MONOTONIC: i32 = 1;

/// Requests of `ioctl`.
pub mod request {
    /// `PERF_EVENT_IOC_ENABLE`.
    pub const ENABLE: u64 = 0x2400;
    /// `PERF_EVENT_IOC_DISABLE`.
    pub const DISABLE: u64 = 0x2401;
    /// `PERF_EVENT_IOC_SET_OUTPUT`: its records go to the ring of another event.
    pub const SET_OUTPUT: u64 = 0x2405;
    /// `PERF_EVENT_IOC_ID`: the number that its records carry.
    pub const ID: u64 = 0x8008_2407;
}

/// `perf_event_attr` as of `PERF_ATTR_SIZE_VER7`; fields in the order of the kernel's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's own names, where nothing is said")]
pub struct Attributes {
    /// `type`: see [`kind`].
    pub kind: u32,
    /// Its own length, bytes: [`Attributes::SIZE`].
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    /// See [`sample`].
    pub sample_type: u64,
    pub read_format: u64,
    /// See [`flag`].
    pub flags: u64,
    /// When its reader is woken: every so many samples, or bytes.
    pub wakeup: u32,
    pub bp_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clockid: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved: u16,
    pub aux_sample_size: u32,
    pub reserved2: u32,
    pub sig_data: u64,
}

impl Attributes {
    /// `PERF_ATTR_SIZE_VER7`.
    pub const SIZE: u32 = size_of::<Self>() as u32;

    /// An event on a thread that unwinds itself, every `period` of its own units: it writes samples
    /// as [`crate::wire::ring`] reads them. Not running yet.
    #[must_use]
    pub fn of_thread(kind: u32, config: u64, period: u64, kernel: bool) -> Self {
        let user_only = flag::EXCLUDE_KERNEL | flag::EXCLUDE_CALLCHAIN_KERNEL;
        Self {
            kind,
            size: Self::SIZE,
            config,
            sample_period: period,
            sample_type: SAMPLE_TYPE,
            read_format: FORMAT_ID | FORMAT_LOST,
            flags: flag::DISABLED
                | flag::EXCLUDE_HV
                | flag::SAMPLE_ID_ALL
                | flag::EXCLUDE_CALLCHAIN_USER
                | flag::USE_CLOCKID
                | flag::REMOVE_ON_EXEC
                | if kernel { 0 } else { user_only },
            wakeup: 1,
            sample_regs_user: PERF_REGISTERS,
            clockid: CLOCK_MONOTONIC,
            ..Self::default()
        }
    }

    /// The same with the period given as a rate in Hz.
    #[must_use]
    pub fn at_a_rate(self) -> Self {
        let flags = self.flags | flag::FREQUENCY;
        Self { flags, ..self }
    }

    /// The same running from the moment that it is opened.
    #[must_use]
    pub fn running(self) -> Self {
        let flags = self.flags & !flag::DISABLED;
        Self { flags, ..self }
    }

    /// The same with the user's call chain put off, for the kernel's cookies: the chain must be
    /// asked for.
    #[must_use]
    pub fn deferring(self) -> Self {
        let flags = self.flags & !flag::EXCLUDE_CALLCHAIN_USER | flag::DEFER_CALLCHAIN;
        Self { flags, ..self }
    }

    /// The same and then what kernels take that do not know it (`EINVAL`): before Linux 6.0, and
    /// before 5.13.
    #[must_use]
    pub fn and_for_older_kernels(self) -> [Self; 3] {
        let without_lost = Self {
            read_format: FORMAT_TIMES,
            ..self
        };
        let without_remove = Self {
            flags: self.flags & !flag::REMOVE_ON_EXEC,
            ..without_lost
        };
        [self, without_lost, without_remove]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn the_structure_is_the_kernels() {
        assert_eq!(Attributes::SIZE, 128);
        // As `pahole` shows them.
        assert_eq!(offset_of!(Attributes, flags), 40);
        assert_eq!(offset_of!(Attributes, wakeup), 48);
        assert_eq!(offset_of!(Attributes, sample_regs_user), 80);
        assert_eq!(offset_of!(Attributes, clockid), 92);
        assert_eq!(offset_of!(Attributes, aux_watermark), 104);
        assert_eq!(offset_of!(Attributes, sig_data), 120);
    }

    #[test]
    fn older_kernels_are_asked_for_less() {
        let event = Attributes::of_thread(kind::SOFTWARE, software::TASK_CLOCK, 1000, true);
        assert_eq!(event.flags & flag::EXCLUDE_KERNEL, 0);
        let [all, some, least] = event.and_for_older_kernels();
        assert_eq!(all, event);
        assert_eq!((some.flags, some.read_format), (event.flags, FORMAT_TIMES));
        assert_eq!(least.flags, event.flags & !flag::REMOVE_ON_EXEC);
        let deferring = event.deferring();
        let changed = flag::EXCLUDE_CALLCHAIN_USER | flag::DEFER_CALLCHAIN;
        assert_eq!(deferring.flags ^ event.flags, changed);
    }
}
