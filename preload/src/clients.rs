//! The C interface to clients: what `include/rsunwind.h` declares, for programs that have this library preloaded or are linked with it.
//!
//! Errors are negative error numbers. Nothing here sets errno.

use core::ffi::{c_char, c_int, c_void};
use engine::registers::Registers;
use rsunwind::clients::{Callback, Counts, Error, backtrace, broker};

/// `rsunwind_register`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsunwind_register(callback: Option<Callback>, data: *mut c_void) -> c_int {
    let Some(callback) = callback else {
        return failure(Error::Null);
    };
    // SAFETY: the caller's promise.
    unsafe { broker::register(callback, data) }.unwrap_or_else(failure)
}

/// `rsunwind_unregister`.
#[unsafe(no_mangle)]
extern "C" fn rsunwind_unregister(client: c_int) -> c_int {
    broker::unregister(client).map_or_else(failure, |()| 0)
}

/// `rsunwind_request`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsunwind_request(client: c_int, nonce: *mut u64) -> c_int {
    let asked = match broker::request(client) {
        Ok(asked) => asked,
        Err(error) => return failure(error),
    };
    // SAFETY: null or the caller's place.
    if let Some(place) = unsafe { nonce.as_mut() } {
        *place = asked.nonce;
    }
    c_int::from(asked.already)
}

/// `rsunwind_backtrace`.
#[unsafe(no_mangle)]
#[inline(never)]
unsafe extern "C" fn rsunwind_backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int {
    let registers = Registers::capture();
    if size <= 0 {
        return 0;
    }
    if buffer.is_null() {
        return failure(Error::Null);
    }
    // SAFETY: the caller's array of that many addresses.
    let out = unsafe { core::slice::from_raw_parts_mut(buffer.cast::<usize>(), size as usize) };
    backtrace::backtrace(&registers, out).map_or_else(failure, |count| count as c_int)
}

/// `rsunwind_counts`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsunwind_counts(counts: *mut Counts) -> c_int {
    // SAFETY: null or the caller's place.
    match unsafe { counts.as_mut() } {
        Some(place) => *place = broker::counts(),
        None => return failure(Error::Null),
    }
    0
}

/// `rsunwind_error`.
#[unsafe(no_mangle)]
extern "C" fn rsunwind_error(result: c_int) -> *const c_char {
    let words = if result >= 0 {
        c"no error"
    } else {
        Error::from_number(result.wrapping_neg()).map_or(c"unknown error", Error::words)
    };
    words.as_ptr()
}

fn failure(error: Error) -> c_int {
    error.number().wrapping_neg()
}
