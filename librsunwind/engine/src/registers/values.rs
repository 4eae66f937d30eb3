//! The registers as they were at one instant, wherever that is known from.
//!
//! # Safety
//! Reads the context that the caller vouches for.
#![allow(unsafe_code)]

use super::{CONTEXT_PC, CONTEXT_REGISTERS, COUNT, SP, save};
use core::ffi::c_void;

/// All general registers and the pc, as they were at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    /// By DWARF number.
    pub general: [u64; COUNT],
    /// The instruction that would have run next.
    pub pc: u64,
}

impl Registers {
    /// What the kernel saved when it interrupted a thread.
    ///
    /// # Safety
    /// `context` points to a whole `ucontext_t`, as the third argument of a signal handler does.
    ///
    /// # Signal safety
    /// Loads only.
    #[inline]
    #[must_use]
    pub unsafe fn from_ucontext(context: *const c_void) -> Self {
        let load = |offset: u64| {
            // SAFETY: inside the context that the caller vouches for.
            unsafe {
                context
                    .byte_add(offset as usize)
                    .cast::<u64>()
                    .read_unaligned()
            }
        };
        Self {
            general: CONTEXT_REGISTERS.map(load),
            pc: load(CONTEXT_PC),
        }
    }

    /// The registers of the function that this is inlined into: the start of a synchronous walk,
    /// which must end before that function returns.
    ///
    /// # Signal safety
    /// Register moves only.
    #[inline(always)]
    #[must_use]
    pub fn capture() -> Self {
        let mut registers = Self::default();
        // SAFETY: `save` writes one `Registers`.
        unsafe { save(&raw mut registers) };
        registers
    }

    /// The stack pointer.
    #[inline]
    #[must_use]
    pub const fn sp(&self) -> u64 {
        const AT: usize = SP.0 as usize;
        self.general[AT]
    }
}
