//! Labels of what a program is doing, for Rust programs; `include/rsunwind.h` describes the same
//! for C.
//!
//! ```
//! use rsunwind::regions::{Label, Region};
//!
//! fn serve(route: &str, trace_id: &str) {
//!     let labels = [Label::new("route", route), Label::new("trace_id", trace_id)];
//!     let _region = Region::begin(&labels);
//!     // Samples of this thread have these labels until the region is dropped.
//! }
//! serve("/cart", "4bf92f3577b34da6a3ce929d0e0e4736");
//! ```
//!
//! # Safety
//! The library's functions have the signatures of its header, which the C interface's tests compile
//! against.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::thread::ThreadState;
pub use crate::thread::regions::MOST;
use crate::thread::regions::{LEFT_OUT, RawLabel};
use crate::weak_address;
use core::ffi::c_int;
use core::marker::PhantomData;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;

/// A key and its value.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Label<'a>(RawLabel, PhantomData<&'a [u8]>);

impl<'a> Label<'a> {
    /// The key has 1 to 63 bytes; of the value 255 are kept.
    #[must_use]
    pub const fn new(key: &'a str, value: &'a str) -> Self {
        let raw = RawLabel {
            key: key.as_ptr(),
            key_length: key.len(),
            value: value.as_ptr(),
            value_length: value.len(),
        };
        Self(raw, PhantomData)
    }
}

/// The calling thread is in a region while this lives. In a program that nobody profiles this is a
/// load and a comparison.
#[derive(Debug)]
#[must_use = "the region ends when this is dropped"]
pub struct Region {
    number: i64,
    /// The thread's own.
    stays: PhantomData<*const ()>,
}

impl Region {
    /// Begins a region of the calling thread. Labels that are too many, too long or without a key
    /// are left out with the region, which the recording says.
    ///
    /// # Signal safety
    /// May be called in signal handlers. The first call on a thread makes system calls.
    pub fn begin(labels: &[Label<'_>]) -> Self {
        type Begin = unsafe extern "C" fn(*const RawLabel, usize) -> i64;
        let number = match weak_address!("rsunwind_region_begin") {
            // SAFETY: references are what can be read.
            0 => unsafe { begin_here(labels) }.map_or(0, u64::cast_signed),
            // SAFETY: as above.
            address => unsafe {
                let begin = core::mem::transmute::<usize, Begin>(address);
                begin(labels.as_ptr().cast(), labels.len())
            },
        };
        Self {
            number,
            stays: PhantomData,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        type End = unsafe extern "C" fn(i64) -> c_int;
        if self.number <= 0 {
            return;
        }
        match weak_address!("rsunwind_region_end") {
            0 => _ = end_here(self.number),
            // SAFETY: no memory involved.
            address => unsafe {
                core::mem::transmute::<usize, End>(address)(self.number);
            },
        }
    }
}

/// Begins a region; gives its number, 0 if nobody records this thread.
///
/// # Errors
/// [`Error::Null`], [`Error::Budget`].
///
/// # Safety
/// What the labels point at can be read.
pub(crate) unsafe fn begin_here(labels: &[Label<'_>]) -> Result<u64, Error> {
    let Some(this) = ThreadState::current_unchecked() else {
        return Ok(0);
    };
    // SAFETY: a label is nothing but the raw one.
    let raw = unsafe { slice::from_raw_parts(labels.as_ptr().cast::<RawLabel>(), labels.len()) };
    // SAFETY: the caller's promise.
    let begun = unsafe { this.regions.begin(raw) };
    begun.inspect_err(|_| _ = LEFT_OUT.fetch_add(1, Relaxed))
}

/// Ends a region, by what it began with; nothing happens for 0.
///
/// # Errors
/// [`Error::NoClient`] if the thread is not in it.
pub(crate) fn end_here(region: i64) -> Result<(), Error> {
    match (u64::try_from(region), ThreadState::current_unchecked()) {
        (Ok(0), _) => Ok(()),
        (Ok(number), Some(this)) => this.regions.end(number),
        _ => Err(Error::NoClient),
    }
}
