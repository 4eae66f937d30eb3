//! `perf_event_attr`, and opening an event with it. What is sampled is in [`super::perf`].
//!
//! # Safety
//! System calls on our own structures.
#![allow(unsafe_code)]

use crate::arch::PERF_REGISTERS;
use crate::sys::{Errno, File, call};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use engine::wire::ring::SAMPLE_TYPE;

/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_TASK_CLOCK`: CPU time of the thread, ns.
pub const TASK_CLOCK: u64 = 1;

const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const FREQUENCY: u64 = 1 << 10;
const SAMPLE_ID_ALL: u64 = 1 << 18;
/// Without it newer kernels (7.2 does) take an event of user mode alone for one that may show the kernel, which needs more rights.
const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const USE_CLOCKID: u64 = 1 << 25;
/// The event ends when its thread replaces its program.
const REMOVE_ON_EXEC: u64 = 1 << 36;
/// `PERF_FORMAT_LOST`: who reads the event learns how many of its samples found no room in the ring.
const FORMAT_LOST: u64 = 1 << 4;
/// The kernel leaves the user's call chain for later, and names the entry by a cookie, which ends the sample's own chain: all who ask in one
/// entry get the same. The chain itself would be for events with `defer_output`, which ours have not. Unknown before Linux 6.19.
const DEFER_CALLCHAIN: u64 = 1 << 38;
const OPEN_CLOEXEC: usize = 8;

const IOC_ENABLE: usize = 0x2400;
const IOC_SET_OUTPUT: usize = 0x2405;
const IOC_ID: usize = 0x8008_2407;

/// The kernel has refused to defer call chains, which it does for good.
static NEVER_DEFERS: AtomicBool = AtomicBool::new(false);

/// `perf_event_attr` as of `PERF_ATTR_SIZE_VER7`; fields in the order of the kernel's header.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Attributes {
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

impl Attributes {
    /// An event that writes samples as [`engine::wire::ring`] reads them, every `period` of its own units; not running yet.
    pub fn sampling(kind: u32, config: u64, period: u64, kernel: bool) -> Self {
        Self {
            kind,
            size: size_of::<Self>() as u32,
            config,
            sample_period: period,
            sample_type: SAMPLE_TYPE,
            read_format: FORMAT_LOST,
            flags: DISABLED
                | EXCLUDE_HV
                | SAMPLE_ID_ALL
                | EXCLUDE_CALLCHAIN_USER
                | USE_CLOCKID
                | REMOVE_ON_EXEC
                | if kernel {
                    0
                } else {
                    EXCLUDE_KERNEL | EXCLUDE_CALLCHAIN_KERNEL
                },
            wakeup_events: 1,
            sample_regs_user: PERF_REGISTERS,
            clockid: libc::CLOCK_MONOTONIC,
            ..Self::default()
        }
    }

    /// The same with the period given as a rate in Hz.
    pub fn at_a_rate(self) -> Self {
        Self {
            flags: self.flags | FREQUENCY,
            ..self
        }
    }

    /// Opens it on the calling thread, on any processor; where kernel mode is sampled with the kernel's cookies, if it has any.
    ///
    /// # Signal safety
    /// System calls, and an atomic that remembers their outcome.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` where not permitted, `EMFILE`, `ENOMEM`, ….
    pub fn open(&self) -> Result<File, Errno> {
        if self.flags & EXCLUDE_KERNEL == 0 && !NEVER_DEFERS.load(Relaxed) {
            match self.deferring().attempt() {
                Err(Errno(libc::EINVAL)) => {}
                result => return result,
            }
            // Either the kernel does not know it, or something else is wrong, which shows now.
            let plain = self.open_on_older_kernels()?;
            NEVER_DEFERS.store(true, Relaxed);
            return Ok(plain);
        }
        self.open_on_older_kernels()
    }

    /// The same with the user's call chain put off: it must be asked for.
    fn deferring(&self) -> Self {
        Self {
            flags: self.flags & !EXCLUDE_CALLCHAIN_USER | DEFER_CALLCHAIN,
            ..*self
        }
    }

    fn open_on_older_kernels(&self) -> Result<File, Errno> {
        let without_lost = Self {
            read_format: 0,
            ..*self
        };
        let without_remove = Self {
            flags: self.flags & !REMOVE_ON_EXEC,
            ..without_lost
        };
        // Unknown before Linux 6.0 and 5.13.
        for attributes in [self, &without_lost] {
            match attributes.attempt() {
                Err(Errno(libc::EINVAL)) => {}
                result => return result,
            }
        }
        without_remove.attempt()
    }

    fn attempt(&self) -> Result<File, Errno> {
        // SAFETY: the kernel reads the attributes; 0 is the calling thread, -1 any processor, -1 no group.
        let fd = unsafe {
            call!(
                libc::SYS_perf_event_open,
                core::ptr::from_ref(self),
                0,
                -1isize,
                -1isize,
                OPEN_CLOEXEC
            )
        }?;
        Ok(File::from_raw(fd as i32))
    }
}

/// Starts an event.
///
/// # Errors
/// As the ioctl.
pub fn enable(event: &File) -> Result<(), Errno> {
    // SAFETY: no memory involved.
    unsafe { call!(libc::SYS_ioctl, event.raw(), IOC_ENABLE, 0) }.map(drop)
}

/// Lets an event write into the ring of another, which must be mapped; it must not be itself.
///
/// # Errors
/// `EINVAL` for events whose output cannot be shared (other clock, and before Linux 6.2 software with hardware events).
pub fn write_into(event: &File, owner: &File) -> Result<(), Errno> {
    // SAFETY: no memory involved.
    unsafe { call!(libc::SYS_ioctl, event.raw(), IOC_SET_OUTPUT, owner.raw()) }.map(drop)
}

/// The number that an event's records carry.
///
/// # Errors
/// As the ioctl.
pub fn id(event: &File) -> Result<u64, Errno> {
    let mut id = 0u64;
    // SAFETY: the kernel writes one word.
    unsafe { call!(libc::SYS_ioctl, event.raw(), IOC_ID, &raw mut id) }?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_the_kernel_defers_is_found_out_by_the_first_event() {
        let event = Attributes::sampling(SOFTWARE, TASK_CLOCK, 1 << 40, true);
        if let Err(Errno(libc::EACCES | libc::EPERM)) = event.attempt() {
            eprintln!("LEFT OUT: no permission to sample the kernel");
            return;
        }
        event.open().expect("an event, deferring or not");
        let refused = matches!(event.deferring().attempt(), Err(Errno(libc::EINVAL)));
        assert_eq!(NEVER_DEFERS.load(Relaxed), refused);
        event.open().expect("another");
        let user_only = Attributes::sampling(SOFTWARE, TASK_CLOCK, 1 << 40, false);
        user_only.open().expect("nothing is deferred in user mode");
    }
}
