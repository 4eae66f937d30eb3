//! x86-64: system calls, stacks. (The signal handler's shim is in
//! [`crate::shim`].)
//!
//! # Safety
//! Assembly, called as ordinary C.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm, naked_asm};
use core::ffi::c_void;
use engine::registers::Registers;

/// ELF machine of this architecture.
pub const MACHINE: u32 = 62;

/// A raw system call: the result, or minus errno. errno itself is not touched.
///
/// # Safety
/// As the system call.
#[inline]
pub unsafe fn syscall6(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let result: isize;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; what the call does is the caller's
    // business.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

// The signal restorer, byte for byte what unwinders and debuggers recognise as the end of a signal
// handler. The call does not come back, unless a program has system calls handed over to it
// (PR_SET_SYSCALL_USER_DISPATCH) without our having seen that: when it is done with this one, the
// call is made again.
global_asm!(
    ".pushsection .text.rsunwind_restorer,\"ax\",@progbits",
    ".hidden rsunwind_restorer",
    ".globl rsunwind_restorer",
    ".type rsunwind_restorer, @function",
    "nop",
    "rsunwind_restorer:",
    "mov rax, 15",
    "syscall",
    "jmp rsunwind_restorer",
    ".size rsunwind_restorer, . - rsunwind_restorer",
    ".popsection",
);

unsafe extern "C" {
    fn rsunwind_restorer();
}

/// `sa_restorer` for our actions.
pub fn restorer() -> usize {
    rsunwind_restorer as *const () as usize
}

/// Where the interrupted signal mask lies in the kernel's `struct ucontext`.
pub const CONTEXT_MASK: usize = 296;

/// Whether a thread was interrupted right behind an `rt_sigprocmask` that may have let signals in:
/// the processor left the next instruction in rcx, the kernel its result in rax and the arguments
/// where they were.
///
/// # Signal safety
/// Compares only.
pub fn has_just_set_mask(registers: &Registers) -> bool {
    let [rax, _, rcx, _, _, rdi, _, _, _, _, r10, ..] = registers.general;
    let how = [libc::SIG_UNBLOCK, libc::SIG_SETMASK].map(|how| how as u64);
    rax == 0 && rcx == registers.pc && r10 == 8 && how.contains(&rdi)
}

/// The current stack pointer.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nostack, preserves_flags, nomem)) };
    sp
}

/// Whether valgrind runs this code: its client request `RUNNING_ON_VALGRIND`, which on a processor
/// is four rotations that cancel out.
#[must_use]
pub fn is_in_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let mut depth = 0u64;
    // SAFETY: no register but the answer's changes, and memory is only read.
    unsafe {
        asm!("rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx", in("rax") request.as_ptr(),
             inlateout("rdx") depth, options(nostack, readonly));
    }
    depth != 0
}

/// Calls `function(argument)` on a stack of its own, from ordinary code. Gives 1 if it came back, 0
/// if [`abandon_call`] cut it short. The place to come back to is kept in `slot`.
///
/// # Safety
/// `stack_top` is the 16-byte aligned end of writable memory that nothing else uses meanwhile.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on_stack(
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    stack_top: usize,
    slot: *mut usize,
) -> usize {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov qword ptr [rcx], rsp",
        "mov rbx, rcx",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsp, rdx",
        "call rax",
        "mov rsp, qword ptr [rbx]",
        "mov eax, 1",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Cuts short the call in progress of [`call_on_stack`] whose slot held `saved_sp`.
///
/// # Safety
/// Only from code below that call.
#[unsafe(naked)]
pub unsafe extern "C" fn abandon_call(saved_sp: usize) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        "xor eax, eax",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret"
    )
}

/// Reads a weak symbol's address: 0 where no loaded library has it. In assembly because the
/// compiler would take the address of a declared function to be non-null.
#[macro_export]
macro_rules! weak_address {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: loads an entry of our own global offset table.
        unsafe {
            core::arch::asm!(concat!(".weak ", $name), concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                 out(reg) address, options(nostack, preserves_flags, pure, readonly));
        }
        address
    }};
}
