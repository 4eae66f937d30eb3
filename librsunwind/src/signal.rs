//! The signal that asks a thread to unwind itself: the process's choice between two.
//!
//! | | SIGURG | SIGPROF |
//! |---|---|---|
//! | default action | is to be ignored: one that comes late, behind an exec that nobody saw, does nothing | ends the program |
//! | programs that use it | few: sockets with urgent data, Go, PostgreSQL | profilers: gprof, gperftools, Python, `setitimer` |
//!
//! `auto` begins with SIGURG. A program that takes the signal for itself ([`is_contested`]) keeps
//! it: the process goes over to the other one, each thread at its next sample or change of mask
//! (`ThreadState::follow`). It goes over once at most. Where both are the program's, what it sends
//! is told from what triggers raise, and goes to its handler ([`crate::program_signal`]).

use crate::config::SignalChoice;
use crate::sys;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};

/// `si_code` of the signal by which a thread asks itself: positive, so that the kernel keeps it
/// however many signals are pending, and of no meaning for either.
pub const REQUESTED: i32 = 0x52;

/// How many there are.
pub const COUNT: usize = 2;
/// Both, by [`index`].
pub const BY_INDEX: [i32; COUNT] = [libc::SIGURG, libc::SIGPROF];
/// The mask bits of both.
pub const BOTH: u64 = sys::bit(libc::SIGURG) | sys::bit(libc::SIGPROF);

static CURRENT: AtomicI32 = AtomicI32::new(libc::SIGPROF);
/// Bits of those for which our handler stands.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The signal that threads are armed with from now on.
///
/// # Signal safety
/// One load.
#[inline]
pub fn current() -> i32 {
    CURRENT.load(Acquire)
}

/// Whether our handler stands for it.
///
/// # Signal safety
/// One load.
#[inline]
pub fn is_taken(signal: i32) -> bool {
    (1..=64).contains(&signal) && TAKEN.load(Relaxed) & sys::bit(signal) != 0
}

/// Notes that our handler stands for it.
pub fn take(signal: i32) {
    TAKEN.fetch_or(sys::bit(signal), Relaxed);
}

/// Notes that it does not any more.
pub fn leave(signal: i32) {
    TAKEN.fetch_and(!sys::bit(signal), Relaxed);
}

/// Set once the process is not sampled any more, whatever happens.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// From now on the process is not sampled any more: no thread is armed, and each is disarmed at its
/// next sample.
pub fn give_up() {
    GIVEN_UP.store(true, Relaxed);
}

/// Whether that is so.
///
/// # Signal safety
/// One load.
#[inline]
pub fn is_given_up() -> bool {
    GIVEN_UP.load(Relaxed)
}

/// The place of one of the two in tables of them.
pub const fn index(signal: i32) -> usize {
    (signal == libc::SIGPROF) as usize
}

/// The other one.
pub const fn other(signal: i32) -> i32 {
    match signal {
        libc::SIGPROF => libc::SIGURG,
        _ => libc::SIGPROF,
    }
}

/// Whether the default action is to ignore it.
pub const fn is_harmless(signal: i32) -> bool {
    signal == libc::SIGURG
}

/// Chooses at the start of the process, before any thread is armed.
pub fn choose(choice: SignalChoice) {
    let is_used = || {
        sys::signal_action(libc::SIGURG, None)
            .is_ok_and(|action| !matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN))
    };
    let signal = match choice {
        SignalChoice::Urg => libc::SIGURG,
        SignalChoice::Auto if !is_used() => libc::SIGURG,
        SignalChoice::Auto | SignalChoice::Prof => libc::SIGPROF,
    };
    CURRENT.store(signal, Release);
}

/// Goes over to the other signal, for which our handler stands; `false` if another thread has done
/// so.
pub fn go_over(from: i32) -> bool {
    CURRENT
        .compare_exchange(from, other(from), AcqRel, Relaxed)
        .is_ok()
}

/// Whether the process could still go over from that signal, which a program is about to take for
/// itself.
pub fn is_contested(signal: i32) -> bool {
    signal == current() && is_taken(signal) && !is_taken(other(signal))
}
