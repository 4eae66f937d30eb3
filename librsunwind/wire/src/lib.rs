#![doc = include_str!("../README.md")]
//!
//! # The contract
//!
//! What the profiled process writes and the collector reads:
//!
//! A *segment* is a file that one process maps and writes; a *recording* (`.rsu`) is what the
//! collector makes of the segments of many processes. Both have the same form, so a segment left
//! behind by a killed process, or written with no collector at all, is itself a recording:
//!
//! ```text
//! +-------------+---------+---------+---------+--
//! | file header | chunk 0 | chunk 1 | chunk 2 | …
//! | 4096 bytes  |         |         |         |
//! +-------------+---------+---------+---------+--
//!
//! chunk:   +--------------+--------+--------+--------+- - - - - -+
//!          | chunk header | record | record | record |  unused   |
//!          | 128 bytes    |        |        |        |           |
//!          +--------------+--------+--------+--------+- - - - - -+
//!                          <------- committed ------>
//!          <------------------------ stride -------------------->
//!
//! record:  | u16 length in 8-byte words | u8 kind | u8 zero | u32 check | payload … padding (0) |
//! ```
//!
//! * A chunk belongs to one thread of one process, which alone writes it and never waits.
//!   `committed` is stored (release) after a record is whole: a process killed at any instant
//!   leaves at most one record unfinished, and unseen.
//! * A chunk decodes by itself: the first sample in it is complete, later ones may refer to the
//!   sample before ([`sample`]).
//! * In a segment every stride is [`chunk::SEGMENT_STRIDE`]. With a collector a chunk goes free →
//!   owned → sealed → free; the process does the first two steps and the collector the last.
//!   Without one nothing is freed and the file grows.
//! * The kernel's halves of samples ([`kernel`]) lie in the thread's perf ring first ([`ring`]).
//!   The thread takes them out and writes them to its chunk, or the collector does and writes them
//!   to chunks of its own.
//! * In a recording strides vary; every chunk starts on a multiple of [`chunk::ALIGNMENT`], so that
//!   a reader can find the next one behind damage by its magic. Every record carries a check of its
//!   content.
//! * Integers are little endian. Numbers in payloads are LEB128 varints ([`codec`]), signed ones
//!   zigzag.
//! * A recording that is done is made small ([`packed`]). It ends with the names of its functions
//!   ([`names`]), for readers that have not the programs any more.
//! * A reader refuses a file whose major version it does not know, and skips record kinds it does
//!   not know.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod address;
pub mod charge;
pub mod chunk;
pub mod clocks;
pub mod code;
pub mod codec;
pub mod event;
pub mod event_request;
pub mod file;
pub mod kernel;
pub mod label;
pub mod module;
pub mod names;
pub mod offer;
pub mod packed;
pub mod process;
pub mod record;
pub mod ring;
pub mod sample;
pub mod session;
pub mod source;
pub mod thread;
mod words;

use core::fmt;

/// Why bytes of a recording could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end inside the thing named.
    Truncated(&'static str),
    /// A magic number is not there: not one of our files, or damage.
    BadMagic(u64),
    /// Written by a newer version, this one.
    NewerVersion(u32),
    /// A length points outside its container.
    BadLength(u64),
    /// The check of a record does not match its content.
    BadCheck {
        /// What the record says.
        stored: u32,
        /// What its content gives.
        computed: u32,
    },
    /// A value outside its set, for the field named.
    BadValue(&'static str, u64),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated(what) => write!(f, "the data ends inside {what}"),
            Self::BadMagic(found) => write!(f, "no magic number here (found {found:#x})"),
            Self::NewerVersion(version) => write!(
                f,
                "format version {version} is newer than this program's {}",
                file::VERSION
            ),
            Self::BadLength(length) => write!(f, "a length of {length} bytes does not fit"),
            Self::BadCheck { stored, computed } => {
                write!(
                    f,
                    "damaged record: its check is {stored:#010x}, its content gives {computed:#010x}"
                )
            }
            Self::BadValue(field, value) => write!(f, "{value} is not a value of {field}"),
        }
    }
}

impl core::error::Error for WireError {}
