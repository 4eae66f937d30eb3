//! Where a walk stands: the registers of one frame, as far as they are known.
//!
//! Not here: how the next frame's are found ([`crate::rule`]) and when to stop ([`crate::unwind`]).

use crate::address::{CodeAddress, RuntimeAddress};
use crate::registers::{COUNT, FP, PRESERVED, Register, Registers, SLOTS, SP};

/// The registers of a frame and which of them are to be trusted. Validity is stated, never guessed
/// from a value: rbp = 0 is a valid rbp.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    registers: Registers,
    valid: u32,
    /// Whether the pc is that of an instruction rather than where a call returns to. Then all
    /// registers are those that the interrupted code had.
    exact: bool,
    /// Whether a step forgot registers that another table would have kept.
    dropped: bool,
}

impl Cursor {
    /// At the interrupted or captured code itself: everything is known.
    #[inline]
    #[must_use]
    pub fn new(registers: &Registers) -> Self {
        let mut cursor = Self {
            registers: Registers {
                general: registers.general,
                pc: 0,
            },
            valid: u32::MAX >> 32usize.wrapping_sub(COUNT),
            exact: true,
            dropped: false,
        };
        // By itself: to copy all of them at once the compiler calls a function.
        cursor.registers.pc = registers.pc;
        cursor
    }

    /// The pc, as found.
    #[inline]
    #[must_use]
    pub const fn pc(&self) -> u64 {
        self.registers.pc
    }

    /// Whether the pc is exact: the leaf's, or that of a frame that a signal interrupted.
    #[inline]
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// The pc with its meaning.
    #[inline]
    #[must_use]
    pub const fn code_address(&self) -> CodeAddress {
        let pc = RuntimeAddress(self.registers.pc);
        if self.exact {
            CodeAddress::Instruction(pc)
        } else {
            CodeAddress::Return(pc)
        }
    }

    /// The stack pointer, which is always known.
    #[inline]
    #[must_use]
    pub const fn sp(&self) -> u64 {
        self.registers.sp()
    }

    /// A register's value, if it is known.
    #[inline]
    #[must_use]
    pub fn get(&self, register: Register) -> Option<u64> {
        let value = self.registers.general.get(usize::from(register.0))?;
        (self.valid & register.bit() != 0).then_some(*value)
    }

    /// The bits of the registers that are known.
    #[inline]
    #[must_use]
    pub const fn valid(&self) -> u32 {
        self.valid
    }

    /// The value of a register whether or not it is known.
    #[inline]
    pub(crate) fn raw(&self, register: Register) -> u64 {
        let value = self.registers.general.get(usize::from(register.0));
        value.copied().unwrap_or(0)
    }

    /// Becomes the caller's: its pc, its stack pointer, and what it gets back of the registers in
    /// [`SLOTS`]; those behind the ones given stay. `valid` is masked to what a call preserves.
    #[inline]
    pub(crate) fn become_caller(&mut self, pc: u64, sp: u64, slots: &[u64], valid: u32) {
        for (register, value) in SLOTS.iter().zip(slots) {
            if let Some(place) = self.registers.general.get_mut(usize::from(register.0)) {
                *place = *value;
            }
        }
        if let Some(place) = self.registers.general.get_mut(usize::from(SP.0)) {
            *place = sp;
        }
        self.registers.pc = pc;
        self.valid = (valid | SP.bit()) & PRESERVED;
        self.exact = false;
    }

    /// Says whether the pc is that of an interrupted instruction.
    #[inline]
    pub(crate) const fn set_exact(&mut self, exact: bool) {
        self.exact = exact;
    }

    /// Notes that a step forgot registers that another table would have kept.
    #[inline]
    pub(crate) const fn note_dropped(&mut self) {
        self.dropped = true;
    }

    /// Whether a step since the leaf, or since the last signal frame, forgot registers that another
    /// table would have kept.
    #[inline]
    #[must_use]
    pub const fn has_dropped(&self) -> bool {
        self.dropped
    }

    /// All registers, known or not.
    #[inline]
    #[must_use]
    pub const fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The caller that a language names: `valid` are the bits of the registers that it knows, of
    /// those that a call preserves.
    #[must_use]
    pub fn told(&self, registers: &Registers, valid: u32) -> Self {
        Self {
            registers: *registers,
            valid: (valid | SP.bit()) & PRESERVED,
            exact: false,
            dropped: self.dropped,
        }
    }

    /// Becomes what a signal interrupted: everything is known again.
    pub(crate) fn become_interrupted(&mut self, registers: &Registers) {
        *self = Self::new(registers);
    }

    /// The values in the order of [`SLOTS`], known or not.
    #[inline]
    pub(crate) fn slots(&self) -> [u64; 6] {
        SLOTS.map(|register| self.raw(register))
    }

    /// Only the frame pointer and the stack pointer are still known of what a call preserves.
    #[inline]
    pub(crate) const fn forget_all_but_frame(valid: u32) -> u32 {
        valid & (FP.bit() | SP.bit())
    }
}
