//! The C interface to languages: what `include/rsunwind.h` declares, for the library that is
//! preloaded and the one that is linked.
//!
//! Errors are negative error numbers. Nothing here sets errno.
//!
//! # Safety
//! Pointers are null or the caller's, as the header says of each function.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::languages::layout::{Counts, JitCode, Language};
use crate::languages::{jit, table};
use core::ffi::{c_int, c_void};

fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(Error::result, |()| 0)
}

/// `rsunwind_language_add`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn language_add(language: *const Language) -> c_int {
    // SAFETY: null or the caller's.
    let Some(language) = (unsafe { language.as_ref() }) else {
        return Error::Null.result();
    };
    // SAFETY: the caller's promise.
    unsafe { table::add(language) }.unwrap_or_else(Error::result)
}

/// `rsunwind_language_remove`.
pub extern "C" fn language_remove(language: c_int) -> c_int {
    status(table::remove(language))
}

/// `rsunwind_language_cover`.
pub extern "C" fn language_cover(language: c_int, start: *const c_void, size: usize) -> c_int {
    let start = start.addr() as u64;
    status(table::cover(
        language,
        start,
        start.saturating_add(size as u64),
        true,
    ))
}

/// `rsunwind_language_uncover`.
pub extern "C" fn language_uncover(language: c_int, start: *const c_void, size: usize) -> c_int {
    let start = start.addr() as u64;
    status(table::cover(
        language,
        start,
        start.saturating_add(size as u64),
        false,
    ))
}

/// `rsunwind_jit_add`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn jit_add(code: *const JitCode) -> c_int {
    // SAFETY: null or the caller's.
    let Some(code) = (unsafe { code.as_ref() }) else {
        return Error::Null.result();
    };
    // SAFETY: the caller's promise.
    status(unsafe { jit::add(code) })
}

/// `rsunwind_jit_remove`.
pub extern "C" fn jit_remove(start: *const c_void) -> c_int {
    status(jit::remove(start.addr() as u64))
}

/// `rsunwind_language_counts`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn language_counts(language: c_int, counts: *mut Counts) -> c_int {
    // SAFETY: null or the caller's place.
    let Some(place) = (unsafe { counts.as_mut() }) else {
        return Error::Null.result();
    };
    status(table::counts(language).map(|counts| *place = counts))
}
