//! The environment that this process was given.
//!
//! # Safety
//! The program's `environ`, which is read in constructors, before there is another thread.
#![allow(unsafe_code)]

use crate::weak_address;
use core::ffi::{CStr, c_char};

/// As exec takes it.
pub type Strings = *const *const c_char;

/// The program's environment, or an empty one.
#[must_use]
pub fn environ() -> Strings {
    static EMPTY: usize = 0;
    let environ = weak_address!("environ");
    if environ == 0 {
        return (&raw const EMPTY).cast();
    }
    // SAFETY: the program's variable of that name.
    let strings = unsafe { *(environ as *const Strings) };
    if strings.is_null() {
        (&raw const EMPTY).cast()
    } else {
        strings
    }
}

/// Iterates over a null-terminated array of strings.
///
/// # Safety
/// It is one, and stays so meanwhile.
unsafe fn pointers(array: Strings) -> impl Iterator<Item = *const c_char> {
    let mut at = array;
    core::iter::from_fn(move || {
        // SAFETY: not yet behind the null that ends the array.
        let string = (!at.is_null()).then(|| unsafe { *at })?;
        if string.is_null() {
            return None;
        }
        // SAFETY: as above.
        at = unsafe { at.add(1) };
        Some(string)
    })
}

/// The same, each with its length.
///
/// # Safety
/// As above.
pub unsafe fn strings(array: Strings) -> impl Iterator<Item = &'static CStr> {
    // SAFETY: the caller's promise.
    unsafe { pointers(array).map(|string| CStr::from_ptr(string)) }
}

/// The first string that begins so. Only of that one the length is looked for: an environment may
/// be long.
///
/// # Safety
/// As above.
#[must_use]
pub unsafe fn find(array: Strings, key: &[u8]) -> Option<&'static CStr> {
    // SAFETY: the caller's promise; strings end in a zero byte, which no key has.
    unsafe {
        let begins = |string: &*const c_char| {
            let mut key = key.iter().enumerate();
            key.all(|(at, byte)| *string.add(at) as u8 == *byte)
        };
        let found = pointers(array).find(begins)?;
        Some(CStr::from_ptr(found))
    }
}

/// What says how to record.
pub const SETTINGS_KEY: &[u8] = b"RSUNWIND=";

/// The value of a variable of this process: `key` is its name with the sign behind it.
#[must_use]
pub fn variable(key: &[u8]) -> Option<&'static CStr> {
    // SAFETY: the program's own.
    let found = unsafe { find(environ(), key) };
    let value = found?.to_bytes_with_nul().get(key.len()..)?;
    CStr::from_bytes_with_nul(value).ok()
}
