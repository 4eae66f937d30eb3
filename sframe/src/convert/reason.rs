//! [`Reason`]: why a function of `.eh_frame` has no rows in SFrame.

use core::fmt;

/// Why a function cannot be converted. `at` is the offset, in bytes from the start of the function,
/// of the first instruction concerned.
///
/// What rows can say and a version of the format cannot is [`EncodeError`](crate::EncodeError).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The CFA is computed by an expression other than a register plus an offset and the word
    /// there, or its offset does not fit in 32 bits.
    Cfa {
        /// Where.
        at: u32,
    },
    /// The return address is found in a way there are no words for.
    ReturnAddress {
        /// Where.
        at: u32,
    },
    /// The frame pointer is found in a way there are no words for.
    FramePointer {
        /// Where.
        at: u32,
    },
    /// The caller's stack pointer is not the CFA.
    StackPointer {
        /// Where.
        at: u32,
    },
    /// The function, or the distance to a row, is larger than 4 GiB.
    TooLarge,
    /// `.eh_frame` itself is malformed.
    Malformed(
        /// How.
        MalformedEntry,
    ),
}

/// What is malformed in `.eh_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedEntry(gimli::Error);

impl MalformedEntry {
    pub(super) const fn new(error: gimli::Error) -> Self {
        Self(error)
    }
}

impl Reason {
    pub(super) const fn malformed(error: gimli::Error) -> Self {
        Self::Malformed(MalformedEntry::new(error))
    }
}

impl fmt::Display for MalformedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cfa { at } => write!(f, "the CFA at +{at:#x} is a computation"),
            Self::ReturnAddress { at } => {
                write!(f, "the return address at +{at:#x} is a computation")
            }
            Self::FramePointer { at } => {
                write!(f, "the frame pointer at +{at:#x} is a computation")
            }
            Self::StackPointer { at } => {
                write!(f, "the caller's stack pointer at +{at:#x} is not the CFA")
            }
            Self::TooLarge => write!(f, "larger than 4 GiB"),
            Self::Malformed(entry) => write!(f, "malformed: {entry}"),
        }
    }
}

impl core::error::Error for Reason {}
