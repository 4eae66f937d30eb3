//! Threads of ours that come first where many want to run, because what they do is little: who
//! empties rings, for what that comes too late for is lost; who holds a thread of another process.
//!
//! # Safety
//! One system call without memory.
#![allow(unsafe_code)]

use nix::libc;

/// As urgent as `nice -n` says.
const NICE: libc::c_int = -15;

/// Makes the calling thread urgent; only root may, others stay as they are.
pub(crate) fn make_urgent() {
    let calling_thread = 0;
    // SAFETY: no memory is involved. Where it is refused, it comes when its turn comes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, calling_thread, NICE) };
}
