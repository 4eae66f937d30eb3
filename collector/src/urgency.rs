//! Threads of ours that come first where many want to run, because what they do is little: who
//! empties rings, for what that comes too late for is lost; who holds a thread of another process.
//!
//! # Safety
//! One system call without memory.
#![allow(unsafe_code)]

use nix::libc;

/// As urgent as `nice -n` says.
const NICE: libc::c_int = -15;

/// Makes a process that ends in a moment come before all others, whoever holds a thread of another
/// process: nothing has to be put back, however it ends. Where that is refused, it is as urgent as
/// others of ours.
pub(crate) fn make_urgent_for_a_moment() {
    let least = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    let calling_thread = 0;
    // SAFETY: the kernel reads the structure.
    let done = unsafe { libc::sched_setscheduler(calling_thread, policy, &raw const least) };
    if done != 0 {
        make_urgent();
    }
}

/// Makes the calling thread urgent; only root may, others stay as they are.
pub(crate) fn make_urgent() {
    let calling_thread = 0;
    // SAFETY: no memory is involved. Where it is refused, it comes when its turn comes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, calling_thread, NICE) };
}
