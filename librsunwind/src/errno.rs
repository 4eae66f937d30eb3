//! The program's `errno`: ours to keep as it was, never to set by accident, since all our own
//! system calls go by number.
//!
//! # Safety
//! libc's own function gives the place for the calling thread, by a plain address computation that
//! is legal in a handler.
#![allow(unsafe_code)]

use crate::weak_address;

fn place() -> Option<*mut i32> {
    type Location = unsafe extern "C" fn() -> *mut i32;
    let location = weak_address!("__errno_location");
    // SAFETY: glibc and musl both have this function, of this signature.
    (location != 0).then(|| unsafe { core::mem::transmute::<usize, Location>(location)() })
}

/// Its value; 0 in a program without libc.
pub fn get() -> i32 {
    // SAFETY: libc's own place for this thread.
    place().map_or(0, |place| unsafe { *place })
}

/// Sets it.
pub fn set(value: i32) {
    if let Some(place) = place() {
        // SAFETY: libc's own place for this thread.
        unsafe { *place = value };
    }
}

/// Puts it back when dropped: around code that is not ours.
///
/// # Signal safety
/// Two loads and a store.
#[derive(Debug)]
pub struct Kept(i32);

impl Kept {
    /// As it is now.
    pub fn now() -> Self {
        Self(get())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        set(self.0);
    }
}
