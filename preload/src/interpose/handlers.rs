//! The program's handlers of other signals. They are entered through [`entry`], which lets our signal in first: a call that holds it back
//! would otherwise hold it back in the handler too, with all that is called, started and replaced from there.
//!
//! The entry leaves nothing on the stack: the handler sees what the kernel gave it, and may leave as it likes. When it returns, the kernel
//! restores the mask that the call had.
//!
//! Not here: how actions are set and read back ([`super::signals`]).

use super::shield::Shield;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rsunwind::sys;
use rsunwind::trigger::SIGNAL;

/// What the program wants called for each signal.
static HANDLERS: [AtomicUsize; 65] = [const { AtomicUsize::new(0) }; 65];

/// The first of the signals that libc keeps for itself, and the last one.
const OF_LIBC: core::ops::RangeInclusive<c_int> = 32..=33;

fn of(signal: c_int) -> Option<&'static AtomicUsize> {
    HANDLERS.get(usize::try_from(signal).ok()?)
}

/// Whether an action calls a function.
const fn is_function(handler: usize) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN) && handler != usize::MAX
}

/// A handler that is about to be set: gives what to set instead, and remembers it.
pub fn hide(signal: c_int, handler: usize) -> usize {
    let is_ours = handler == entry as *const () as usize;
    match of(signal).filter(|_| is_function(handler) && !is_ours) {
        Some(place) => {
            place.store(handler, Relaxed);
            entry as *const () as usize
        }
        None => handler,
    }
}

/// What the program knows of a handler that is set.
pub fn shown(signal: c_int, handler: usize) -> usize {
    match of(signal) {
        Some(place) if handler == entry as *const () as usize => place.load(Relaxed),
        _ => handler,
    }
}

/// What [`shown`] would give, to be put back should setting another one fail.
pub fn known(signal: c_int) -> usize {
    of(signal).map_or(0, |place| place.load(Relaxed))
}

/// Forgets a handler that could not be set.
pub fn put_back(signal: c_int, known: usize) {
    if let Some(place) = of(signal) {
        place.store(known, Relaxed);
    }
}

/// Takes over the handlers that were set before us, by constructors of libraries.
pub fn adopt() {
    for signal in (1..=64).filter(|signal| *signal != SIGNAL && !OF_LIBC.contains(signal)) {
        let Ok(action) = sys::signal_action(signal, None) else {
            continue;
        };
        let known = known(signal);
        let handler = hide(signal, action.handler);
        if handler != action.handler {
            let action = sys::KernelAction { handler, ..action };
            if sys::signal_action(signal, Some(&action)).is_err() {
                put_back(signal, known);
            }
        }
    }
}

/// libc's handler by which threads are cancelled, which is there from the first time on: it does not return, and what the thread does then is
/// to be sampled.
pub fn adopt_cancellation() {
    let signal = *OF_LIBC.start();
    if let Ok(action) = sys::signal_action(signal, None) {
        let handler = hide(signal, action.handler);
        if handler != action.handler && is_function(action.handler) {
            let action = sys::KernelAction { handler, ..action };
            let _ = sys::signal_action(signal, Some(&action));
        }
    }
}

/// For the kernel to call, as the handler of any signal.
#[unsafe(naked)]
unsafe extern "C" fn entry(signal: c_int, info: *mut c_void, context: *mut c_void) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx", // 16-byte aligned again: the kernel enters with rsp = 8 modulo 16
        ".cfi_adjust_cfa_offset 8",
        "call {prepare}",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        ".cfi_endproc",
        prepare = sym prepare,
    )
}

extern "C" fn prepare(signal: c_int) -> usize {
    Shield::open();
    known(signal)
}
