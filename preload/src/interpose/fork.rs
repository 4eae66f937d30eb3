//! Children of fork. libc runs atfork handlers for forks of its own too (`daemon`, `forkpty`);
//! `_Fork` runs none, so it is wrapped.

use rsunwind::life::process;
use rsunwind::weak_address;

mod real {
    crate::next! {
        fn _Fork() -> i32 = -1;
    }
}

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const u8) -> i32;

unsafe extern "C" fn before() {
    process::before_fork();
}

unsafe extern "C" fn in_parent() {
    process::after_fork_in_parent();
}

unsafe extern "C" fn in_child() {
    process::after_fork_in_child();
}

/// Registers the handlers: glibc's `__register_atfork`, musl's `pthread_atfork` (which ignores the
/// fourth argument).
pub fn register() {
    let glibc = weak_address!("__register_atfork");
    let register = if glibc != 0 {
        glibc
    } else {
        weak_address!("pthread_atfork")
    };
    if register != 0 {
        // SAFETY: the program's function; null as the object means that the handlers are never
        // taken back.
        unsafe {
            core::mem::transmute::<usize, Register>(register)(
                Some(before),
                Some(in_parent),
                Some(in_child),
                core::ptr::null(),
            )
        };
    }
}

/// `_Fork(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> i32 {
    process::before_fork();
    // SAFETY: no arguments.
    let pid = unsafe { real::_Fork() };
    match pid {
        0 => process::after_fork_in_child(),
        _ => process::after_fork_in_parent(),
    }
    pid
}
