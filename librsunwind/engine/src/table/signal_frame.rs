//! Signal trampolines: what a handler returns to, recognised by their bytes, and the registers that
//! the kernel saved.
//!
//! ```text
//!        +-----------------+                       +------------+
//!        | ucontext_t      | <- sp at the          | ucontext_t |
//!   sp ->| return address  |    trampoline         | siginfo_t  | <- sp at the trampoline
//!        +-----------------+  x86-64               +------------+  aarch64
//! ```

use crate::cursor::Cursor;
use crate::memory::StackMemory;
use crate::registers::{
    CONTEXT_PC, CONTEXT_REGISTERS, Registers, SIGNAL_CONTEXT, SIGRETURN, SIGRETURN_STARTS,
};
use crate::wire::sample::StopReason;

/// Whether a pc stands at an instruction of a signal trampoline.
///
/// # Signal safety
/// Probes a page of code, or two.
#[must_use]
pub fn is_trampoline(pc: u64, memory: &mut StackMemory) -> bool {
    SIGRETURN_STARTS.iter().any(|&offset| {
        let start = pc.wrapping_sub(offset);
        memory.holds(start, SIGRETURN)
    })
}

/// Takes a cursor at a trampoline to what the signal interrupted.
///
/// # Errors
/// [`StopReason::UnreadableStack`].
///
/// # Signal safety
/// Loads through `memory` only.
pub fn step(cursor: &mut Cursor, memory: &mut StackMemory) -> Result<(), StopReason> {
    let context = cursor.sp().wrapping_add(SIGNAL_CONTEXT);
    let mut load = |offset: u64| {
        let address = context.wrapping_add(offset);
        memory.load(address).ok_or(StopReason::UnreadableStack)
    };
    let mut registers = Registers {
        pc: load(CONTEXT_PC)?,
        ..Registers::default()
    };
    for (place, offset) in registers.general.iter_mut().zip(CONTEXT_REGISTERS) {
        *place = load(offset)?;
    }
    cursor.become_interrupted(&registers);
    memory.enter(registers.sp());
    Ok(())
}
