//! Signal masks: our signal is never blocked for real, and programs read back the mask that they
//! set.

use super::calls;
use super::sets::{mask_set, mask_word};
use super::strict;
use crate::next::Next;
use crate::stand_in;
use crate::stand_in::Arguments;
use core::ffi::{c_int, c_long};
use core::ptr;
use rsunwind::life::{follow, leave};
use rsunwind::process::PROCESS;
use rsunwind::signal;
use rsunwind::sys;
use rsunwind::thread::ThreadState;

type Set = *const libc::sigset_t;

mod real {
    use super::{Set, c_int};
    crate::next! {
        fn pthread_sigmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int = libc::ENOSYS;
        fn sigprocmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int = -1;
        fn sigpending(set: *mut libc::sigset_t) -> c_int = -1;
        fn sigblock(mask: c_int) -> c_int = 0;
        fn sigsetmask(mask: c_int) -> c_int = 0;
        fn sighold(signal: c_int) -> c_int = -1;
        fn sigrelse(signal: c_int) -> c_int = -1;
    }
}

/// Records what the program believes of our signal after it changed its mask so; gives what it
/// believed before. A signal that the program was owed while it believed it blocked comes now.
pub fn believe(how: c_int, mask: u64) -> bool {
    let Some(this) = ThreadState::current() else {
        return false;
    };
    let (before, named) = (
        this.belief.is_blocked(),
        mask & sys::bit(this.signal()) != 0,
    );
    this.belief.set_blocked(match how {
        libc::SIG_BLOCK => before || named,
        libc::SIG_UNBLOCK => before && !named,
        _ => named,
    });
    if !this.belief.is_blocked() && this.belief.is_owed() {
        call_handler(this);
    }
    before
}

/// Has our handler see to what the program is owed, or has raised: before the next instruction, if
/// our signal is not blocked. Where a sample's signal is pending this one is dropped, and that one
/// does.
fn call_handler(this: &ThreadState) {
    let is_called =
        strict::may_call() && sys::raise_with(this.signal(), signal::REQUESTED, 0).is_ok();
    if !is_called && (this.belief.take_owed() | this.belief.take_raised()) {
        sys::send_to_thread(sys::gettid(), this.signal());
    }
}

/// `raise(3)` of our signal: the kernel would drop it where a sample's is pending.
extern "C" fn raise_own(_: c_int) -> c_int {
    if let Some(this) = ThreadState::current_unchecked() {
        this.belief.raise();
        call_handler(this);
    }
    0
}

stand_in! {
    fn raise = |a| {
        let signal = a.first as c_int;
        if signal::is_taken(signal)
            && PROCESS.is_active()
            && strict::may_call()
            && ThreadState::current().is_some_and(|this| this.signal() == signal)
        {
            return raise_own as *const () as usize;
        }
    };
}

/// Blocks or unblocks one of the signals that our handler stands for; gives whether the program had
/// it blocked.
pub fn hold(how: c_int, signal: c_int) -> bool {
    let mask = sys::bit(signal);
    match ThreadState::current().map(follows) {
        Some(ours) if ours == signal => believe(how, mask),
        _ => sys::signal_mask(how, mask) & mask != 0,
    }
}

/// The signal that the calling thread is armed with, after it has followed its process.
fn follows(this: &ThreadState) -> c_int {
    follow::follow(this);
    this.signal()
}

/// A mask for a call to wait under, or signals for it to wait for: the program's, without ours,
/// which would be held back by the one and taken from the handler by the other. It lies where it
/// outlives the wrapper.
///
/// # Safety
/// Null, or a set of signals.
#[inline]
pub unsafe fn without_ours(set: u64) -> u64 {
    match ThreadState::current_unchecked() {
        // SAFETY: the caller's promise.
        Some(this) => unsafe { without_signal_of(this, set) },
        None => set,
    }
}

/// # Safety
/// Null, or a set of signals.
#[inline]
unsafe fn without_signal_of(this: &ThreadState, set: u64) -> u64 {
    // SAFETY: the caller's promise.
    let mask = unsafe { (set as Set).as_ref() }.map_or(0, mask_word);
    let ours = sys::bit(this.signal());
    match mask & ours {
        0 => set,
        _ => this.calls.mask(mask & !ours),
    }
}

