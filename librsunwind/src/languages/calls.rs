//! What callbacks call: the cursor that they are given brings these functions, so that an
//! interpreter links to nothing of ours. `include/rsunwind.h` has them under their names.
//!
//! # Safety
//! Pointers are null or the caller's, as the header says of each function.
#![allow(unsafe_code)]

use super::call;
use super::layout::{Code, Cursor, CursorFunctions};
use crate::error::Error;
use core::ffi::c_int;

/// Those of this runtime.
pub(super) static FUNCTIONS: CursorFunctions = CursorFunctions {
    size: size_of::<CursorFunctions>(),
    load,
    copy,
    frame,
    describe,
};

fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(Error::result, |()| 0)
}

/// `rsunwind_load`.
///
/// # Safety
/// See the header.
unsafe extern "C" fn load(cursor: *const Cursor, address: u64, word: *mut u64) -> c_int {
    // SAFETY: null or the caller's place.
    let Some(word) = (unsafe { word.as_mut() }) else {
        return Error::result(Error::Null);
    };
    // SAFETY: the caller's promise.
    status(unsafe { call::load(cursor, address) }.map(|loaded| *word = loaded))
}

/// `rsunwind_copy`.
///
/// # Safety
/// See the header.
unsafe extern "C" fn copy(cursor: *const Cursor, address: u64, to: *mut u8, size: usize) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { call::copy(cursor, address, to, size) })
}

/// `rsunwind_frame`.
///
/// # Safety
/// See the header.
unsafe extern "C" fn frame(cursor: *const Cursor, id: u64, check: u64, position: u32) -> c_int {
    // SAFETY: the caller's promise.
    let added = unsafe { call::frame(cursor, id, check, position) };
    added.map_or_else(Error::result, |is_described| c_int::from(!is_described))
}

/// `rsunwind_describe`.
///
/// # Safety
/// See the header.
unsafe extern "C" fn describe(cursor: *const Cursor, code: *const Code) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { call::describe(cursor, code) })
}
