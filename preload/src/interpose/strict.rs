//! Threads that give something up: those that may make four system calls only are left alone, since
//! any of ours would have them killed; under a filter no call is made by another number than the
//! program's; where the processor's counter must not be read, it is not.

use crate::stand_in;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rsunwind::clock;
use rsunwind::life::process;
use rsunwind::process::PROCESS;
use rsunwind::restart;
use rsunwind::segment::SEGMENT;
use rsunwind::sys;
use rsunwind::thread::ThreadState;

/// A thread that may make four system calls only is not sampled any more.
fn enter() {
    if PROCESS.is_active()
        && let Some(this) = ThreadState::current()
    {
        this.disarm_for_good();
    }
}

/// What a process may write under a filter, if nobody empties it meanwhile: chunks of the segment,
/// 2 MB.
const LAID_IN: usize = 64;

/// Set once the program has put on a filter itself.
static PUT_ON: AtomicBool = AtomicBool::new(false);

/// Whether the program has put on a filter itself: such a one, which knows the program's own calls,
/// may kill for others. One from before its start is a container's, as a rule, and refuses few.
pub fn is_put_on() -> bool {
    PUT_ON.load(Relaxed)
}

/// A filter is about to come: it may kill for what threads do now and then while they are sampled.
fn prepare_for_filter() {
    PUT_ON.store(true, Relaxed);
    if PROCESS.is_active() && !restart::keeps_numbers() {
        process::finish_early();
        SEGMENT.lay_in(LAID_IN);
        restart::prepare_to_keep_numbers();
    }
    restart::keep_numbers();
}

/// `PR_TSC_SIGSEGV`.
const FORBIDDEN: u32 = libc::PR_TSC_SIGSEGV as u32;

/// What a call of `prctl` asks for.
pub fn look_at(option: c_int, mode: u64) {
    match (option, mode as u32) {
        (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) => enter(),
        (libc::PR_SET_SECCOMP, _) => prepare_for_filter(),
        (libc::PR_SET_TSC, FORBIDDEN) => clock::avoid_counter(),
        _ => {}
    }
}

/// What a call of `seccomp` asks for. The kernel refuses the strict mode with any flag or argument,
/// and a filter without one, by which libseccomp finds out what it knows.
pub fn look_at_operation(operation: u64, flags: u64, argument: u64) {
    match operation as u32 {
        libc::SECCOMP_SET_MODE_STRICT if flags as u32 == 0 && argument == 0 => enter(),
        libc::SECCOMP_SET_MODE_FILTER if argument != 0 => prepare_for_filter(),
        _ => {}
    }
}

/// Set where the process had one from before.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Finds out whether the process has had a filter from before.
pub fn look_back() {
    INHERITED.store(sys::seccomp_filtered(), Relaxed);
}

/// Whether the process may make system calls that the program does not.
pub fn may_call() -> bool {
    !INHERITED.load(Relaxed) && !restart::keeps_numbers()
}

stand_in! {
    fn prctl = |a| { look_at(a.first as c_int, a.second); };
}