/// # Safety
/// As the program's function.
unsafe fn change(
    function: unsafe extern "C" fn(c_int, Set, *mut libc::sigset_t) -> c_int,
    how: c_int,
    set: Set,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: null or the caller's set.
    let named = unsafe { set.as_ref() }.map_or(0, mask_word) & signal::BOTH != 0;
    let is_plain = |this: &ThreadState| {
        let is_ours = this.signal() == signal::current();
        is_ours && !named && !this.belief.is_blocked() && !this.belief.is_owed()
    };
    // Most masks have nothing to do with ours: they are set as they are, without a look at which
    // thread and process this is.
    let is_plain = ThreadState::current_unchecked().is_none_or(is_plain);
    // A thread that is not ours to sample keeps its mask to itself.
    let here = (!is_plain && PROCESS.is_active()).then(ThreadState::current);
    let Some(this) = here.flatten() else {
        // SAFETY: the caller's arguments.
        return unsafe { function(how, set, old) };
    };
    let bit = sys::bit(follows(this));
    // SAFETY: null or the caller's set.
    let mask = unsafe { set.as_ref() }.map(mask_word);
    let copy = mask_set(match how {
        libc::SIG_BLOCK => mask.unwrap_or(0) & !bit,
        _ => mask.unwrap_or(0),
    });
    let pointer = if mask.is_some() {
        &raw const copy
    } else {
        ptr::null()
    };
    let mut really = mask_set(0);
    // SAFETY: the caller's arguments, or our copies.
    let result = unsafe { function(how, pointer, &raw mut really) };
    if result != 0 {
        return result;
    }
    let really = mask_word(&really);
    let before = settle(this, how, mask, mask_word(&copy), really);
    // SAFETY: null or the caller's set.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = mask_set(really | if before { bit } else { 0 });
    }
    result
}

/// After the mask was set, which was this really: our signal is not blocked, the program believes
/// it is. What was really blocked is so by the kernel's doing, in the program's own handler for the
/// signal: there the program sets it really, since what it believes would outlive the handler,
/// whose end restores the mask. Gives what it believed before.
fn settle(this: &ThreadState, how: c_int, mask: Option<u64>, passed_on: u64, really: u64) -> bool {
    let bit = sys::bit(this.signal());
    let Some(mask) = mask.filter(|_| really & bit == 0) else {
        return this.belief.is_blocked();
    };
    let before = believe(how, mask);
    if how != libc::SIG_UNBLOCK && passed_on & bit != 0 {
        sys::signal_mask(libc::SIG_UNBLOCK, bit);
    }
    before
}

/// `rt_sigprocmask(2)`, which `ask` does. The kernel looks at the addresses first: there are
/// programs that find out by it whether one can be read.
///
/// # Safety
/// As the system call.
pub unsafe fn by_number(
    ask: impl Fn(c_int, *const u64, *mut u64) -> c_int,
    how: c_int,
    set: *const u64,
    old: *mut u64,
    size: usize,
) -> c_int {
    let known = [libc::SIG_BLOCK, libc::SIG_UNBLOCK, libc::SIG_SETMASK].contains(&how);
    let this = match known && size == size_of::<u64>() && PROCESS.is_active() {
        true => ThreadState::current(),
        false => None,
    };
    let Some(this) = this else {
        return ask(how, set, old);
    };
    let bit = sys::bit(follows(this));
    let mut really = 0;
    let result = ask(how, set, &raw mut really);
    if result != 0 {
        return result;
    }
    // SAFETY: the kernel has just read it.
    let mask = (!set.is_null()).then(|| unsafe { set.read_unaligned() });
    let before = settle(this, how, mask, mask.unwrap_or(0), really);
    if !old.is_null() {
        let result = ask(libc::SIG_BLOCK, ptr::null(), old);
        if result != 0 {
            return result;
        }
        // SAFETY: the kernel has just written it.
        unsafe { old.write_unaligned(really | if before { bit } else { 0 }) };
    }
    0
}

/// `pthread_sigmask(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { change(real::pthread_sigmask, how, set, old) }
}

/// `sigprocmask(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { change(real::sigprocmask, how, set, old) }
}

/// Notes a call that waits under a mask of its own, and gives the mask.
///
/// # Safety
/// Null, or a set of signals.
#[inline]
unsafe fn waits_under(number: c_long, a: &Arguments, set: u64) -> u64 {
    let Some(this) = ThreadState::current_unchecked() else {
        return set;
    };
    if this.calls.are_ended() {
        calls::note_some(&this.calls, number, a);
    }
    // SAFETY: the caller's promise.
    unsafe { without_signal_of(this, set) }
}

// SAFETY: (of all) the caller's set.
stand_in! {
    fn ppoll = |a| { a.fourth = unsafe { waits_under(libc::SYS_ppoll, a, a.fourth) }; };
    fn __ppoll_chk = |a| { a.fourth = unsafe { waits_under(libc::SYS_ppoll, a, a.fourth) }; };
    fn pselect = |a| { a.sixth = unsafe { waits_under(libc::SYS_pselect6, a, a.sixth) }; };
    fn sigsuspend = |a| { a.first = unsafe { waits_under(libc::SYS_rt_sigsuspend, a, a.first) }; };
    fn epoll_pwait = |a| {
        a.fifth = unsafe { without_ours(a.fifth) };
        calls::note_timed(libc::SYS_epoll_pwait, a, a.fourth);
    };
    fn epoll_pwait2 = |a| {
        a.fifth = unsafe { without_ours(a.fifth) };
        calls::note_pointed(libc::SYS_epoll_pwait2, a, a.fourth);
    };
    // It waits for nothing yet.
    fn signalfd = |a| {
        unsafe { leave_to_file(a.second as *const u64) };
        a.second = unsafe { without_ours(a.second) };
    };
}

