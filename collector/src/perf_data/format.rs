//! Numbers of the `perf.data` format and of the kernel's records in it, as `linux/perf_event.h` and perf's `header.h` have them.
//!
//! Not here: how records are laid out (`records`).

/// First bytes of a file, on a little-endian machine.
pub(crate) const MAGIC: [u8; 8] = *b"PERFILE2";
/// Length of the file header.
pub(crate) const HEADER_SIZE: u64 = 104;
/// Length of the attributes that are written: `PERF_ATTR_SIZE_VER7`.
pub(crate) const ATTRIBUTES_SIZE: u32 = 128;

/// `PERF_TYPE_SOFTWARE`.
pub(crate) const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_TASK_CLOCK`.
pub(crate) const TASK_CLOCK: u64 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`.
pub(crate) const CPU_CLOCK: u64 = 0;
/// `PERF_COUNT_SW_DUMMY`.
pub(crate) const DUMMY: u64 = 9;

/// Kinds of records.
pub(crate) mod record {
    pub(crate) const MMAP: u32 = 1;
    pub(crate) const COMM: u32 = 3;
    pub(crate) const EXIT: u32 = 4;
    pub(crate) const FORK: u32 = 7;
    pub(crate) const SAMPLE: u32 = 9;
    pub(crate) const MMAP2: u32 = 10;
    pub(crate) const LOST: u32 = 2;
    pub(crate) const CALLCHAIN_DEFERRED: u32 = 22;
    pub(crate) const COMPRESSED: u32 = 81;
    pub(crate) const COMPRESSED2: u32 = 83;
}

/// Bits of a record's `misc`.
pub(crate) mod misc {
    pub(crate) const KERNEL: u16 = 1;
    pub(crate) const USER: u16 = 2;
    pub(crate) const COMM_EXEC: u16 = 1 << 13;
    pub(crate) const MMAP_BUILD_ID: u16 = 1 << 14;
}

/// Bits of `sample_type`.
pub(crate) mod sample {
    pub(crate) const IP: u64 = 1;
    pub(crate) const TID: u64 = 1 << 1;
    pub(crate) const TIME: u64 = 1 << 2;
    pub(crate) const ADDR: u64 = 1 << 3;
    pub(crate) const READ: u64 = 1 << 4;
    pub(crate) const CALLCHAIN: u64 = 1 << 5;
    pub(crate) const ID: u64 = 1 << 6;
    pub(crate) const CPU: u64 = 1 << 7;
    pub(crate) const PERIOD: u64 = 1 << 8;
    pub(crate) const STREAM_ID: u64 = 1 << 9;
    pub(crate) const RAW: u64 = 1 << 10;
    pub(crate) const BRANCH_STACK: u64 = 1 << 11;
    pub(crate) const REGS_USER: u64 = 1 << 12;
    pub(crate) const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of the attributes' flags.
pub(crate) mod flag {
    pub(crate) const INHERIT: u64 = 1 << 1;
    pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(crate) const EXCLUDE_HV: u64 = 1 << 6;
    pub(crate) const MMAP: u64 = 1 << 8;
    pub(crate) const COMM: u64 = 1 << 9;
    pub(crate) const TASK: u64 = 1 << 13;
    pub(crate) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(crate) const MMAP2: u64 = 1 << 23;
    pub(crate) const FREQUENCY: u64 = 1 << 10;
    pub(crate) const COMM_EXEC: u64 = 1 << 24;
    pub(crate) const USE_CLOCKID: u64 = 1 << 25;
    pub(crate) const DEFER_CALLCHAIN: u64 = 1 << 38;
    pub(crate) const DEFER_OUTPUT: u64 = 1 << 39;
}

/// Marks in a call chain that say whose addresses follow.
pub(crate) mod context {
    pub(crate) const KERNEL: u64 = (-128i64).cast_unsigned();
    pub(crate) const USER: u64 = (-512i64).cast_unsigned();
    pub(crate) const USER_DEFERRED: u64 = (-640i64).cast_unsigned();
}

/// Bits of the file header, each with a section of its own behind the records.
pub(crate) mod feature {
    pub(crate) const HOSTNAME: u32 = 3;
    pub(crate) const OSRELEASE: u32 = 4;
    pub(crate) const VERSION: u32 = 5;
    pub(crate) const ARCH: u32 = 6;
    pub(crate) const NRCPUS: u32 = 7;
    pub(crate) const CMDLINE: u32 = 11;
    pub(crate) const EVENT_DESC: u32 = 12;
    pub(crate) const SAMPLE_TIME: u32 = 21;
    pub(crate) const CLOCKID: u32 = 23;
    pub(crate) const CLOCK_DATA: u32 = 29;
}
