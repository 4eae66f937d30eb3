//! `sigaltstack`: where the program has set no alternate stack the kernel has the one that our
//! handler uses ([`rsunwind::thread::handler_stack`]). The program is told what it has set; what it
//! sets is set.

use core::ffi::c_int;
use rsunwind::process::PROCESS;
use rsunwind::thread::{ThreadState, handler_stack};

mod real {
    use super::c_int;
    crate::next! {
        fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int = -1;
    }
}

/// `sigaltstack(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { asked(new, old, real::sigaltstack) }
}

/// Has `ask` do it, which looks at the arguments first, and mends what it gives.
///
/// # Safety
/// As the system call.
pub unsafe fn asked(
    new: *const libc::stack_t,
    old: *mut libc::stack_t,
    ask: unsafe extern "C" fn(*const libc::stack_t, *mut libc::stack_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { ask(new, old) };
    if result != 0 {
        return result;
    }
    // SAFETY: null, or the kernel has just written it.
    if let Some(old) = unsafe { old.as_mut() } {
        handler_stack::hide(old);
    }
    if let (false, true, Some(this)) = (new.is_null(), PROCESS.is_active(), ThreadState::current())
    {
        this.handler_stack.lend_if_free();
    }
    result
}
