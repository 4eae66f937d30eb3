//! The C interface to labels of regions: what `include/rsunwind.h` declares, for the library that
//! is preloaded and the one that is linked.
//!
//! Errors are negative error numbers. Nothing here sets errno.
//!
//! # Safety
//! Pointers are null or the caller's, as the header says of each function.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::regions::{self, Label};
use core::ffi::c_int;
use core::slice;

/// `rsunwind_region_begin`.
///
/// # Safety
/// See the header.
pub unsafe extern "C" fn begin(labels: *const Label<'static>, count: usize) -> i64 {
    let labels = match labels.is_null() {
        true => &[],
        // SAFETY: the caller's array of so many, or more, which is too many.
        false => unsafe { slice::from_raw_parts(labels, count.min(regions::MOST + 1)) },
    };
    // SAFETY: the caller's promise.
    match unsafe { regions::begin_here(labels) } {
        Ok(number) => number.cast_signed(),
        Err(error) => error.result().into(),
    }
}

/// `rsunwind_region_end`.
pub extern "C" fn end(region: i64) -> c_int {
    regions::end_here(region).map_or_else(Error::result, |()| 0)
}
