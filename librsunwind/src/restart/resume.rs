//! Where a thread makes the rest of a call that our signal has cut short, and from where it goes
//! back to behind the call's instruction, with what the whole has come to. Nothing of it is there
//! before a call was cut short: the handler lays a [`Rest`] on the thread's stack, below what
//! belongs to the interrupted function, and sends the thread here.
//!
//! What is left is made by a call of its own ([`made`]); a vector of which a piece is half done, by
//! two. Where a socket's time limit counts from the beginning of the first call, the thread waits
//! first ([`waited`]), no longer than what is left of it. A thread that gets back has all registers
//! as they would be behind the program's own instruction, but for rcx and r11, which are nobody's
//! there: by them it would look as if the instruction had just been ended. To unwinders this is a
//! function that the interrupted one has called; a signal of the program's may leave it like any
//! other.
//!
//! # Safety
//! Assembly. Entered by the handler only, with the stack pointer at a [`Rest`].
#![allow(unsafe_code)]

use super::transfers::Piece;
use core::arch::global_asm;
use core::mem::offset_of;

/// Bytes below the stack pointer that belong to the interrupted function.
pub(crate) const RED_ZONE: u64 = 128;

/// What is left of a call, on the thread's stack.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Rest {
    /// Behind the program's own instruction.
    pub pc: u64,
    pub flags: u64,
    /// The arguments of the program's call, which libc may look at.
    pub kept: [u64; 6],
    /// What is done.
    pub done: u64,
    /// How much the call that is under way is to do.
    pub expected: u64,
    /// The call that is under way, or that follows the wait.
    pub number: u64,
    pub call: [u64; 6],
    /// The pieces that follow it, in the place of its second and third argument, or in the header.
    pub next: Piece,
    pub is_message: u64,
    /// What comes in is to be waited for until all of it is there.
    pub waits_for_all: u64,
    /// A `struct pollfd`.
    pub poll: [u32; 2],
    /// Where the time is that a wait may take at most, or 0.
    pub limit: u64,
    /// What the call gives where that is over.
    pub too_late: u64,
    pub time: [u64; 2],
    pub piece: Piece,
    /// A `struct msghdr`.
    pub header: [u64; 7],
    /// The signals that are blocked while the call waits, if ours is one of them; else 0.
    pub mask: u64,
    /// Where that is, and its size, as `pselect6` takes it.
    pub set: [u64; 2],
}

/// From the [`Rest`] to the stack pointer of the interrupted function.
const DEPTH: u64 = size_of::<Rest>() as u64 + RED_ZONE;

/// Where a [`Rest`] of a function with that stack pointer lies.
pub(crate) const fn place(sp: u64) -> u64 {
    sp.wrapping_sub(DEPTH)
}

unsafe extern "C" {
    fn rsunwind_rest_made();
    fn rsunwind_rest_waited();
}

/// Right behind the instruction that makes what is left.
pub(crate) fn made() -> u64 {
    rsunwind_rest_made as *const () as u64
}

/// Right behind the one that waits.
pub(crate) fn waited() -> u64 {
    rsunwind_rest_waited as *const () as u64
}

