//! Threads of ours that come first where many want to run, because what they do is little: who
//! empties rings, for what that comes too late for is lost; who holds a thread of another process.
//! Not that thread itself: should we be killed meanwhile, it would come first for ever.
//!
//! # Safety
//! System calls that write to no memory.
#![allow(unsafe_code)]

use nix::libc::{self, c_int};

/// As urgent as `nice -n` says.
const NICE: c_int = -15;
const CALLING_THREAD: i32 = 0;

/// Makes a process that ends in a moment come before all others, whoever holds a thread of another
/// process: nothing has to be put back, however it ends. Where that is refused, it is as urgent as
/// others of ours.
pub(crate) fn make_urgent_for_a_moment() {
    if !schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1) {
        make_urgent();
    }
}

/// Makes the calling thread urgent; only root may, others stay as they are.
pub(crate) fn make_urgent() {
    // SAFETY: no memory is involved. Where it is refused, it comes when its turn comes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, CALLING_THREAD.cast_unsigned(), NICE) };
}

/// Gives whether the calling thread is so now. Not by libc's function: musl's always fails.
fn schedule(policy: c_int, priority: c_int) -> bool {
    // SAFETY: the kernel reads a `struct sched_param`, which is one number.
    unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            CALLING_THREAD,
            policy,
            &raw const priority,
        ) == 0
    }
}
