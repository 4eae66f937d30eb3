//! Signal masks: our signal is never blocked for real, and programs read back the mask that they set.

use super::frame::call;
use super::shield::Shield;
use super::signals::{mask_set, mask_word};
use core::ffi::{c_int, c_void};
use core::ptr;
use rsunwind::process::PROCESS;
use rsunwind::thread::ThreadState;
use rsunwind::trigger::SIGNAL;
use rsunwind::{arch, sys};

type Set = *const libc::sigset_t;

mod host {
    use super::{Set, c_int, c_void};
    crate::next! {
        fn pthread_sigmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int = libc::ENOSYS;
        fn sigprocmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int = -1;
        fn ppoll(fds: *mut c_void, count: usize, timeout: *const c_void, set: Set) -> c_int = -1;
        fn __ppoll_chk(fds: *mut c_void, count: usize, timeout: *const c_void, set: Set, size: usize) -> c_int = -1;
        fn pselect(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, timeout: *const c_void, set: Set) -> c_int = -1;
        fn epoll_pwait(fd: c_int, events: *mut c_void, count: c_int, timeout: c_int, set: Set) -> c_int = -1;
        fn epoll_pwait2(fd: c_int, events: *mut c_void, count: c_int, timeout: *const c_void, set: Set) -> c_int = -1;
        fn sigpending(set: *mut libc::sigset_t) -> c_int = -1;
        fn signalfd(fd: c_int, set: Set, flags: c_int) -> c_int = -1;
        fn sigblock(mask: c_int) -> c_int = 0;
        fn sigsetmask(mask: c_int) -> c_int = 0;
        fn sighold(signal: c_int) -> c_int = -1;
        fn sigrelse(signal: c_int) -> c_int = -1;
    }
}

/// Records what the program believes of our signal after it changed its mask so; gives what it believed before. A signal that the
/// program was owed while it believed it blocked is sent now.
pub fn believe(how: c_int, mask: u64) -> bool {
    let Some(this) = ThreadState::current() else {
        return false;
    };
    let (before, named) = (this.believes_blocked, mask & sys::bit(SIGNAL) != 0);
    this.believes_blocked = match how {
        libc::SIG_BLOCK => before || named,
        libc::SIG_UNBLOCK => before && !named,
        _ => named,
    };
    if this.owed && !this.believes_blocked {
        this.owed = false;
        sys::send_to_thread(sys::gettid(), SIGNAL);
    }
    before
}

/// A set to pass on instead of the one that the program gave.
pub enum Passed {
    AsGiven(Set),
    /// With ours in it, or without.
    Changed(libc::sigset_t, bool),
}

impl Passed {
    /// A set of signals to wait for: never ours, which would be taken from the handler.
    ///
    /// # Safety
    /// `set` is null or a set.
    unsafe fn to_wait_for(set: Set) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::with(set, false) }
    }

    /// A mask to wait under: ours is held back for the wait on threads whose samples would end it, and let through on others. A program that
    /// handles the signal itself decides itself.
    ///
    /// # Safety
    /// `set` is null or a set.
    pub unsafe fn to_wait_under(set: Set, wanted: bool) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::with(set, wanted && Shield::is_needed()) }
    }

    unsafe fn with(set: Set, ours: bool) -> Self {
        // SAFETY: the caller's promise.
        match unsafe { set.as_ref() }.map(mask_word) {
            Some(mask) if PROCESS.is_active() => {
                let bit = sys::bit(SIGNAL);
                let mask = if ours { mask | bit } else { mask & !bit };
                Self::Changed(mask_set(mask), ours)
            }
            _ => Self::AsGiven(set),
        }
    }

    /// Whether our signal is held back by it.
    pub fn holds(&self) -> bool {
        matches!(self, Self::Changed(_, true))
    }

    /// The set.
    pub fn get(&self) -> Set {
        match self {
            Self::AsGiven(set) => *set,
            Self::Changed(set, _) => set,
        }
    }
}

/// # Safety
/// As the host's function.
unsafe fn change(
    function: unsafe extern "C" fn(c_int, Set, *mut libc::sigset_t) -> c_int,
    how: c_int,
    set: Set,
    old: *mut libc::sigset_t,
) -> c_int {
    // A thread that is not ours to sample keeps its mask to itself.
    let (true, Some(this)) = (PROCESS.is_active(), ThreadState::current()) else {
        // SAFETY: the caller's arguments.
        return unsafe { function(how, set, old) };
    };
    let shielded = this.shielded != 0;
    // SAFETY: null or the caller's set.
    let mask = unsafe { set.as_ref() }.map(mask_word);
    let copy = mask_set(mask.unwrap_or(0) & !sys::bit(SIGNAL));
    let pointer = if mask.is_some() {
        &raw const copy
    } else {
        ptr::null()
    };
    // SAFETY: the caller's arguments, or our copy.
    let result = unsafe { function(how, pointer, old) };
    if result != 0 {
        return result;
    }
    let before = match mask {
        Some(mask) => believe(how, mask),
        None => this.believes_blocked,
    };
    // What is really blocked is so in the program's own handler for the signal, or it is our doing.
    // SAFETY: null or the caller's set.
    if let Some(old) = unsafe { old.as_mut() } {
        let bit = sys::bit(SIGNAL);
        let hidden = if shielded { bit } else { 0 };
        *old = mask_set(mask_word(old) & !hidden | if before { bit } else { 0 });
    }
    result
}

