//! Signal actions and masks at the kernel's own level, below the host's wrappers.
#![allow(unsafe_code)]

use super::{Errno, call};

/// `SA_RESTORER`, which libc keeps to itself.
pub const SA_RESTORER: u64 = 0x0400_0000;

/// The kernel's `struct sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelAction {
    /// Address of the handler, or `SIG_DFL` 0, `SIG_IGN` 1.
    pub handler: usize,
    /// `SA_*`.
    pub flags: u64,
    /// Where a handler returns to.
    pub restorer: usize,
    /// Signals blocked while the handler runs: bit n-1 for signal n.
    pub mask: u64,
}

/// The mask bit of a signal.
pub const fn bit(signal: i32) -> u64 {
    1u64.wrapping_shl((signal as u32).wrapping_sub(1))
}

/// `rt_sigaction`: sets (if given) and gives the action before.
///
/// # Errors
/// `EINVAL` for a signal that cannot be set.
pub fn signal_action(signal: i32, new: Option<&KernelAction>) -> Result<KernelAction, Errno> {
    let mut old = KernelAction::default();
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both point at structures of the kernel's layout, or null.
    unsafe { call!(libc::SYS_rt_sigaction, signal, new, &raw mut old, 8) }?;
    Ok(old)
}

/// `rt_sigprocmask`: how is `SIG_BLOCK`, `SIG_UNBLOCK` or `SIG_SETMASK`; gives the mask before.
pub fn signal_mask(how: i32, set: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both point at 8 bytes.
    let _ = unsafe {
        call!(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const set,
            &raw mut old,
            8
        )
    };
    old
}

/// Sends a signal to a thread of this process.
pub fn send_to_thread(tid: u32, signal: i32) {
    // SAFETY: no memory involved.
    let _ = unsafe { call!(libc::SYS_tgkill, super::getpid(), tid, signal) };
}

/// Holds a signal back from the calling thread while it lives. Where it is blocked already, it stays so.
#[derive(Debug)]
pub struct HeldBack(u64);

impl HeldBack {
    /// From now on.
    pub fn new(signal: i32) -> Self {
        let bit = bit(signal);
        Self(bit & !signal_mask(libc::SIG_BLOCK, bit))
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        if self.0 != 0 {
            signal_mask(libc::SIG_UNBLOCK, self.0);
        }
    }
}
