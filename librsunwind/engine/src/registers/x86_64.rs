//! x86-64: its registers by DWARF number, the kernel's `ucontext_t`, a capture, and system calls.
//!
//! Numbers: System V psABI, figure 3.36. Layout of the context: `struct ucontext` and `struct
//! sigcontext_64` of the kernel's `uapi/asm-generic/ucontext.h` and `uapi/asm/sigcontext.h`.
//!
//! # Safety
//! Executes instructions that the compiler does not know.
#![allow(unsafe_code)]

use super::{REQUEUE_IF_SAME, Register, Registers};

/// perf's numbers of frame pointer, stack pointer and instruction pointer, as a mask for
/// `sample_regs_user`; samples list them in this order.
pub const PERF_REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// How many general registers there are.
pub const COUNT: usize = 16;
/// The stack pointer, rsp.
pub const SP: Register = Register(7);
/// The frame pointer, rbp.
pub const FP: Register = Register(6);
/// The return address column.
pub const RETURN_ADDRESS: Register = Register(16);
/// Registers whose value a caller gets back, in the order of a rule's slots; the frame pointer is
/// first.
pub const SLOTS: [Register; 6] = [
    Register(6),  // rbp
    Register(3),  // rbx
    Register(12), // r12
    Register(13), // r13
    Register(14), // r14
    Register(15), // r15
];
/// The validity bits of [`SLOTS`] and the stack pointer.
pub const PRESERVED: u32 = 1 << 3 | 1 << 6 | 1 << 7 | 0xf << 12;
/// Whether a call leaves the return address on the stack, just below the CFA.
pub const RETURN_ADDRESS_ON_STACK: bool = true;
/// A word that the stack pointer is a multiple of at every instruction of ordinary code.
pub const STACK_ALIGNMENT: u64 = 8;

/// `mov $15, %rax; syscall`: what every libc puts behind a signal handler.
pub const SIGRETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Offsets into [`SIGRETURN`] at which an instruction starts.
pub const SIGRETURN_STARTS: &[u64] = &[0, 7];
/// From the stack pointer at the trampoline to the `ucontext_t`.
pub const SIGNAL_CONTEXT: u64 = 0;
/// From a `ucontext_t` to the saved pc.
pub const CONTEXT_PC: u64 = 40 + 8 * 16;
/// From a `ucontext_t` to each general register.
pub const CONTEXT_REGISTERS: [u64; COUNT] = [
    40 + 8 * 13, // rax
    40 + 8 * 12, // rdx
    40 + 8 * 14, // rcx
    40 + 8 * 11, // rbx
    40 + 8 * 9,  // rsi
    40 + 8 * 8,  // rdi
    40 + 8 * 10, // rbp
    40 + 8 * 15, // rsp
    40,          // r8
    40 + 8,
    40 + 8 * 2,
    40 + 8 * 3,
    40 + 8 * 4,
    40 + 8 * 5,
    40 + 8 * 6,
    40 + 8 * 7, // r15
];

/// Removes what the processor adds to a saved return address; nothing here.
#[inline]
#[must_use]
pub const fn strip(return_address: u64) -> u64 {
    return_address
}

/// Writes the registers as they are after the return from here, with the return address as pc.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn save(into: *mut Registers) {
    core::arch::naked_asm!(
        "mov [rdi], rax",
        "mov [rdi + 8], rdx",
        "mov [rdi + 16], rcx",
        "mov [rdi + 24], rbx",
        "mov [rdi + 32], rsi",
        "mov [rdi + 40], rdi",
        "mov [rdi + 48], rbp",
        "lea rax, [rsp + 8]",
        "mov [rdi + 56], rax",
        "mov [rdi + 64], r8",
        "mov [rdi + 72], r9",
        "mov [rdi + 80], r10",
        "mov [rdi + 88], r11",
        "mov [rdi + 96], r12",
        "mov [rdi + 104], r13",
        "mov [rdi + 112], r14",
        "mov [rdi + 120], r15",
        "mov rax, [rsp]",
        "mov [rdi + 128], rax",
        "ret",
    )
}

/// The address of the thread's control block: above the stack of a thread that libc created, in the
/// same mapping.
///
/// # Signal safety
/// One load.
#[inline]
#[must_use]
pub fn thread_block() -> u64 {
    let base: u64;
    // SAFETY: the ABI keeps the block's own address in its first word.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) base, options(nostack, preserves_flags, readonly));
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
            "syscall",
            inlateout("rax") PROBE => result,
            in("rdi") -1i64,
            in("rsi") set,
            in("rdx") 0,
            in("r10") 8,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack, readonly),
        );
    }
    result
}

/// The number of that call.
pub(crate) const PROBE: i64 = 14;

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
            "syscall",
            inlateout("rax") PROBE_BY_FUTEX => result,
            in("rdi") address & !3,
            in("rsi") REQUEUE_IF_SAME,
            in("rdx") 0,
            in("r10") 0,
            in("r8") address & !3,
            in("r9") 0,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack, readonly),
        );
    }
    result
}

/// The number of that call.
pub(crate) const PROBE_BY_FUTEX: i64 = 202;

/// What seccomp filters know this processor by: `AUDIT_ARCH_X86_64`.
pub const AUDIT_ARCHITECTURE: u32 = 0xc000_003e;
