//! `perf_event_attr`, and opening an event with it: for all events that rsunwind opens itself. (The library in the program has its own, which
//! may not link std.)
//!
//! # Safety
//! One system call, which reads attributes of ours; the descriptor that it gives is nobody else's.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::os::fd::{FromRawFd, OwnedFd};

const OPEN_CLOEXEC: usize = 8;
/// The thread that asks, for [`open`].
pub const THIS_THREAD: Pid = Pid::from_raw(0);
/// Whichever processor the thread runs on, for [`open`].
pub const ANY_PROCESSOR: i32 = -1;

/// `perf_event_attr` as of `PERF_ATTR_SIZE_VER7`; fields in the order of the kernel's header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup_watermark: u32,
    pub bp_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clockid: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved: u16,
    pub aux_sample_size: u32,
    pub reserved2: u32,
    pub sig_data: u64,
}

/// Opens an event, which is closed by exec. The attributes' size is filled in.
///
/// # Errors
/// As `perf_event_open(2)`.
pub fn open(attributes: &Attributes, pid: Pid, processor: i32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        ..*attributes
    };
    let no_group: libc::c_int = -1;
    // SAFETY: the kernel reads the attributes, whose size is in them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attributes),
            pid.as_raw(),
            processor,
            no_group,
            OPEN_CLOEXEC,
        )
    };
    let fd = i32::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
