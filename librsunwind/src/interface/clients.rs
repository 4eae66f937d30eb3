//! The C interface to clients: what `include/rsunwind.h` declares, for the library that is
//! preloaded and the one that is linked.
//!
//! Errors are negative error numbers. Nothing here sets errno.
//!
//! # Safety
//! Pointers are null or the caller's, as the header says of each function.
#![allow(unsafe_code)]

use crate::clients::api::Asked;
use crate::clients::{
    CLIENTS, Callback, Counts, Error, backtrace as walk, broker, counts as counted,
};
use core::ffi::{c_char, c_int, c_void};
use engine::registers::Registers;

/// `rsunwind_register`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn register(callback: Option<Callback>, data: *mut c_void) -> c_int {
    let Some(callback) = callback else {
        return Error::Null.result();
    };
    // SAFETY: the caller's promise.
    unsafe { broker::register(callback, data) }.unwrap_or_else(Error::result)
}

/// `rsunwind_unregister`.
pub extern "C" fn unregister(client: c_int) -> c_int {
    broker::unregister(client).map_or_else(Error::result, |()| 0)
}

/// `rsunwind_request`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn request(client: c_int, nonce: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { told(broker::request(client), nonce) }
}

/// `rsunwind_request_all`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn request_all(
    clients: *const c_int,
    count: usize,
    nonce: *mut u64,
) -> c_int {
    if clients.is_null() || count > CLIENTS {
        return Error::Null.result();
    }
    // SAFETY: the caller's array of so many.
    let clients = unsafe { core::slice::from_raw_parts(clients, count) };
    // SAFETY: the caller's promise.
    unsafe { told(broker::request_all(clients), nonce) }
}

/// `rsunwind_request_later`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn request_later(client: c_int, nonce: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { told(broker::request_later(client), nonce) }
}

/// `rsunwind_answer`.
pub extern "C" fn answer() -> c_int {
    broker::answer().map_or_else(Error::result, |()| 0)
}

/// `rsunwind_nonce`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn nonce(nonce: *mut u64) -> c_int {
    // SAFETY: null or the caller's place.
    let Some(place) = (unsafe { nonce.as_mut() }) else {
        return Error::Null.result();
    };
    broker::nonce().map_or_else(Error::result, |nonce| {
        *place = nonce;
        0
    })
}

/// Tells what has become of a request.
///
/// # Safety
/// `nonce` is null or the caller's place.
unsafe fn told(asked: Result<Asked, Error>, nonce: *mut u64) -> c_int {
    asked.map_or_else(Error::result, |asked| {
        // SAFETY: the caller's promise.
        if let Some(place) = unsafe { nonce.as_mut() } {
            *place = asked.nonce;
        }
        c_int::from(asked.already)
    })
}

/// `rsunwind_backtrace`.
///
/// # Safety
/// See the header.
#[inline(never)]
pub unsafe extern "C" fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int {
    let registers = Registers::capture();
    if size <= 0 {
        return 0;
    }
    if buffer.is_null() {
        return Error::Null.result();
    }
    // SAFETY: the caller's array of that many addresses.
    let out = unsafe { core::slice::from_raw_parts_mut(buffer.cast::<usize>(), size as usize) };
    walk::backtrace(&registers, out).map_or_else(Error::result, |count| count as c_int)
}

/// `rsunwind_counts`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn counts(counts: *mut Counts) -> c_int {
    // SAFETY: null or the caller's place.
    match unsafe { counts.as_mut() } {
        Some(place) => *place = counted::counts(),
        None => return Error::Null.result(),
    }
    0
}

/// `rsunwind_error`.
pub extern "C" fn error(result: c_int) -> *const c_char {
    let words = if result >= 0 {
        c"no error"
    } else {
        Error::from_number(result.wrapping_neg()).map_or(c"unknown error", Error::words)
    };
    words.as_ptr()
}
