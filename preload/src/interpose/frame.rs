//! The frame in which a function of the host is called with our signal held back. A thread that is cancelled there, or thrown out of it, unwinds
//! through this frame, which lets the signal in.
//!
//! A compiler would give the frame a landing pad; with panic=abort it is one that aborts. So the frame has a personality routine and nothing
//! else: the unwinder calls it, and goes on.

use super::shield::Shield;
use core::ffi::{c_int, c_void};

/// Calls a function that [`crate::next!`] declares in `host`, through the frame; up to seven arguments, each of a register's size or less.
macro_rules! call {
    ($host:ident::$name:ident($($argument:expr),*)) => {
        match $host::next::$name.address() {
            Some(function) => $crate::interpose::frame::call_with(function, [$($argument as usize),*]) as _,
            None => $host::$name($($argument),*),
        }
    };
}
pub(super) use call;

/// # Safety
/// As the function, which takes these arguments or fewer.
#[inline(always)]
pub unsafe fn call_with<const N: usize>(function: usize, arguments: [usize; N]) -> isize {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { rsunwind_call(function, at(0), at(1), at(2), at(3), at(4), at(5), at(6)) }
}

#[unsafe(naked)]
unsafe extern "C" fn rsunwind_call(
    function: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    g: usize,
) -> isize {
    core::arch::naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}", // relative to the place, four bytes
        "endbr64",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 8",
        "push qword ptr [rbp + 24]", // the seventh argument
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov rcx, r8",
        "mov r8, r9",
        "mov r9, qword ptr [rbp + 16]",
        "call rax",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        personality = sym personality,
    )
}

/// What the unwinder asks of the frame ("Itanium C++ ABI: Exception Handling", 1.6): nothing is caught here.
extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    _exception: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    const CLEANUP_PHASE: c_int = 2;
    const CONTINUE_UNWIND: c_int = 8;
    if actions & CLEANUP_PHASE != 0 {
        Shield::open();
    }
    CONTINUE_UNWIND
}
