//! Memory of our own, by mmap.
#![allow(unsafe_code)]

use super::{Errno, File, call};

/// Bytes of a page on every supported kernel configuration of this architecture.
pub const PAGE: usize = 4096;

/// Zeroed private memory, rounded up to pages; untouched pages cost nothing.
///
/// # Errors
/// `ENOMEM` (also when a limit on address space is reached).
pub fn map_anonymous(length: usize) -> Result<*mut u8, Errno> {
    map_fresh(length, libc::MAP_PRIVATE | libc::MAP_NORESERVE)
}

/// Maps zeroed memory that fork children share.
///
/// # Errors
/// `ENOMEM`.
pub fn map_shared(length: usize) -> Result<*mut u8, Errno> {
    map_fresh(length, libc::MAP_SHARED)
}

fn map_fresh(length: usize, flags: i32) -> Result<*mut u8, Errno> {
    // SAFETY: a new mapping, placed by the kernel.
    let address = unsafe {
        call!(
            libc::SYS_mmap,
            0,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            flags | libc::MAP_ANONYMOUS,
            -1isize,
            0
        )
    }?;
    noted(address, length)
}

/// Notes a mapping, where all are to be taken away again.
fn noted(address: usize, length: usize) -> Result<*mut u8, Errno> {
    #[cfg(feature = "inside")]
    super::mapped::note(address, length)?;
    let _ = length;
    Ok(address as *mut u8)
}

/// Asks for pages of private memory now, so that the first writes to them do not wait for page
/// faults. Kernels before 5.14 do not know this; then they do.
pub fn populate(start: *mut u8, length: usize) {
    let misaligned = start.addr() % PAGE;
    let start = start.wrapping_byte_sub(misaligned);
    let length = length.wrapping_add(misaligned);
    // SAFETY: changes no contents.
    let _ = unsafe { call!(libc::SYS_madvise, start, length, libc::MADV_POPULATE_WRITE) };
}

/// Maps part of a file, shared. `near` is where it would like to be, to merge with a neighbour; 0
/// for anywhere.
///
/// # Errors
/// As `mmap(2)`.
pub fn map_file(
    file: &File,
    offset: u64,
    length: usize,
    writable: bool,
    near: usize,
) -> Result<*mut u8, Errno> {
    let protection = if writable {
        libc::PROT_READ | libc::PROT_WRITE
    } else {
        libc::PROT_READ
    };
    // SAFETY: without MAP_FIXED no existing mapping is replaced.
    let address = unsafe {
        call!(
            libc::SYS_mmap,
            near,
            length,
            protection,
            libc::MAP_SHARED,
            file.raw(),
            offset
        )
    }?;
    noted(address, length)
}

/// Copies what can be read of a range of this process, and cannot fault; gives how many bytes,
/// `None` where the kernel does not do that.
///
/// # Signal safety
/// One system call, `process_vm_readv`.
///
/// # Safety
/// `to` has room for `length` bytes.
pub unsafe fn copy_from_self(address: u64, to: *mut u8, length: usize) -> Option<usize> {
    let (local, remote) = ([to as usize, length], [address as usize, length]);
    // SAFETY: two vectors of one part each; the kernel writes to the caller's room alone.
    let result = unsafe {
        call!(
            libc::SYS_process_vm_readv,
            super::getpid(),
            local.as_ptr(),
            1,
            remote.as_ptr(),
            1,
            0
        )
    };
    match result {
        Ok(copied) => Some(copied),
        Err(Errno(libc::ENOSYS | libc::EPERM)) => None,
        Err(_) => Some(0),
    }
}

/// Takes a mapping away.
///
/// # Safety
/// The range was given by one of the functions above and nothing uses it any more.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    #[cfg(feature = "inside")]
    super::mapped::forget(address as usize);
    // SAFETY: the caller's promise.
    let _ = unsafe { call!(libc::SYS_munmap, address, length) };
}

/// `madvise` on a mapping of ours; failure is not an error.
pub fn advise(address: *mut u8, length: usize, advice: i32) -> bool {
    #[cfg(feature = "inside")]
    if advice == libc::MADV_DONTFORK {
        super::mapped::keep_from_children(address as usize);
    }
    // SAFETY: the advice values used (DONTFORK, WIPEONFORK, GUARD_INSTALL of fresh pages) do not
    // change what this process has written.
    unsafe { call!(libc::SYS_madvise, address, length, advice) }.is_ok()
}

/// Makes pages of ours inaccessible that nothing has been written to. From Linux 6.13 on that takes
/// no mapping of their own: each makes the program's page faults and calls that map dearer.
pub fn guard(address: *mut u8, length: usize) {
    const MADV_GUARD_INSTALL: i32 = 102;
    if !advise(address, length, MADV_GUARD_INSTALL) {
        protect_none(address, length);
    }
}

/// Makes pages of ours inaccessible.
pub fn protect_none(address: *mut u8, length: usize) {
    // SAFETY: the caller owns the pages and uses them as a guard.
    let _ = unsafe { call!(libc::SYS_mprotect, address, length, libc::PROT_NONE) };
}
