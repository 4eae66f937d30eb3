//! `pthread_cancel`: libc sets its handler for it at the first call.
//!
//! Not here: what is done about that handler ([`super::handlers`]).

use super::handlers;
use core::ffi::{c_int, c_ulong};
use rsunwind::process::PROCESS;

mod real {
    use super::{c_int, c_ulong};
    crate::next! {
        fn pthread_cancel(thread: c_ulong) -> c_int = libc::ENOSYS;
    }
}

/// `pthread_cancel(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cancel(thread: c_ulong) -> c_int {
    // SAFETY: the caller's argument.
    let result = unsafe { real::pthread_cancel(thread) };
    if PROCESS.is_active() {
        handlers::adopt_cancellation();
    }
    result
}
