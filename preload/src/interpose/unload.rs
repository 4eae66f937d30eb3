//! `dlclose`: no handler reads a library's tables while they are unmapped.

use core::ffi::{c_int, c_void};
use rsunwind::modules::unloading;
use rsunwind::process::PROCESS;
use rsunwind::{clients, languages};

mod real {
    use super::{c_int, c_void};
    crate::next! {
        fn dlclose(handle: *mut c_void) -> c_int = -1;
    }
}

/// `dlclose(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    if !PROCESS.is_active() && !clients::is_prepared() {
        // SAFETY: the caller's argument.
        return unsafe { real::dlclose(handle) };
    }
    let Some(unloading) = unloading::begin(handle) else {
        // A handler did not finish in time (a stopped thread): the library stays, which harms
        // nobody.
        return 0;
    };
    let result = if languages::let_go() {
        // SAFETY: the caller's argument.
        unsafe { real::dlclose(handle) }
    } else {
        0 // as above
    };
    unloading.end();
    result
}
