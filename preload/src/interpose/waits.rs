//! Waiting for signals: our own is taken out of the sets, or it would be taken from the handler. A program that waits for that very signal
//! still gets its own; where it waits for handlers to run, a wait that only ours has ended goes on.

use super::frame::call;
use super::masks::Passed;
use super::shield::Shield;
use super::signals::{mask_set, mask_word};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use rsunwind::handler::{self, SignalInfo};
use rsunwind::process::PROCESS;
use rsunwind::sys::HeldBack;
use rsunwind::thread::ThreadState;
use rsunwind::trigger::SIGNAL;
use rsunwind::{arch, clock, sys};

type Set = *const libc::sigset_t;

mod host {
    use super::{Set, c_int, c_void};
    crate::next! {
        fn sigwaitinfo(set: Set, info: *mut c_void) -> c_int = -1;
        fn sigtimedwait(set: Set, info: *mut c_void, timeout: *const c_void) -> c_int = -1;
        fn pause() -> c_int = -1;
        fn sigsuspend(set: Set) -> c_int = -1;
    }
}

/// `sigtimedwait(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigtimedwait(
    set: Set,
    info: *mut c_void,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: null or the caller's set.
    let mask = unsafe { set.as_ref() }.map_or(0, mask_word);
    let (true, Some(this)) = (PROCESS.is_active(), ThreadState::current()) else {
        // SAFETY: the caller's arguments.
        return unsafe { host::sigtimedwait(set, info, timeout.cast()) };
    };
    if mask & sys::bit(SIGNAL) != 0 && this.believes_blocked {
        // SAFETY: the caller's arguments.
        return unsafe { wait_for_it(this, set, info, timeout) };
    }
    let _shield = Shield::raise_if(true, &host::next::sigtimedwait, arch::stack_pointer());
    let others = mask_set(mask & !sys::bit(SIGNAL));
    let timeout = timeout.cast::<c_void>();
    // SAFETY: the host's function, and the caller's arguments or our copy.
    unsafe { call!(host::sigtimedwait(&raw const others, info, timeout)) }
}

/// Waits for signals of which ours is one: blocked for real meanwhile, so that either kind is seen here.
///
/// # Safety
/// As `sigtimedwait`.
unsafe fn wait_for_it(
    this: &mut ThreadState,
    set: Set,
    info: *mut c_void,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: all zeros is a siginfo.
    let mut own: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let info = if info.is_null() {
        (&raw mut own).cast()
    } else {
        info
    };
    // SAFETY: null or the caller's time.
    let limit = unsafe { timeout.as_ref() }.map(|time| {
        (time.tv_sec as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add(time.tv_nsec as u64)
    });
    let began = clock::monotonic_ns();
    let _held = HeldBack::new(SIGNAL);
    let _marked = Shield::mark_if(true, arch::stack_pointer());
    if core::mem::take(&mut this.owed) {
        sys::send_to_thread(sys::gettid(), SIGNAL);
    }
    handler::set_waiting(true);
    let result = loop {
        let left = limit
            .map(|limit| limit.saturating_sub(clock::monotonic_ns().saturating_sub(began)))
            .map(|left| libc::timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as i64,
            });
        // SAFETY: the caller's arguments, or our own.
        let result: c_int = unsafe {
            match &left {
                Some(left) => {
                    let left = ptr::from_ref(left).cast::<c_void>();
                    call!(host::sigtimedwait(set, info, left))
                }
                None => call!(host::sigwaitinfo(set, info)),
            }
        };
        // SAFETY: filled by the call; both describe the kernel's structure.
        if result != SIGNAL || !handler::is_ours(unsafe { &*info.cast::<SignalInfo>() }, this) {
            break result;
        }
    };
    handler::set_waiting(false);
    result
}

/// `sigwaitinfo(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigwaitinfo(set: Set, info: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { sigtimedwait(set, info, ptr::null()) }
}

/// `sigwait(3)`, which says what is wrong by its result.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigwait(set: Set, signal: *mut c_int) -> c_int {
    loop {
        // SAFETY: the caller's set.
        let result = unsafe { sigtimedwait(set, ptr::null_mut(), ptr::null()) };
        match (result, rsunwind::errno::get()) {
            (-1, libc::EINTR) => {}
            (-1, errno) => return errno,
            _ => {
                // SAFETY: the caller's place.
                unsafe { *signal = result };
                return 0;
            }
        }
    }
}

/// `pause(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pause() -> c_int {
    let open = handler::program_handles();
    until_theirs(open, || {
        let sp = arch::stack_pointer();
        let _shield = Shield::raise_if(!open, &host::next::pause, sp);
        // SAFETY: the host's function.
        unsafe { call!(host::pause()) }
    })
}

/// `sigsuspend(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(set: Set) -> c_int {
    let open = handler::program_handles();
    until_theirs(open, || {
        // SAFETY: the caller's set.
        let passed = unsafe { Passed::to_wait_under(set, !open) };
        let _shield = Shield::mark_if(passed.holds(), arch::stack_pointer());
        // SAFETY: the host's function, and the caller's set or ours.
        unsafe { call!(host::sigsuspend(passed.get())) }
    })
}

/// Waits for a handler of the program's; where our signal is let in, again after one of ours. Between two waits a signal of the program's can come
/// and be waited for in vain; so it can before the first of `pause`, and `sigsuspend` has it blocked there.
fn until_theirs(open: bool, wait: impl Fn() -> c_int) -> c_int {
    let runs = || {
        ThreadState::current_unchecked()
            .map_or((0, 0), |this| (this.handled, this.walking.load(Relaxed)))
    };
    loop {
        let (theirs, ours) = runs();
        let result = wait();
        let (theirs_now, ours_now) = runs();
        if !open || theirs_now != theirs || ours_now == ours {
            return result;
        }
    }
}
