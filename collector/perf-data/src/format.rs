//! Numbers of the `perf.data` format and of the kernel's records in it, as `linux/perf_event.h` and
//! perf's `header.h` have them.
//!
//! Not here: the attributes of events (`linux_perf_event_reader::constants`).

/// First bytes of a file, on a little-endian machine.
pub const MAGIC: [u8; 8] = *b"PERFILE2";
/// Length of the file header.
pub const HEADER_SIZE: u64 = 104;

/// Kinds of records.
#[expect(missing_docs, reason = "the names of the kernel and of perf")]
pub mod record {
    pub const MMAP: u32 = 1;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const LOST: u32 = 2;
    pub const CALLCHAIN_DEFERRED: u32 = 22;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Bits of a record's `misc`.
#[expect(missing_docs, reason = "the names of the kernel and of perf")]
pub mod misc {
    pub const KERNEL: u16 = 1;
    pub const USER: u16 = 2;
    pub const COMM_EXEC: u16 = 1 << 13;
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
}

/// Marks in a call chain that say whose addresses follow.
#[expect(missing_docs, reason = "the names of the kernel and of perf")]
pub mod context {
    pub const KERNEL: u64 = (-128i64).cast_unsigned();
    pub const USER: u64 = (-512i64).cast_unsigned();
    pub const USER_DEFERRED: u64 = (-640i64).cast_unsigned();
}

/// Bits of the file header, each with a section of its own behind the records.
#[expect(missing_docs, reason = "the names of the kernel and of perf")]
pub mod feature {
    pub const HOSTNAME: u32 = 3;
    pub const OSRELEASE: u32 = 4;
    pub const VERSION: u32 = 5;
    pub const ARCH: u32 = 6;
    pub const NRCPUS: u32 = 7;
    pub const CMDLINE: u32 = 11;
    pub const EVENT_DESC: u32 = 12;
    pub const SAMPLE_TIME: u32 = 21;
    pub const CLOCKID: u32 = 23;
    pub const CLOCK_DATA: u32 = 29;
}
