//! [`Address`]: the one kind of address this crate knows.

use core::fmt;

/// An address in the space the section was placed in by [`Section::new`](crate::Section::new).
///
/// A table holds only distances, so the caller chooses the space: the run-time address of the
/// mapped `.sframe` section makes every address a run-time address; `sh_addr` from the ELF file
/// makes every address a file address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The address `distance` bytes further on, wrapping at the end of the address space as the
    /// hardware does.
    #[inline]
    #[must_use]
    pub const fn wrapping_offset(self, distance: i64) -> Self {
        Self(self.0.wrapping_add_signed(distance))
    }

    /// How many bytes `self` lies after `origin`; negative if before it.
    #[inline]
    #[must_use]
    pub const fn distance_from(self, origin: Self) -> i64 {
        self.0.wrapping_sub(origin.0).cast_signed()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}
