//! The registers of the machine we run on: one file per architecture, with the same names in each.
//!
//! Registers come from the kernel (a `ucontext_t` that it wrote when it delivered a signal) or from
//! the processor (a capture of the running code), and go into a [`crate::cursor::Cursor`]. Not
//! here: which of them are still known further up the stack.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod values;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
pub use values::Registers;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

/// The DWARF number of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Register(pub u8);

impl Register {
    /// The register's bit in a validity mask; none for registers beyond those we keep.
    #[inline]
    #[must_use]
    pub const fn bit(self) -> u32 {
        if self.0 < 32 { 1 << self.0 } else { 0 }
    }
}

/// `FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG`.
pub(crate) const REQUEUE_IF_SAME: u64 = 4 | 128;
