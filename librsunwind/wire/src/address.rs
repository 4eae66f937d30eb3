//! The kinds of address, so that none is mistaken for another.
//!
//! Not here: how an address becomes a symbol (the collector does that).

/// An address in the profiled process as it runs (the field says AVMA, actual virtual memory
/// address).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct RuntimeAddress(pub u64);

/// An address as a module's own tables state it (the field says SVMA, stated virtual memory
/// address). A runtime address is this plus the module's load bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FileAddress(pub u64);

/// A code address together with how it was come by: a caller's address is that of the instruction
/// *after* the call, which may belong to the next function, so tables and symbols are looked up one
/// byte before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeAddress {
    /// Where execution stood: the interrupted instruction, of the leaf or of the frame below a
    /// signal handler.
    Instruction(RuntimeAddress),
    /// Where a call returns to.
    Return(RuntimeAddress),
}

impl CodeAddress {
    /// The address to look up in tables.
    ///
    /// # Signal safety
    /// Pure arithmetic.
    #[inline]
    #[must_use]
    pub const fn lookup(self) -> RuntimeAddress {
        match self {
            Self::Instruction(address) => address,
            Self::Return(address) => RuntimeAddress(address.0.wrapping_sub(1)),
        }
    }
}