global_asm!(
    ".pushsection .text.rsunwind_rest,\"ax\",@progbits",
    ".globl rsunwind_rest",
    ".hidden rsunwind_rest",
    ".type rsunwind_rest, @function",
    ".globl rsunwind_rest_made",
    ".hidden rsunwind_rest_made",
    ".globl rsunwind_rest_waited",
    ".hidden rsunwind_rest_waited",
    "rsunwind_rest:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, {depth}",
    ".cfi_offset rip, -{depth}",
    "2:", // make the call
    "mov rdi, [rsp + {call}]",
    "mov rsi, [rsp + {call} + 8]",
    "mov rdx, [rsp + {call} + 16]",
    "mov r10, [rsp + {call} + 24]",
    "mov r8, [rsp + {call} + 32]",
    "mov r9, [rsp + {call} + 40]",
    "mov rax, [rsp + {number}]",
    "syscall",
    "rsunwind_rest_made:",
    "test rax, rax",
    "jle 6f",
    "add [rsp + {done}], rax",
    "cmp qword ptr [rsp + {waits_for_all}], 0",
    "jne 4f",
    "cmp rax, [rsp + {expected}]",
    "jne 8f",
    "mov rax, [rsp + {next} + 8]",
    "test rax, rax",
    "jz 8f",
    "mov rcx, [rsp + {next}]",
    "mov qword ptr [rsp + {next} + 8], 0",
    "mov qword ptr [rsp + {expected}], 0",
    "cmp qword ptr [rsp + {is_message}], 0",
    "jne 3f",
    "mov [rsp + {call} + 8], rcx",
    "mov [rsp + {call} + 16], rax",
    "jmp 2b",
    "3:",
    "mov [rsp + {header} + 16], rcx",
    "mov [rsp + {header} + 24], rax",
    "jmp 2b",
    "4:", // some of what was to come
    "add [rsp + {call} + 8], rax",
    "sub [rsp + {call} + 16], rax",
    "jnz 5f",
    "11:", // the next piece that is not empty
    "cmp qword ptr [rsp + {next} + 8], 0",
    "je 8f",
    "mov rcx, [rsp + {next}]",
    "mov rax, [rcx]",
    "mov [rsp + {call} + 8], rax",
    "mov rax, [rcx + 8]",
    "mov [rsp + {call} + 16], rax",
    "add qword ptr [rsp + {next}], 16",
    "dec qword ptr [rsp + {next} + 8]",
    "test rax, rax",
    "jz 11b",
    "5:", // wait
    "lea rdi, [rsp + {poll}]",
    "mov esi, 1",
    "mov rdx, [rsp + {limit}]",
    "xor r10d, r10d",
    "mov r8d, 8",
    "mov eax, {ppoll}",
    "syscall",
    "rsunwind_rest_waited:",
    "test rax, rax",
    "js 7f",
    "mov rax, [rsp + {too_late}]",
    "jz 7f",
    "cmp qword ptr [rsp + {waits_for_all}], 0",
    "je 2b",
    "test byte ptr [rsp + {poll} + 6], {pollerr}", // the error stays for the program's next call
    "jz 2b",
    "jmp 8f",
    "6:", // an error, or nothing more
    "jz 8f",
    "cmp qword ptr [rsp + {waits_for_all}], 0",
    "je 9f",
    "cmp rax, -{eagain}",
    "je 5b",
    "jmp 7f",
    "9:",
    "lea rcx, [rax + {last_of_network}]", // what has become of a connection is told once
    "cmp rcx, {of_network}",
    "jbe 10f",
    "7:",
    "cmp qword ptr [rsp + {done}], 0",
    "je 10f",
    "8:",
    "mov rax, [rsp + {done}]",
    "10:",
    "mov rdi, [rsp + {kept}]",
    "mov rsi, [rsp + {kept} + 8]",
    "mov rdx, [rsp + {kept} + 16]",
    "mov r10, [rsp + {kept} + 24]",
    "mov r8, [rsp + {kept} + 32]",
    "mov r9, [rsp + {kept} + 40]",
    "mov r11, [rsp]",
    "xor ecx, ecx",
    "push qword ptr [rsp + {flags}]",
    ".cfi_adjust_cfa_offset 8",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "lea rsp, [rsp + {depth}]",
    ".cfi_def_cfa rsp, 0",
    ".cfi_register rip, r11",
    "jmp r11",
    ".cfi_endproc",
    ".size rsunwind_rest, . - rsunwind_rest",
    ".popsection",
    depth = const DEPTH,
    call = const offset_of!(Rest, call),
    number = const offset_of!(Rest, number),
    done = const offset_of!(Rest, done),
    expected = const offset_of!(Rest, expected),
    next = const offset_of!(Rest, next),
    is_message = const offset_of!(Rest, is_message),
    header = const offset_of!(Rest, header),
    waits_for_all = const offset_of!(Rest, waits_for_all),
    poll = const offset_of!(Rest, poll),
    limit = const offset_of!(Rest, limit),
    too_late = const offset_of!(Rest, too_late),
    kept = const offset_of!(Rest, kept),
    flags = const offset_of!(Rest, flags),
    ppoll = const libc::SYS_ppoll,
    pollerr = const libc::POLLERR,
    eagain = const libc::EAGAIN,
    last_of_network = const libc::EHOSTUNREACH,
    of_network = const libc::EHOSTUNREACH - libc::ENETDOWN,
);
