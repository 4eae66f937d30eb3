//! [`EncodeError`]: what the format cannot say.

use core::fmt;

use crate::Address;

/// Why a function or a section cannot be written. `start` of a row is its offset in bytes from the
/// start of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EncodeError {
    /// Version 1 is obsolete and not written.
    UnsupportedVersion,
    /// A row does not begin after the one before it.
    RowOrder {
        /// The row's start.
        start: u32,
    },
    /// More rows than the count has bits for: 65535 in version 3.
    TooManyRows,
    /// The version has no words for the rule of the CFA.
    Cfa {
        /// The row's start.
        start: u32,
    },
    /// The version has no words for the rule of the return address.
    ReturnAddress {
        /// The row's start.
        start: u32,
    },
    /// The version has no words for the rule of the frame pointer.
    FramePointer {
        /// The row's start.
        start: u32,
    },
    /// Version 2 cannot mark a signal frame.
    SignalFrame,
    /// Version 2 cannot say that a function without rows has no caller.
    NoRows,
    /// The function is more than 2 GiB away from the section.
    OutOfReach {
        /// The function's first address.
        start: Address,
    },
    /// The section would be larger than 4 GiB.
    TooLarge,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsupportedVersion => write!(f, "version 1 is not written"),
            Self::RowOrder { start } => write!(
                f,
                "the row at +{start:#x} does not begin after the one before it"
            ),
            Self::TooManyRows => write!(f, "too many rows in one function"),
            Self::Cfa { start } => write!(f, "the CFA's rule at +{start:#x} cannot be expressed"),
            Self::ReturnAddress { start } => write!(
                f,
                "the return address's rule at +{start:#x} cannot be expressed"
            ),
            Self::FramePointer { start } => write!(
                f,
                "the frame pointer's rule at +{start:#x} cannot be expressed"
            ),
            Self::SignalFrame => write!(f, "version 2 cannot mark a signal frame"),
            Self::NoRows => write!(f, "version 2 gives a function without rows no meaning"),
            Self::OutOfReach { start } => {
                write!(f, "the function at {start} is too far from the section")
            }
            Self::TooLarge => write!(f, "the section would be larger than 4 GiB"),
        }
    }
}

impl core::error::Error for EncodeError {}
