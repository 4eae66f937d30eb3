//! Files: opened for a moment, mapped, closed again. The runtime keeps no descriptor of the
//! program's.
#![allow(unsafe_code)]

use super::{Errno, call};

/// An open file, closed when dropped.
#[derive(Debug)]
pub struct File(i32);

/// What tells one file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl File {
    /// `open`, always with `O_CLOEXEC`. `path` ends in a zero byte.
    ///
    /// # Errors
    /// As `open(2)`; `EINVAL` if the zero byte is missing.
    pub fn open(path: &[u8], flags: i32, mode: u32) -> Result<Self, Errno> {
        if path.last() != Some(&0) {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the path is zero-terminated.
        let fd = unsafe {
            call!(
                libc::SYS_openat,
                libc::AT_FDCWD,
                path.as_ptr(),
                flags | libc::O_CLOEXEC,
                mode
            )
        }?;
        Ok(Self(fd as i32))
    }

    /// Takes over a descriptor that the kernel just gave.
    pub fn from_raw(fd: i32) -> Self {
        Self(fd)
    }

    /// The descriptor, for calls that this module lacks.
    pub fn raw(&self) -> i32 {
        self.0
    }

    /// `read` until the buffer is full or the file ends; gives the part read.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        let mut filled = 0usize;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the kernel writes within `rest`.
            match unsafe { call!(libc::SYS_read, self.0, rest.as_mut_ptr(), rest.len()) } {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                Err(Errno(libc::EINTR)) => {}
                Err(_) => break,
            }
        }
        buffer.get(..filled).unwrap_or(&[])
    }

    /// One `read`; 0 at the end of the file or on an error.
    pub fn read_some(&self, buffer: &mut [u8]) -> usize {
        // SAFETY: the kernel writes within the buffer.
        unsafe { call!(libc::SYS_read, self.0, buffer.as_mut_ptr(), buffer.len()) }.unwrap_or(0)
    }

    /// `pread` until the buffer is full or the file ends; gives the part read.
    pub fn read_at<'b>(&self, offset: u64, buffer: &'b mut [u8]) -> &'b [u8] {
        let mut filled = 0usize;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(filled as u64);
            // SAFETY: the kernel writes within `rest`.
            match unsafe { call!(libc::SYS_pread64, self.0, rest.as_mut_ptr(), rest.len(), at) } {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                Err(Errno(libc::EINTR)) => {}
                Err(_) => break,
            }
        }
        buffer.get(..filled).unwrap_or(&[])
    }

    /// Backs a range with storage, so that touching it cannot fail: `fallocate`, or zeros written
    /// where the file system lacks that.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG` (a resource limit), and as `fallocate(2)`.
    pub fn allocate(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let end = offset.saturating_add(length);
        if end > super::soft_limit(libc::RLIMIT_FSIZE) {
            return Err(Errno(libc::EFBIG)); // beyond it the kernel would send SIGXFSZ
        }
        // SAFETY: no memory involved.
        match unsafe { call!(libc::SYS_fallocate, self.0, 0, offset, length) } {
            Ok(_) => Ok(()),
            Err(Errno(libc::EOPNOTSUPP | libc::ENOSYS)) => self.write_zeros(offset, end),
            Err(error) => Err(error),
        }
    }

    fn write_zeros(&self, mut offset: u64, end: u64) -> Result<(), Errno> {
        static ZEROS: [u8; 4096] = [0; 4096];
        while offset < end {
            let length = end.wrapping_sub(offset).min(ZEROS.len() as u64);
            // SAFETY: the kernel reads within ZEROS.
            let written =
                unsafe { call!(libc::SYS_pwrite64, self.0, ZEROS.as_ptr(), length, offset) }?;
            if written == 0 {
                return Err(Errno(libc::ENOSPC));
            }
            offset = offset.saturating_add(written as u64);
        }
        Ok(())
    }

    fn stat(&self) -> Result<libc::stat, Errno> {
        stat(self.0)
    }

    /// Device and inode.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn identity(&self) -> Result<FileIdentity, Errno> {
        identity_of(self.0)
    }

    /// Whether it belongs to who made it if we did.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn is_own(&self) -> Result<bool, Errno> {
        Ok(self.stat()?.st_uid == super::effective_user())
    }

    /// Whether nobody but root and this process's user can change it: its owner and mode say so. A
    /// directory may also be one in which everybody has files of their own.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn is_trusted(&self) -> Result<bool, Errno> {
        let stat = self.stat()?;
        let is_owner = stat.st_uid == 0 || stat.st_uid == super::effective_user();
        let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        let is_sticky = is_directory && stat.st_mode & libc::S_ISVTX != 0;
        let is_written_by_others = stat.st_mode & (libc::S_IWGRP | libc::S_IWOTH) != 0;
        Ok(is_owner && (is_sticky || !is_written_by_others))
    }

    /// Bytes.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn size(&self) -> Result<u64, Errno> {
        Ok(self.stat()?.st_size as u64)
    }
}

