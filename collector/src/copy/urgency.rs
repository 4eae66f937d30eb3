//! The thread that empties rings comes first where many want to run: what it does is little, and
//! what it comes too late for is lost.
//!
//! # Safety
//! One system call without memory.
#![allow(unsafe_code)]

use nix::libc;

/// As urgent as `nice -n` says.
const NICE: libc::c_int = -15;

/// Makes the calling thread urgent; only root may, others stay as they are.
pub(super) fn make_urgent() {
    let calling_thread = 0;
    // SAFETY: no memory is involved. Where it is refused, records may be lost, and are counted.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, calling_thread, NICE) };
}
