//! Numbers of the `perf.data` format and of the kernel's records in it, as `linux/perf_event.h` and
//! perf's `header.h` have them.
//!
//! Not here: how records are laid out (`records`), and the attributes of events
//! ([`engine::perf_event`]).

/// First bytes of a file, on a little-endian machine.
pub(crate) const MAGIC: [u8; 8] = *b"PERFILE2";
/// Length of the file header.
pub(crate) const HEADER_SIZE: u64 = 104;

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
