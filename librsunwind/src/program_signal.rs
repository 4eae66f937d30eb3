//! What the program itself wants done with the signals that we use ([`crate::signal`]): its
//! actions, and whether it waits.

use crate::arch;
use crate::signal;
use crate::sys::{self, KernelAction};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// The program's own action for a signal, as it set it.
struct Action {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

static ACTIONS: [Action; signal::COUNT] = [const {
    Action {
        handler: AtomicUsize::new(0),
        flags: AtomicU64::new(0),
        restorer: AtomicUsize::new(0),
        mask: AtomicU64::new(0),
    }
}; signal::COUNT];

fn of(signal: i32) -> &'static Action {
    let [urg, prof] = &ACTIONS;
    match signal::index(signal) {
        0 => urg,
        _ => prof,
    }
}

/// Remembers what the program wants done with the signal; gives what it wanted before.
pub fn set_action(signal: i32, action: KernelAction) -> KernelAction {
    let before = self::action(signal);
    let kept = of(signal);
    kept.handler.store(action.handler, Relaxed);
    kept.flags.store(action.flags, Relaxed);
    kept.restorer.store(action.restorer, Relaxed);
    kept.mask.store(action.mask, Relaxed);
    before
}

/// What the program wants done with the signal.
pub fn action(signal: i32) -> KernelAction {
    let kept = of(signal);
    KernelAction {
        handler: kept.handler.load(Relaxed),
        flags: kept.flags.load(Relaxed),
        restorer: kept.restorer.load(Relaxed),
        mask: kept.mask.load(Relaxed),
    }
}

/// The handler is gone, as `SA_RESETHAND` says.
pub fn reset_handler(signal: i32) {
    of(signal).handler.store(libc::SIG_DFL, Relaxed);
}

/// Does what the kernel would have done: the signal's default action.
///
/// # Signal safety
/// System calls, of which the last is the end where the default action is one.
pub fn die(signal: i32) {
    let _ = sys::signal_action(
        signal,
        Some(&KernelAction {
            flags: sys::SA_RESTORER,
            restorer: arch::restorer(),
            ..KernelAction::default()
        }),
    );
    sys::send_to_thread(sys::gettid(), signal);
    sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(signal));
}

/// The thread that waits for the signal in `sigwait` or the like; 0 if none does.
static WAITER: AtomicU32 = AtomicU32::new(0);

/// Says that the calling thread waits for the program's own signals of our number, or no longer
/// does.
pub fn set_waiting(waits: bool) {
    WAITER.store(if waits { sys::gettid() } else { 0 }, SeqCst);
}

/// The thread that does; 0 if none does.
pub fn waiter() -> u32 {
    WAITER.load(SeqCst)
}
