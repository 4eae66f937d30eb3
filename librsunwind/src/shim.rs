//! The outermost frame of the signal handler: how the kernel comes in, and how it is left from
//! anywhere below.
//!
//! # Safety
//! Assembly. It is entered by the kernel on whatever stack the thread is on, and leaves through the
//! restorer.
#![allow(unsafe_code)]

use crate::arch;
use crate::handler;
use crate::program_signal;
use crate::signal;
use crate::sys::{self, Errno, KernelAction};
use crate::thread::{ThreadState, handler_stack};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;

/// Installs the handler for one of the two signals, remembering the action before as the program's.
///
/// # Errors
/// As `rt_sigaction`; `EPERM` where the process is not sampled any more.
pub fn install(signal: i32) -> Result<(), Errno> {
    if signal::is_given_up() {
        return Err(Errno(libc::EPERM));
    }
    let remember = |before: KernelAction| {
        if before.handler != entry() {
            program_signal::set_action(signal, before);
        }
    };
    // First: from then on the program's own signals come to us, and would end it if it had no
    // handler.
    remember(sys::signal_action(signal, None)?);
    remember(sys::signal_action(signal, Some(&own_action()))?);
    signal::take(signal);
    Ok(())
}

/// Puts the action back that was there before [`install`], if ours stands.
///
/// # Errors
/// As `rt_sigaction`; `EBUSY` if the program has set another meanwhile: it may have kept ours, and
/// set it again.
#[cfg(feature = "inside")]
pub fn remove(signal: i32) -> Result<(), Errno> {
    if sys::signal_action(signal, None)?.handler == entry() {
        sys::signal_action(signal, Some(&program_signal::action(signal)))?;
    } else if signal::is_taken(signal) {
        return Err(Errno(libc::EBUSY));
    }
    signal::leave(signal);
    Ok(())
}

fn entry() -> usize {
    signal_entry as *const () as usize
}

/// The action that the runtime installs.
fn own_action() -> KernelAction {
    let flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    KernelAction {
        handler: entry(),
        flags: flags as u64 | sys::SA_RESTORER,
        restorer: arch::restorer(),
        mask: sys::ALL_BUT_FAULTS,
    }
}

/// The signal handler. It comes in on the thread's own stack for it ([`handler_stack`]); where the
/// program has set an alternate stack, on that one, of which it uses about a hundred bytes (it may
/// be of 8 KB) before it goes over. [`handler::on_signal`] gives 0, or the program's own handler,
/// which is then entered as if the kernel had called it: under the mask that it wants, on the
/// original stack, from which it may even `siglongjmp`.
///
/// # Signal safety
/// This is the handler.
///
/// # Safety
/// For the kernel to call.
#[unsafe(naked)]
pub unsafe extern "C" fn signal_entry(signal: c_int, info: *mut c_void, context: *mut c_void) {
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx", // 16-byte aligned again: the kernel enters with rsp = 8 modulo 16
        #[cfg(not(feature = "inside"))]
        "mov rcx, qword ptr [rip + rsunwind_thread_word@gottpoff]",
        #[cfg(not(feature = "inside"))]
        "mov rcx, qword ptr fs:[rcx]",
        #[cfg(feature = "inside")]
        "call {word_for}",
        #[cfg(feature = "inside")]
        "mov rcx, rax",
        #[cfg(feature = "inside")]
        "mov rdx, qword ptr [rsp]",
        #[cfg(feature = "inside")]
        "mov rsi, qword ptr [rsp + 8]",
        #[cfg(feature = "inside")]
        "mov rdi, qword ptr [rsp + 16]",
        "test rcx, rcx",
        "jz 2f",
        "mov r8, qword ptr [rcx + {stack_top}]",
        "test r8, r8", // zero where the state was wiped: the child of a fork that nobody told us of
        "jz 2f",
        "mov qword ptr [rcx + {saved_sp}], rsp",
        "mov r9, r8",
        "sub r9, rsp",
        "cmp r9, {stack_size}",
        "jbe 5f", // lent to the kernel, which has entered there
        "mov rsp, r8",
        "5:",
        #[cfg(feature = "inside")]
        "push rcx",
        #[cfg(feature = "inside")]
        "push rcx",
        "call {on_signal}",
        #[cfg(feature = "inside")]
        "pop rcx",
        #[cfg(not(feature = "inside"))]
        "mov rcx, qword ptr [rip + rsunwind_thread_word@gottpoff]",
        #[cfg(not(feature = "inside"))]
        "mov rcx, qword ptr fs:[rcx]",
        "mov rsp, qword ptr [rcx + {saved_sp}]",
        "test rax, rax",
        "jz 3f",
        "cmp qword ptr [rcx + {sets_mask}], 0",
        "je 3f",
        "push rax",
        "lea rsi, [rcx + {program_mask}]",
        "mov edi, {set_mask}",
        "xor edx, edx",
        "mov r10d, 8",
        "mov eax, {rt_sigprocmask}",
        "syscall",
        "pop rax",
        "jmp 3f",
        "2:",
        "call {on_stray_signal}",
        "3:",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        "4:",
        "ret",
        saved_sp = const offset_of!(ThreadState, shim.saved_sp),
        stack_size = const handler_stack::SIZE,
        stack_top = const offset_of!(ThreadState, shim.stack_top),
        program_mask = const offset_of!(ThreadState, shim.program_mask),
        sets_mask = const offset_of!(ThreadState, shim.sets_mask),
        set_mask = const libc::SIG_SETMASK,
        rt_sigprocmask = const libc::SYS_rt_sigprocmask,
        #[cfg(feature = "inside")]
        word_for = sym handler::word_for,
        on_signal = sym handler::on_signal,
        on_stray_signal = sym handler::on_stray_signal,
    )
}

/// Leaves the handler from any depth below [`signal_entry`]: the sample is given up, the program
/// goes on. The kernel restores every register when the handler returns, so nothing needs
/// unwinding.
///
/// # Safety
/// Only from code that runs below [`handler::on_signal`] on this thread.
#[unsafe(naked)]
pub unsafe extern "C" fn abandon_handler() -> ! {
    naked_asm!(
        #[cfg(not(feature = "inside"))]
        "mov rcx, qword ptr [rip + rsunwind_thread_word@gottpoff]",
        #[cfg(not(feature = "inside"))]
        "mov rcx, qword ptr fs:[rcx]",
        #[cfg(feature = "inside")]
        "and rsp, -16",
        #[cfg(feature = "inside")]
        "call {thread_word}",
        #[cfg(feature = "inside")]
        "mov rcx, rax",
        "mov rsp, qword ptr [rcx + {saved_sp}]",
        "add rsp, 24",
        "ret",
        #[cfg(feature = "inside")]
        thread_word = sym crate::thread::outside::word,
        saved_sp = const offset_of!(ThreadState, shim.saved_sp),
    )
}

/// The safety net: called when our code finds that it would panic. Gives the sample up and goes on
/// with the program if the handler is running; else does nothing, and the caller must find another
/// way.
pub fn give_up_sample() {
    if let Some(this) = ThreadState::current_unchecked() {
        let in_handler = this.shared.is_walking();
        this.requests.abandon();
        let slot = this.shim.call_slot.get();
        if slot != 0 {
            this.shared.abandon_walk();
            // SAFETY: `entry::serve_here` waits for the call that this runs below.
            unsafe { arch::abandon_call(slot) };
        }
        if in_handler {
            this.disarm();
            this.shared.abandon_walk();
            // SAFETY: a walk is under way, so this runs below `on_signal`.
            unsafe { abandon_handler() };
        }
    }
}
