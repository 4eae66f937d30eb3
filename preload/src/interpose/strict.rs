//! Threads that give something up: those that may make four system calls only are left alone, since
//! any of ours would have them killed, and so are those whose system calls the program gets itself;
//! under a filter no call of ours is made that it has something
//! against; where the processor's counter must not be read, it is not.
//!
//! # Safety
//! Hands the program's arguments on.
#![allow(unsafe_code)]

use crate::stand_in;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rsunwind::SystemCall;
use rsunwind::clock;
use rsunwind::life::{leave, process};
use rsunwind::process::PROCESS;
use rsunwind::restart;
use rsunwind::segment::SEGMENT;
use rsunwind::sys;
use rsunwind::sys::filters::{self, Draft};
use rsunwind::thread::ThreadState;
use rsunwind::wire::event::EventKind;

/// A thread on which no system call of ours may be made is not sampled any more.
fn leave_alone(why: &[u8]) {
    if PROCESS.is_active()
        && let Some(this) = ThreadState::current()
    {
        this.event(EventKind::Note, 0, why);
        this.disarm_for_good();
    }
}

/// It may make four system calls only.
fn enter() {
    leave_alone(b"a thread went over to seccomp's strict mode: it was not sampled from then on");
}

/// `PR_SET_SYSCALL_USER_DISPATCH`, whose mode 0 switches it off.
const DISPATCH: c_int = 59;

/// Its system calls, and with them those of a handler that comes in, become signals of the
/// program's.
fn hand_over() {
    leave_alone(b"a thread has its system calls handed over: it was not sampled from then on");
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

/// A filter is about to come, the one that a `struct sock_fprog` at that address names: it may kill
/// for what threads do now and then while they are sampled. What it says of that is asked of itself
/// ([`filters`]).
fn prepare_for_filter(program: u64) {
    let is_first = !PUT_ON.swap(true, Relaxed);
    if INHERITED.load(Relaxed) {
        restart::keep_numbers();
    }
    let is_active = PROCESS.is_active();
    if is_active && is_first {
        ThreadState::current().inspect(|this| process::finish_early(this));
        SEGMENT.lay_in(LAID_IN);
        restart::prepare_to_keep_numbers();
    }
    // SAFETY: the program's argument.
    let draft = unsafe { Draft::of(program) };
    if is_active {
        let this = ThreadState::current();
        this.inspect(|this| this.learn_stack());
        leave::give_up_if_forbidden(this);
    }
    filters::put_in_force(draft);
}

/// What this library calls where a program starts, as far as programs do not call it themselves
/// then.
const AT_START: [i64; 18] = [
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_fallocate,
    libc::SYS_fstat,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_openat,
    libc::SYS_prctl,
    libc::SYS_readlinkat,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
];

/// Whether a program that this one starts, under the filters that it has put on, may be sampled.
pub fn may_start() -> bool {
    let call = |number: &i64| SystemCall::any(*number);
    AT_START
        .iter()
        .map(call)
        .all(|call| filters::may_make(&call))
}

/// `PR_TSC_SIGSEGV`.
const FORBIDDEN: u32 = libc::PR_TSC_SIGSEGV as u32;

/// What a call of `prctl` asks for; without a filter it is asked what the kernel knows.
pub fn look_at(option: c_int, mode: u64, program: u64) {
    match (option, mode as u32) {
        (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) => enter(),
        (libc::PR_SET_SECCOMP, _) if program != 0 => prepare_for_filter(program),
        (DISPATCH, 1..) => hand_over(),
        (libc::PR_SET_TSC, FORBIDDEN) => {
            clock::avoid_counter();
            if PROCESS.is_active() {
                leave::give_up_if_forbidden(ThreadState::current());
            }
        }
        _ => {}
    }
}

/// What a call of `seccomp` asks for. The kernel refuses the strict mode with any flag or argument,
/// and a filter without one, by which libseccomp finds out what it knows.
pub fn look_at_operation(operation: u64, flags: u64, argument: u64) {
    match operation as u32 {
        libc::SECCOMP_SET_MODE_STRICT if flags as u32 == 0 && argument == 0 => enter(),
        libc::SECCOMP_SET_MODE_FILTER if argument != 0 => prepare_for_filter(argument),
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
    !INHERITED.load(Relaxed) && !restart::keeps_numbers() && !is_put_on()
}

stand_in! {
    fn prctl = |a| { look_at(a.first as c_int, a.second, a.third); };
}
