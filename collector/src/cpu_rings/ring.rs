//! The ring of one event, shared with the kernel: whole records are shown where they lie, then
//! given up.
//!
//! # Safety
//! The control page's two positions are read and written with the orderings that
//! `perf_event_open(2)` asks for; slices of the data are within the ring's size, whatever the
//! positions say, and the kernel does not write to what lies between tail and head.
#![allow(unsafe_code)]

use linux_perf_event_reader::RawData;
use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
/// `data_head` and `data_tail` in `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// Bytes of a record before its body: kind, mode, length.
const HEADER: usize = 8;

/// An event and its ring.
#[derive(Debug)]
pub(crate) struct Ring {
    event: OwnedFd,
    page: NonNull<u8>,
    size: usize,
}

/// A record as it lies in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRecord<'a> {
    /// `PERF_RECORD_*`.
    pub(crate) kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub(crate) misc: u16,
    /// What follows the header.
    pub(crate) body: RawData<'a>,
}

// SAFETY: the mapping is this value's alone; the kernel does not care which thread reads it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of an event; `size` is a power of two, in bytes.
    ///
    /// # Errors
    /// As `mmap(2)`: `EPERM` when locked memory is used up.
    pub(crate) fn map(event: OwnedFd, size: usize) -> Result<Self, Errno> {
        // SAFETY: a new mapping, of a file that is ours.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE + size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(page.cast()) {
            Some(page) if page.as_ptr() != libc::MAP_FAILED.cast() => {
                Ok(Self { event, page, size })
            }
            _ => Err(Errno::last()),
        }
    }

    /// The event.
    pub(crate) const fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Shows everything that is there, and gives it up.
    pub(crate) fn take(&mut self, mut show: impl FnMut(RawRecord<'_>)) {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let mut at = self.position(TAIL).load(Ordering::Relaxed);
        while head.wrapping_sub(at) >= HEADER as u64 {
            let mut header = [0; HEADER];
            if self.bytes(at, HEADER).read_exact(&mut header).is_err() {
                break;
            }
            let [k0, k1, k2, k3, m0, m1, l0, l1] = header;
            let length = usize::from(u16::from_le_bytes([l0, l1]));
            if length < HEADER || length as u64 > head.wrapping_sub(at) || length > self.size {
                break; // not a record: the ring is not what we think it is
            }
            show(RawRecord {
                kind: u32::from_le_bytes([k0, k1, k2, k3]),
                misc: u16::from_le_bytes([m0, m1]),
                body: self.bytes(at.wrapping_add(HEADER as u64), length - HEADER),
            });
            at = at.wrapping_add(length as u64);
        }
        self.position(TAIL).store(head, Ordering::Release);
    }

    /// Bytes from a position on, at most the ring's size; they may lie across its end.
    fn bytes(&self, position: u64, length: usize) -> RawData<'_> {
        let offset = (position as usize) & (self.size - 1);
        let first = length.min(self.size - offset);
        let behind = (length - first).min(self.size);
        // SAFETY: both parts lie within the mapped data, which follows the control page; see the
        // top of the file for who writes there.
        let (before, behind) = unsafe {
            let data = self.page.as_ptr().add(PAGE).cast_const();
            (
                slice::from_raw_parts(data.add(offset), first),
                slice::from_raw_parts(data, behind),
            )
        };
        if behind.is_empty() {
            RawData::Single(before)
        } else {
            RawData::Split(before, behind)
        }
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the mapped control page, and aligned.
        unsafe { &*self.page.as_ptr().add(offset).cast::<AtomicU64>() }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE + self.size) };
    }
}
