//! How the C library's allocator keeps large pieces.

#![allow(unsafe_code)]

/// From so many bytes on a piece is one of the kernel's own.
const LARGE: i32 = 1 << 20;

/// Has lists that grow to many megabytes moved by the kernel, and given back to it when they are
/// gone. By itself glibc keeps such pieces among all others from the first on that is freed, where
/// each that grows is copied and leaves a hole: a quarter of the memory that a report took.
pub(crate) fn gives_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers, and sets one of the allocator's own.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = LARGE;
}