/// Whether the kernel can read a path there, whatever it leads to.
pub fn is_path(path: *const u8) -> bool {
    // SAFETY: the kernel reads a C string, or says that it cannot.
    let answer = unsafe { call!(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::F_OK) };
    !matches!(answer, Err(Errno(libc::EFAULT | libc::ENAMETOOLONG)))
}

/// What a descriptor leads to; `None` if it is none.
pub fn status(fd: i32) -> Option<libc::stat> {
    core::mem::ManuallyDrop::new(File(fd)).stat().ok()
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        let _ = unsafe { call!(libc::SYS_close, self.0) };
    }
}

/// Reads a small file whole (up to the buffer's size); empty if it cannot be read. `path` ends in a
/// zero byte.
pub fn read_file<'b>(path: &[u8], buffer: &'b mut [u8]) -> &'b [u8] {
    match File::open(path, libc::O_RDONLY, 0) {
        Ok(file) => file.read(buffer),
        Err(_) => &[],
    }
}

/// Removes a name. `path` ends in a zero byte.
///
/// # Errors
/// As `unlink(2)`.
pub fn remove_file(path: &[u8]) -> Result<(), Errno> {
    // SAFETY: the path is zero-terminated, as `File::open` has checked before.
    unsafe { call!(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) }.map(drop)
}

/// Where a symbolic link points; empty if that cannot be read. `path` ends in a zero byte.
pub fn read_link<'b>(path: &[u8], buffer: &'b mut [u8]) -> &'b [u8] {
    // SAFETY: the path is a zero-terminated literal of the caller's; the kernel writes within the
    // buffer.
    let length = unsafe {
        call!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            path.as_ptr(),
            buffer.as_mut_ptr(),
            buffer.len()
        )
    };
    buffer.get(..length.unwrap_or(0)).unwrap_or(&[])
}

/// Writes to standard error, all in one call.
pub fn write_stderr(text: &[u8]) {
    // SAFETY: the kernel reads within `text`.
    let _ = unsafe { call!(libc::SYS_write, 2, text.as_ptr(), text.len()) };
}

/// Device and inode behind any descriptor.
///
/// # Errors
/// As `fstat(2)`.
pub fn identity_of(descriptor: i32) -> Result<FileIdentity, Errno> {
    let stat = stat(descriptor)?;
    Ok(FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
    })
}

fn stat(descriptor: i32) -> Result<libc::stat, Errno> {
    // SAFETY: all zeros is a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes a struct stat.
    unsafe { call!(libc::SYS_fstat, descriptor, &raw mut stat) }?;
    Ok(stat)
}

/// Whether a path names something that may be executed. It ends in a zero byte.
pub fn is_executable(path: &[u8]) -> bool {
    // SAFETY: zero-terminated by the caller; checked.
    path.last() == Some(&0)
        && unsafe {
            call!(
                libc::SYS_faccessat,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::X_OK
            )
        }
        .is_ok()
}
