//! What a look-up yields: [`Row`], with the rules for the CFA, the return address and the frame
//! pointer. Independent of version and encoding.

/// A register, by its number in the ABI's DWARF numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u16);

/// The register a CFA is counted from.
///
/// A register that is the ABI's stack or frame pointer is always given as such, also where the
/// table names it by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// The stack pointer.
    StackPointer,
    /// The frame pointer.
    FramePointer,
    /// Another register. Its value is known for the innermost frame, and above that only if the
    /// unwinder tracks it.
    Register(Register),
}

/// How to find the CFA, the canonical frame address: the value the stack pointer had in the caller
/// just before the call (on s390x 160 bytes above it, see
/// [`Abi::stack_pointer_offset`](crate::Abi::stack_pointer_offset)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cfa {
    /// The register to start from.
    pub base: Base,
    /// Bytes to add to it.
    pub offset: i32,
    /// Whether the CFA is the word at `base + offset`, instead of `base + offset` itself.
    pub deref: bool,
}

/// How to find the caller's return address or frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// It is still in its register. For a return address that is the link register, of use in the
    /// innermost frame only.
    Unchanged,
    /// It is the word at CFA plus this many bytes.
    AtCfa(i32),
    /// It is the sum of a register and `offset`.
    Register {
        /// The register.
        register: Register,
        /// Bytes to add to it.
        offset: i32,
    },
    /// It is the word at the sum of a register and `offset`.
    AtRegister {
        /// The register.
        register: Register,
        /// Bytes to add to it.
        offset: i32,
    },
    /// There is none: this is the outermost frame.
    Undefined,
}

/// The key an aarch64 return address was signed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PacKey {
    /// Key A.
    #[default]
    A,
    /// Key B.
    B,
}

/// How to get from a frame to its caller, for a range of instructions of one function
/// (specification 2.4 and 3).
///
/// With `sp`, `fp` and the other registers of the frame:
///
/// 1. if [`Row::is_outermost`], stop;
/// 2. the CFA from [`Row::cfa`];
/// 3. the caller's pc from [`Row::ra`]; if [`Row::mangled_ra`], strip the signature off it;
/// 4. the caller's frame pointer from [`Row::fp`];
/// 5. the caller's stack pointer is the CFA (plus
///    [`Abi::stack_pointer_offset`](crate::Abi::stack_pointer_offset)).
///
/// The caller's pc is a return address, so it is looked up one byte earlier, unless this is a
/// [signal frame](Row::signal_frame), whose caller was interrupted rather than calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Row {
    /// The canonical frame address. Without meaning in an outermost frame.
    pub cfa: Cfa,
    /// The return address.
    pub ra: Rule,
    /// The caller's frame pointer.
    pub fp: Rule,
    /// aarch64: the return address, where it is saved or in the link register, carries a pointer
    /// authentication code.
    pub mangled_ra: bool,
    /// aarch64: the key of that code. Belongs to the whole function.
    pub pac_key: PacKey,
    /// The frame is that of a signal trampoline: the caller was interrupted at its pc. Belongs to
    /// the whole function; version 3 only.
    pub signal_frame: bool,
}

impl Row {
    /// A row of an ordinary frame with these rules.
    #[inline]
    #[must_use]
    pub const fn new(cfa: Cfa, ra: Rule, fp: Rule) -> Self {
        Self {
            cfa,
            ra,
            fp,
            mangled_ra: false,
            pac_key: PacKey::A,
            signal_frame: false,
        }
    }

    /// The row of a frame that has no caller.
    #[inline]
    #[must_use]
    pub const fn outermost() -> Self {
        let cfa = Cfa {
            base: Base::StackPointer,
            offset: 0,
            deref: false,
        };
        Self::new(cfa, Rule::Undefined, Rule::Unchanged)
    }

    /// Whether the frame has no caller.
    #[inline]
    #[must_use]
    pub const fn is_outermost(&self) -> bool {
        matches!(self.ra, Rule::Undefined)
    }
}
