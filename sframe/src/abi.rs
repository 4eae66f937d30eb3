//! [`Abi`]: the processor and calling convention a section is for, and the constants that follow
//! from it.

use crate::{ByteOrder, Register};

/// The ABI a section describes (specification 2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Abi {
    /// `SFRAME_ABI_AARCH64_ENDIAN_BIG`, 1.
    Aarch64Big,
    /// `SFRAME_ABI_AARCH64_ENDIAN_LITTLE`, 2.
    Aarch64Little,
    /// `SFRAME_ABI_AMD64_ENDIAN_LITTLE`, 3.
    Amd64,
    /// `SFRAME_ABI_S390X_ENDIAN_BIG`, 4.
    S390x,
}

impl Abi {
    /// The ABI with this identifier, if it is known.
    #[inline]
    #[must_use]
    pub const fn from_identifier(identifier: u8) -> Option<Self> {
        match identifier {
            1 => Some(Self::Aarch64Big),
            2 => Some(Self::Aarch64Little),
            3 => Some(Self::Amd64),
            4 => Some(Self::S390x),
            _ => None,
        }
    }

    /// The identifier in the header's `sfh_abi_arch`.
    #[inline]
    #[must_use]
    pub const fn identifier(self) -> u8 {
        match self {
            Self::Aarch64Big => 1,
            Self::Aarch64Little => 2,
            Self::Amd64 => 3,
            Self::S390x => 4,
        }
    }

    /// The byte order that goes with the ABI.
    #[inline]
    #[must_use]
    pub const fn byte_order(self) -> ByteOrder {
        match self {
            Self::Aarch64Little | Self::Amd64 => ByteOrder::Little,
            Self::Aarch64Big | Self::S390x => ByteOrder::Big,
        }
    }

    /// The stack pointer's DWARF number: rsp 7, sp 31, r15.
    #[inline]
    #[must_use]
    pub const fn stack_pointer(self) -> Register {
        match self {
            Self::Amd64 => Register(7),
            Self::Aarch64Big | Self::Aarch64Little => Register(31),
            Self::S390x => Register(15),
        }
    }

    /// The frame pointer's DWARF number: rbp 6, x29, r11.
    #[inline]
    #[must_use]
    pub const fn frame_pointer(self) -> Register {
        match self {
            Self::Amd64 => Register(6),
            Self::Aarch64Big | Self::Aarch64Little => Register(29),
            Self::S390x => Register(11),
        }
    }

    /// The DWARF number that stands for the return address: the rip column 16, x30, r14. On amd64
    /// it is no register that could be read.
    #[inline]
    #[must_use]
    pub const fn return_address(self) -> Register {
        match self {
            Self::Amd64 => Register(16),
            Self::Aarch64Big | Self::Aarch64Little => Register(30),
            Self::S390x => Register(14),
        }
    }

    /// What to add to the CFA to get the caller's stack pointer, in bytes: -160 on s390x
    /// (specification 3.1.3), nothing elsewhere.
    #[inline]
    #[must_use]
    pub const fn stack_pointer_offset(self) -> i32 {
        match self {
            Self::S390x => -160,
            Self::Amd64 | Self::Aarch64Big | Self::Aarch64Little => 0,
        }
    }

    /// The header's `sfh_cfa_fixed_ra_offset` that producers write: -8 on amd64, 0 (none)
    /// elsewhere.
    #[inline]
    #[must_use]
    pub const fn fixed_return_address_offset(self) -> i8 {
        match self {
            Self::Amd64 => -8,
            Self::Aarch64Big | Self::Aarch64Little | Self::S390x => 0,
        }
    }
}