/// `rt_sigprocmask(2)`, which `ask` does. The kernel looks at the addresses first: there are programs that find out by it whether one can be
/// read.
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
    let (bit, shielded) = (sys::bit(SIGNAL), this.shielded != 0);
    let mut really = 0;
    let result = ask(how, set, &raw mut really);
    if result != 0 {
        return result;
    }
    let before = match set.is_null() {
        true => this.believes_blocked,
        false => {
            // SAFETY: the kernel has just read it.
            let mask = unsafe { set.read_unaligned() };
            let before = believe(how, mask);
            if how != libc::SIG_UNBLOCK && mask & bit != 0 && really & bit == 0 {
                sys::signal_mask(libc::SIG_UNBLOCK, bit);
            }
            before
        }
    };
    if !old.is_null() {
        let result = ask(libc::SIG_BLOCK, ptr::null(), old);
        if result != 0 {
            return result;
        }
        let hidden = if shielded { bit } else { 0 };
        // SAFETY: the kernel has just written it.
        unsafe { old.write_unaligned(really & !hidden | if before { bit } else { 0 }) };
    }
    0
}

/// `pthread_sigmask(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { change(host::pthread_sigmask, how, set, old) }
}

/// `sigprocmask(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { change(host::sigprocmask, how, set, old) }
}

macro_rules! with_set {
    ($($name:ident($($before:ident: $before_type:ty,)* [$set:ident] $(, $after:ident: $after_type:ty)*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($before: $before_type,)* $set: Set $(, $after: $after_type)*) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe {
                    let passed = Passed::to_wait_under($set, true);
                    let sp = arch::stack_pointer();
                    let _shield = match passed {
                        Passed::Changed(_, held) => Shield::mark_if(held, sp),
                        // Without a mask of its own the call waits under the thread's.
                        Passed::AsGiven(_) => Shield::raise_if(true, &host::next::$name, sp),
                    };
                    call!(host::$name($($before,)* passed.get() $(, $after)*))
                }
            }
        )*
    };
}

with_set! {
    ppoll(fds: *mut c_void, count: usize, timeout: *const c_void, [set]);
    __ppoll_chk(fds: *mut c_void, count: usize, timeout: *const c_void, [set], size: usize);
    pselect(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, timeout: *const c_void, [set]);
    epoll_pwait(fd: c_int, events: *mut c_void, count: c_int, timeout: c_int, [set]);
    epoll_pwait2(fd: c_int, events: *mut c_void, count: c_int, timeout: *const c_void, [set]);
}

/// `signalfd(2)`. It waits for nothing yet.
#[unsafe(no_mangle)]
unsafe extern "C" fn signalfd(fd: c_int, set: Set, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { host::signalfd(fd, Passed::to_wait_for(set).get(), flags) }
}

/// `sigpause(3)` of BSD, which takes a mask.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigpause(mask: c_int) -> c_int {
    // SAFETY: our set.
    unsafe { super::waits::sigsuspend(&mask_set(u64::from(mask.cast_unsigned()))) }
}

/// `sigpause(3)` of X/Open, which takes a signal out of the mask.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xpg_sigpause(signal: c_int) -> c_int {
    let mut mask = mask_set(0);
    // SAFETY: our set; a number that is no signal's takes nothing out of it, which the host's function says.
    unsafe {
        if pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut mask) != 0
            || !(1..=64).contains(&signal)
        {
            rsunwind::errno::set(libc::EINVAL);
            return -1;
        }
        super::waits::sigsuspend(&mask_set(mask_word(&mask) & !sys::bit(signal)))
    }
}

/// Either, as old programs were compiled.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sigpause(mask_or_signal: c_int, is_signal: c_int) -> c_int {
    // SAFETY: as above.
    unsafe {
        match is_signal {
            0 => sigpause(mask_or_signal),
            _ => __xpg_sigpause(mask_or_signal),
        }
    }
}

/// `sigpending(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigpending(set: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's argument.
    let result = unsafe { host::sigpending(set) };
    // SAFETY: null or the caller's set.
    if let (0, Some(this), Some(set)) = (result, ThreadState::current(), unsafe { set.as_mut() })
        && PROCESS.is_active()
    {
        let bit = sys::bit(SIGNAL);
        *set = mask_set(mask_word(set) & !bit | if this.owed { bit } else { 0 });
    }
    result
}

/// `sigblock(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigblock(mask: c_int) -> c_int {
    // SAFETY: no pointers.
    unsafe { old_style(host::sigblock, libc::SIG_BLOCK, mask) }
}

/// `sigsetmask(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigsetmask(mask: c_int) -> c_int {
    // SAFETY: no pointers.
    unsafe { old_style(host::sigsetmask, libc::SIG_SETMASK, mask) }
}

unsafe fn old_style(
    function: unsafe extern "C" fn(c_int) -> c_int,
    how: c_int,
    mask: c_int,
) -> c_int {
    let ours = sys::bit(SIGNAL) as c_int;
    if !PROCESS.is_active() {
        // SAFETY: the caller's argument.
        return unsafe { function(mask) };
    }
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
    if signal == SIGNAL && PROCESS.is_active() {
        believe(libc::SIG_BLOCK, sys::bit(SIGNAL));
        return 0;
    }
    // SAFETY: the caller's argument.
    unsafe { host::sighold(signal) }
}

/// `sigrelse(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigrelse(signal: c_int) -> c_int {
    if signal == SIGNAL && PROCESS.is_active() {
        believe(libc::SIG_UNBLOCK, sys::bit(SIGNAL));
        return 0;
    }
    // SAFETY: the caller's argument.
    unsafe { host::sigrelse(signal) }
}
