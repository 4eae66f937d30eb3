//! The word of each thread, in thread-local storage.
//!
//! # Safety
//! Assembly.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};
use core::ffi::c_void;

// In the static TLS block (initial-exec: no lazy allocation, legal in a handler).
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".hidden rsunwind_thread_word",
    ".globl rsunwind_thread_word",
    "rsunwind_thread_word: .zero 8",
    ".size rsunwind_thread_word, 8",
    ".type rsunwind_thread_word, @object",
    ".popsection",
);

/// This thread's word: where its state is ([`crate::thread`]), or null for a thread that is not
/// ours to sample.
///
/// # Signal safety
/// One load from static TLS.
#[inline]
pub fn thread_word() -> *mut c_void {
    let pointer: *mut c_void;
    // SAFETY: reads this thread's word of the static TLS block declared above.
    unsafe {
        asm!("mov {p}, qword ptr [rip + rsunwind_thread_word@gottpoff]", "mov {p}, qword ptr fs:[{p}]",
             p = out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// Sets what [`thread_word`] gives on this thread.
#[inline]
pub fn set_thread_word(pointer: *mut c_void) {
    // SAFETY: writes this thread's word of the static TLS block declared above.
    unsafe {
        asm!("mov {t}, qword ptr [rip + rsunwind_thread_word@gottpoff]", "mov qword ptr fs:[{t}], {p}",
             t = out(reg) _, p = in(reg) pointer, options(nostack, preserves_flags));
    }
}
