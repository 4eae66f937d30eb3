//! AArch64: its registers by DWARF number, the kernel's `ucontext_t`, a capture, and system calls.
//!
//! Numbers: DWARF for the Arm 64-bit architecture, table 3. Layout of the context: `struct
//! ucontext` and `struct sigcontext` of the kernel's `uapi/asm/ucontext.h` and
//! `uapi/asm/sigcontext.h` for arm64.
//!
//! # Safety
//! Executes instructions that the compiler does not know.
#![allow(unsafe_code)]

use super::{REQUEUE_IF_SAME, Register, Registers};

/// perf's numbers of frame pointer, stack pointer and instruction pointer, as a mask for
/// `sample_regs_user`; samples list them in this order.
pub const PERF_REGISTERS: u64 = 1 << 29 | 1 << 31 | 1 << 32;
/// How many general registers there are.
pub const COUNT: usize = 32;
/// The stack pointer.
pub const SP: Register = Register(31);
/// The frame pointer, x29.
pub const FP: Register = Register(29);
/// The return address column, the link register.
pub const RETURN_ADDRESS: Register = Register(30);
/// Registers whose value a caller gets back, in the order of a rule's slots; the frame pointer is
/// first.
pub const SLOTS: [Register; 6] = [
    Register(29),
    Register(30),
    Register(19),
    Register(20),
    Register(21),
    Register(22),
];
/// The validity bits of [`SLOTS`] without the link register, which the next call overwrote, and of
/// the stack pointer.
pub const PRESERVED: u32 = 0xf << 19 | 1 << 29 | 1 << 31;
/// Whether a call leaves the return address on the stack, just below the CFA.
pub const RETURN_ADDRESS_ON_STACK: bool = false;
/// A word that the stack pointer is a multiple of at every instruction of ordinary code.
pub const STACK_ALIGNMENT: u64 = 16;

/// `mov x8, #139; svc #0`: what the kernel or a libc puts behind a signal handler.
pub const SIGRETURN: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
/// Offsets into [`SIGRETURN`] at which an instruction starts.
pub const SIGRETURN_STARTS: &[u64] = &[0, 4];
/// From the stack pointer at the trampoline to the `ucontext_t`.
pub const SIGNAL_CONTEXT: u64 = 128;
/// From a `ucontext_t` to the saved pc.
pub const CONTEXT_PC: u64 = 184 + 8 * 32;
/// From a `ucontext_t` to each general register.
pub const CONTEXT_REGISTERS: [u64; COUNT] = {
    let mut offsets = [184; COUNT];
    let mut rest: &mut [u64] = &mut offsets;
    let mut at = 184;
    while let Some((first, others)) = rest.split_first_mut() {
        *first = at;
        at += 8;
        rest = others;
    }
    offsets
};

/// Removes the pointer authentication code of a saved return address (XPACLRI, a hint that older
/// processors ignore).
#[inline]
#[must_use]
pub fn strip(return_address: u64) -> u64 {
    let stripped: u64;
    // SAFETY: changes x30 only.
    unsafe {
        core::arch::asm!("hint #7", inlateout("x30") return_address => stripped, options(nomem, nostack, preserves_flags));
    }
    stripped
}

/// Writes the registers as they are after the return from here, with the return address as pc.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn save(into: *mut Registers) {
    core::arch::naked_asm!(
        "stp x0, x1, [x0]",
        "stp x2, x3, [x0, #16]",
        "stp x4, x5, [x0, #32]",
        "stp x6, x7, [x0, #48]",
        "stp x8, x9, [x0, #64]",
        "stp x10, x11, [x0, #80]",
        "stp x12, x13, [x0, #96]",
        "stp x14, x15, [x0, #112]",
        "stp x16, x17, [x0, #128]",
        "stp x18, x19, [x0, #144]",
        "stp x20, x21, [x0, #160]",
        "stp x22, x23, [x0, #176]",
        "stp x24, x25, [x0, #192]",
        "stp x26, x27, [x0, #208]",
        "stp x28, x29, [x0, #224]",
        "mov x9, sp",
        "stp x30, x9, [x0, #240]",
        "str x30, [x0, #256]",
        "ret",
    )
}

/// The address of the thread's control block.
///
/// # Signal safety
/// Reads a register.
#[inline]
#[must_use]
pub fn thread_block() -> u64 {
    let base: u64;
    // SAFETY: changes nothing else.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) base, options(nomem, nostack, preserves_flags));
    }
    base
}

/// `rt_sigprocmask` with a `how` that does not exist: the kernel reads the 8 bytes at `set`, then
/// refuses. See [`crate::memory`] for what that is good for. Gives the negated error number.
///
/// # Signal safety
/// One system call, which changes nothing.
#[inline]
pub(crate) fn probe(set: u64) -> i64 {
    let result: i64;
    // SAFETY: the call changes neither memory nor the mask, whatever the address.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") PROBE,
            inlateout("x0") -1i64 => result,
            in("x1") set,
            in("x2") 0,
            in("x3") 8,
            options(nostack, readonly),
        );
    }
    result
}

/// The number of that call.
pub(crate) const PROBE: i64 = 135;

/// The same for the four bytes around an address, by `futex`: none of those that wait there is
/// woken, and none is moved. Gives 0 or `EAGAIN` where they can be read.
///
/// # Signal safety
/// One system call, which changes nothing.
#[inline]
pub(crate) fn probe_by_futex(address: u64) -> i64 {
    let result: i64;
    // SAFETY: the call changes nothing, whatever the address.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") PROBE_BY_FUTEX,
            inlateout("x0") (address & !3) as i64 => result,
            in("x1") REQUEUE_IF_SAME,
            in("x2") 0,
            in("x3") 0,
            in("x4") address & !3,
            in("x5") 0,
            options(nostack, readonly),
        );
    }
    result
}

/// The number of that call.
pub(crate) const PROBE_BY_FUTEX: i64 = 98;

/// What seccomp filters know this processor by: `AUDIT_ARCH_AARCH64`.
pub const AUDIT_ARCHITECTURE: u32 = 0xc000_00b7;
