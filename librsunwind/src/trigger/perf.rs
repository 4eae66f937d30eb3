//! A perf event on the thread's own CPU clock, which raises a signal on that thread at every sample.
//!
//! The position after the newest sample in the event's ring is the nonce: it names the samples that this signal stands for. Only the
//! mapping of the ring is kept; it keeps the event alive, so no descriptor shifts the host's numbers or is lost to closefrom.
//!
//! # Safety
//! The ring is shared with the kernel: positions are read and written with the orderings that `perf_event_open(2)` asks for, and
//! records are read within the ring's size whatever they say.
#![allow(unsafe_code)]

use super::SIGNAL;
use crate::arch::PERF_REGS_SP_IP;
use crate::sys::{self, Errno, File, PAGE, call};
use core::sync::atomic::{AtomicU64, Ordering};
use engine::wire::kernel::{KernelHead, MAX_DEPTH};

/// Pages of ring data: some 300 samples with kernel stacks can wait while the thread is in one long system call.
const DATA_PAGES: usize = 16;
const DATA_PAGES_SCARCE: usize = 1;

/// An armed perf event of this thread.
#[derive(Debug)]
pub struct PerfEvent {
    page: *mut u8,
    data_size: usize,
    /// The descriptor's number while it was open: what `si_fd` of its signals says.
    descriptor: i32,
    kernel: bool,
    seen: u64,
}

/// What the ring held since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// End position of the newest sample: the nonce.
    pub cursor: u64,
    /// Samples found.
    pub samples: u64,
    /// Samples that the kernel could not write, because the ring was full.
    pub lost: u64,
}

/// `perf_event_attr` as of `PERF_ATTR_SIZE_VER7`; fields in the order of the kernel's header.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
    aux_sample_size: u32,
    reserved2: u32,
    sig_data: u64,
}

const TYPE_SOFTWARE: u32 = 1;
const CONFIG_TASK_CLOCK: u64 = 1;
const FLAG_DISABLED: u64 = 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HV: u64 = 1 << 6;
const FLAG_EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const SAMPLE_IP: u64 = 1;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const OPEN_CLOEXEC: usize = 8;
const IOC_ENABLE: usize = 0x2400;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const CPU_MODE_MASK: u64 = 7;
const CPU_MODE_KERNEL: u64 = 1;
/// `PERF_CONTEXT_MAX`: call chain entries from here on are markers.
const FIRST_MARKER: u64 = (-4095i64) as u64;

