//! [`Error`]: what can be wrong with the bytes of a section.

use core::fmt;

/// Why a section, or one entry of it, could not be read.
///
/// Every variant carries `offset`, the distance in bytes from the beginning of the section to the
/// field that is wrong, and that field's value where it has one. The section numbers are those of
/// the SFrame specification, version 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before the header does (2.2).
    HeaderTooShort {
        /// Where the missing bytes would begin.
        offset: u64,
    },
    /// The first two bytes are not 0xdee2 in either byte order (2.1.1).
    BadMagic {
        /// Always 0.
        offset: u64,
        /// The two bytes, read as little-endian.
        magic: u16,
    },
    /// A version other than 1, 2 and 3 (2.1.2).
    UnknownVersion {
        /// Always 2.
        offset: u64,
        /// `sfp_version`.
        version: u8,
    },
    /// A flag this version does not define (2.1.3).
    UnknownFlags {
        /// Always 3.
        offset: u64,
        /// `sfp_flags`.
        flags: u8,
    },
    /// An ABI identifier without a known meaning (2.2.1).
    UnknownAbi {
        /// Always 4.
        offset: u64,
        /// `sfh_abi_arch`.
        abi: u8,
    },
    /// The byte order of the magic number is not that of the ABI (2.2.1).
    ByteOrderMismatch {
        /// Always 4.
        offset: u64,
        /// `sfh_abi_arch`.
        abi: u8,
    },
    /// The function index reaches past the end of the bytes (2.2).
    FdesOutOfBounds {
        /// Where the function index begins.
        offset: u64,
        /// How many bytes it should have.
        len: u64,
    },
    /// The rows reach past the end of the bytes (2.2).
    FresOutOfBounds {
        /// Where the rows begin.
        offset: u64,
        /// How many bytes they should have.
        len: u64,
    },
    /// The function index and the rows share bytes (2.2).
    Overlap {
        /// Where the later of the two begins.
        offset: u64,
    },
    /// A function's rows, or its attribute, reach past the end of the rows (2.3.1).
    RowsOutOfBounds {
        /// Where the missing bytes would begin.
        offset: u64,
    },
    /// A row start width other than 1, 2 and 4 bytes (2.3.3.3).
    BadFreType {
        /// Where the function's info byte is.
        offset: u64,
        /// The info byte.
        info: u8,
    },
    /// A kind of function other than DEFAULT and FLEX (2.3.3.2).
    BadFdeType {
        /// Where the second info byte is.
        offset: u64,
        /// The second info byte.
        info2: u8,
    },
    /// A repeated block of zero bytes (2.3.3.1).
    ZeroRepSize {
        /// Where the size is.
        offset: u64,
    },
    /// A data word width other than 1, 2 and 4 bytes (2.4.1).
    BadWordSize {
        /// Where the row's info byte is.
        offset: u64,
        /// The info byte.
        info: u8,
    },
    /// More or fewer data words than the ABI or the kind of function allows (3.1, 3.2).
    BadWordCount {
        /// Where the row's info byte is.
        offset: u64,
        /// The info byte.
        info: u8,
    },
    /// A control word with a reserved bit, without a base, or with a register number above 65535
    /// (3.2).
    BadControl {
        /// Where the row's info byte is.
        offset: u64,
        /// The control word.
        control: u32,
    },
    /// A scaled CFA offset that does not fit in 32 bits (3.1.3).
    OffsetOverflow {
        /// Where the row's info byte is.
        offset: u64,
        /// The data word.
        word: i32,
    },
    /// Two functions out of order in a section that says it is sorted; found by
    /// [`Section::verify`](crate::Section::verify) (2.1.3).
    NotSorted {
        /// Where the later function's entry begins.
        offset: u64,
    },
    /// A row that does not begin after the one before it, or begins behind the end of its function;
    /// found by [`Section::verify`](crate::Section::verify) (2.4).
    BadRowStart {
        /// Where the row begins.
        offset: u64,
        /// The row's start, in bytes from the start of the function.
        start: u32,
    },
    /// The header's count of rows is not the sum over the functions; found by
    /// [`Section::verify`](crate::Section::verify) (2.2).
    BadRowTotal {
        /// Where the header's count is.
        offset: u64,
        /// The header's count.
        count: u32,
    },
}

impl Error {
    /// The distance in bytes from the beginning of the section to what is wrong.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        match *self {
            Self::HeaderTooShort { offset }
            | Self::BadMagic { offset, .. }
            | Self::UnknownVersion { offset, .. }
            | Self::UnknownFlags { offset, .. }
            | Self::UnknownAbi { offset, .. }
            | Self::ByteOrderMismatch { offset, .. }
            | Self::FdesOutOfBounds { offset, .. }
            | Self::FresOutOfBounds { offset, .. }
            | Self::Overlap { offset }
            | Self::RowsOutOfBounds { offset }
            | Self::BadFreType { offset, .. }
            | Self::BadFdeType { offset, .. }
            | Self::ZeroRepSize { offset }
            | Self::BadWordSize { offset, .. }
            | Self::BadWordCount { offset, .. }
            | Self::BadControl { offset, .. }
            | Self::OffsetOverflow { offset, .. }
            | Self::NotSorted { offset }
            | Self::BadRowStart { offset, .. }
            | Self::BadRowTotal { offset, .. } => offset,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HeaderTooShort { .. } => write!(f, "the section ends inside its header"),
            Self::BadMagic { magic, .. } => {
                write!(f, "not an SFrame section: magic number {magic:#06x}")
            }
            Self::UnknownVersion { version, .. } => write!(f, "unknown SFrame version {version}"),
            Self::UnknownFlags { flags, .. } => write!(f, "undefined flags in {flags:#04x}"),
            Self::UnknownAbi { abi, .. } => write!(f, "unknown ABI {abi}"),
            Self::ByteOrderMismatch { abi, .. } => write!(f, "byte order is not that of ABI {abi}"),
            Self::FdesOutOfBounds { len, .. } => {
                write!(f, "function index of {len} bytes reaches past the end")
            }
            Self::FresOutOfBounds { len, .. } => {
                write!(f, "rows of {len} bytes reach past the end")
            }
            Self::Overlap { .. } => write!(f, "function index and rows overlap"),
            Self::RowsOutOfBounds { .. } => {
                write!(f, "a function's rows reach past the end of the rows")
            }
            Self::BadFreType { info, .. } => {
                write!(f, "undefined row type in function info {info:#04x}")
            }
            Self::BadFdeType { info2, .. } => {
                write!(f, "undefined function type in function info {info2:#04x}")
            }
            Self::ZeroRepSize { .. } => write!(f, "repeated block of zero bytes"),
            Self::BadWordSize { info, .. } => {
                write!(f, "undefined data word size in row info {info:#04x}")
            }
            Self::BadWordCount { info, .. } => {
                write!(f, "wrong number of data words in row info {info:#04x}")
            }
            Self::BadControl { control, .. } => write!(f, "undefined control word {control:#x}"),
            Self::OffsetOverflow { word, .. } => write!(
                f,
                "CFA offset word {word} does not fit in 32 bits when scaled"
            ),
            Self::NotSorted { .. } => write!(f, "functions out of order in a sorted section"),
            Self::BadRowStart { start, .. } => write!(
                f,
                "row start {start:#x} out of order or outside its function"
            ),
            Self::BadRowTotal { count, .. } => {
                write!(f, "the header counts {count} rows, the functions do not")
            }
        }?;
        write!(f, " (section offset {:#x})", self.offset())
    }
}

impl core::error::Error for Error {}