/// A set of signals that the program is about to read from a file: what is read so is blocked for
/// real, and no sample may be raised by it.
///
/// # Safety
/// `set` is null or a set of the kernel's, which is the beginning of libc's.
pub unsafe fn leave_to_file(set: *const u64) {
    // SAFETY: the caller's promise.
    let mask = unsafe { set.as_ref() }.copied().unwrap_or(0);
    if let (true, Some(this)) = (PROCESS.is_active(), ThreadState::current())
        && mask & sys::bit(follows(this)) != 0
    {
        leave::leave_to_program(this.signal(), this);
    }
}

static SIGSUSPEND: Next = Next::new(c"sigsuspend");

/// `sigpause(3)` as a call of `sigsuspend` with that mask: where to go; `None` on a thread that is
/// not ours to sample.
fn suspends(a: &mut Arguments, mask: u64) -> Option<usize> {
    let this = ThreadState::current_unchecked()?;
    calls::note_if_needed(libc::SYS_rt_sigsuspend, a);
    a.first = this.calls.mask(mask & !sys::bit(this.signal()));
    SIGSUSPEND.address()
}

/// The mask without a signal, as X/Open's function takes it; `None` where it is no signal's number,
/// which the program's function says.
fn mask_without(signal: c_int) -> Option<u64> {
    let mut mask = mask_set(0);
    let is_signal = (1..=64).contains(&signal);
    // SAFETY: our set.
    let asked = unsafe { pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut mask) };
    (is_signal && asked == 0).then(|| mask_word(&mask) & !sys::bit(signal))
}

stand_in! {
    fn sigpause = |a| {
        if let Some(there) = suspends(a, u64::from(a.first as u32)) {
            return there;
        }
    };
    fn __xpg_sigpause = |a| {
        if let Some(there) = mask_without(a.first as c_int).and_then(|mask| suspends(a, mask)) {
            return there;
        }
    };
    // Either, as old programs were compiled.
    fn __sigpause = |a| {
        let mask = match a.second as c_int {
            0 => Some(u64::from(a.first as u32)),
            _ => mask_without(a.first as c_int),
        };
        if let Some(there) = mask.and_then(|mask| suspends(a, mask)) {
            return there;
        }
    };
}

/// `sigpending(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigpending(set: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's argument.
    let result = unsafe { real::sigpending(set) };
    // SAFETY: null or the caller's set.
    if let (0, Some(this), Some(set)) = (result, ThreadState::current(), unsafe { set.as_mut() })
        && PROCESS.is_active()
    {
        let bit = sys::bit(follows(this));
        *set = mask_set(
            mask_word(set) & !bit
                | if this.belief.is_owed() || this.belief.is_raised() {
                    bit
                } else {
                    0
                },
        );
    }
    result
}

/// `sigblock(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigblock(mask: c_int) -> c_int {
    // SAFETY: no pointers.
    unsafe { old_style(real::sigblock, libc::SIG_BLOCK, mask) }
}

/// `sigsetmask(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigsetmask(mask: c_int) -> c_int {
    // SAFETY: no pointers.
    unsafe { old_style(real::sigsetmask, libc::SIG_SETMASK, mask) }
}

unsafe fn old_style(
    function: unsafe extern "C" fn(c_int) -> c_int,
    how: c_int,
    mask: c_int,
) -> c_int {
    let (true, Some(this)) = (PROCESS.is_active(), ThreadState::current()) else {
        // SAFETY: the caller's argument.
        return unsafe { function(mask) };
    };
    let ours = sys::bit(follows(this)) as c_int;
    // SAFETY: a plain mask.
    let old = unsafe { function(mask & !ours) };
    if believe(how, mask as u32 as u64) {
        old | ours
    } else {
        old
    }
}

/// `sighold(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sighold(signal: c_int) -> c_int {
    if signal::is_taken(signal) && PROCESS.is_active() {
        hold(libc::SIG_BLOCK, signal);
        return 0;
    }
    // SAFETY: the caller's argument.
    unsafe { real::sighold(signal) }
}

/// `sigrelse(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigrelse(signal: c_int) -> c_int {
    if signal::is_taken(signal) && PROCESS.is_active() {
        hold(libc::SIG_UNBLOCK, signal);
        return 0;
    }
    // SAFETY: the caller's argument.
    unsafe { real::sigrelse(signal) }
}