impl PerfEvent {
    /// Opens and enables an event on the calling thread.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` where not permitted, `EMFILE`, `ENOMEM`, …; from mmap `EPERM` when locked memory is used up.
    pub fn open(period_ns: u64, kernel: bool) -> Result<Self, Errno> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: CONFIG_TASK_CLOCK,
            sample_period: period_ns,
            sample_type: SAMPLE_IP
                | SAMPLE_TID
                | SAMPLE_TIME
                | SAMPLE_REGS_USER
                | if kernel { SAMPLE_CALLCHAIN } else { 0 },
            flags: FLAG_DISABLED
                | FLAG_EXCLUDE_HV
                | FLAG_EXCLUDE_CALLCHAIN_USER
                | FLAG_USE_CLOCKID
                | if kernel { 0 } else { FLAG_EXCLUDE_KERNEL },
            wakeup_events: 1,
            sample_regs_user: PERF_REGS_SP_IP,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads the attributes; 0 is the calling thread, -1 any processor.
        let fd = unsafe {
            call!(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0,
                -1isize,
                -1isize,
                OPEN_CLOEXEC
            )
        }?;
        let file = File::from_raw(fd as i32);
        let pages = if kernel {
            DATA_PAGES
        } else {
            DATA_PAGES_SCARCE
        };
        let (page, data_size) =
            map_ring(&file, pages).or_else(|_| map_ring(&file, DATA_PAGES_SCARCE))?;
        let event = Self {
            page,
            data_size,
            descriptor: file.raw(),
            kernel,
            seen: 0,
        };
        deliver_to(&file, sys::gettid())?;
        // SAFETY: no memory involved.
        unsafe { call!(libc::SYS_ioctl, file.raw(), IOC_ENABLE, 0) }?;
        Ok(event)
    }

    /// Whether kernel mode is sampled too.
    pub fn samples_kernel(&self) -> bool {
        self.kernel
    }

    /// What `si_fd` of its signals says.
    pub fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// Whether a signal with this `si_fd` can be this event's.
    pub fn raised(&self, descriptor: i32) -> bool {
        descriptor == self.descriptor
    }

    /// Takes everything out of the ring, and shows each sample taken in kernel mode: its head and its stack.
    ///
    /// # Signal safety
    /// Reads and writes the mapped ring; bounded by its size.
    pub fn drain(&mut self, mut visit: impl FnMut(&KernelHead, &[u64])) -> Drained {
        let head = self.position(1024).load(Ordering::Acquire);
        let mut drained = Drained {
            cursor: head,
            ..Drained::default()
        };
        let mut at = self.seen;
        while at < head {
            let header = self.word(at);
            let (kind, mode, size) = (header as u32, header >> 32 & CPU_MODE_MASK, header >> 48);
            if size < 8 {
                break; // not a record: the ring is not what we think it is
            }
            let end = at.wrapping_add(size);
            match kind {
                RECORD_SAMPLE => {
                    drained.samples = drained.samples.saturating_add(1);
                    if mode == CPU_MODE_KERNEL && self.kernel {
                        self.show_kernel_sample(at, end, &mut visit);
                    }
                }
                RECORD_LOST => {
                    drained.lost = drained.lost.saturating_add(self.word(at.wrapping_add(16)))
                }
                _ => {}
            }
            at = end;
        }
        self.seen = head;
        self.position(1032).store(head, Ordering::Release);
        drained
    }

    /// Record: header, ip, pid and tid, time, number of entries, entries …, register ABI, sp, ip.
    fn show_kernel_sample(&self, at: u64, end: u64, visit: &mut impl FnMut(&KernelHead, &[u64])) {
        let word = |index: u64| self.word(at.wrapping_add(index.wrapping_mul(8)));
        let count = word(4).min(end.wrapping_sub(at) >> 3);
        let mut frames = [0u64; MAX_DEPTH];
        let mut used = 0usize;
        for entry in (0..count).map(|index| word(index.wrapping_add(5))) {
            // Markers that say whose addresses follow; only the kernel's are asked for.
            let is_marker = entry >= FIRST_MARKER;
            if let (false, Some(slot)) = (is_marker, frames.get_mut(used)) {
                *slot = entry;
                used = used.wrapping_add(1);
            }
        }
        let registers = count.wrapping_add(5);
        let known = word(registers) != 0;
        let head = KernelHead {
            cursor: end,
            time_ns: word(3),
            user_ip: if known {
                word(registers.wrapping_add(2))
            } else {
                0
            },
            user_sp: if known {
                word(registers.wrapping_add(1))
            } else {
                0
            },
        };
        visit(&head, frames.get(..used).unwrap_or(&[]));
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the mapped control page, aligned; `data_head` is at 1024 and `data_tail` at 1032.
        unsafe { &*self.page.add(offset).cast::<AtomicU64>() }
    }

    fn word(&self, position: u64) -> u64 {
        let offset = (position as usize) & self.data_size.wrapping_sub(1) & !7;
        // SAFETY: the data follows the control page and its size is a power of two; records are 8-byte aligned.
        unsafe {
            self.page
                .add(PAGE)
                .add(offset)
                .cast::<u64>()
                .read_volatile()
        }
    }
}

impl Drop for PerfEvent {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's. With it goes the last reference to the event.
        unsafe { sys::unmap(self.page, PAGE.saturating_add(self.data_size)) };
    }
}

fn map_ring(file: &File, pages: usize) -> Result<(*mut u8, usize), Errno> {
    let data_size = pages.saturating_mul(PAGE);
    Ok((
        sys::map_file(file, 0, PAGE.saturating_add(data_size), true, 0)?,
        data_size,
    ))
}

fn deliver_to(file: &File, tid: u32) -> Result<(), Errno> {
    const F_SETSIG: usize = 10;
    const F_SETOWN_EX: usize = 15;
    let owner = [0u32 /* F_OWNER_TID */, tid];
    // SAFETY: the kernel reads two words.
    unsafe {
        call!(libc::SYS_fcntl, file.raw(), F_SETSIG, SIGNAL)?;
        call!(libc::SYS_fcntl, file.raw(), F_SETOWN_EX, owner.as_ptr())?;
        call!(
            libc::SYS_fcntl,
            file.raw(),
            libc::F_SETFL,
            libc::O_ASYNC | libc::O_NONBLOCK
        )?;
    }
    Ok(())
}
