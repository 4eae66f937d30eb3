//! New threads: armed before their function runs, with our signal unblocked.

use core::ffi::{c_int, c_void};
use rsunwind::life::{follow, process, thread_end};
use rsunwind::process::PROCESS;
use rsunwind::sys::{self, HeldBack};
use rsunwind::thread::{Start, ThreadState};

type PosixFunction = extern "C" fn(*mut c_void) -> *mut c_void;
type C11Function = extern "C" fn(*mut c_void) -> c_int;

mod real {
    use super::{c_int, c_void};
    crate::next! {
        fn pthread_create(thread: *mut c_void, attributes: *const c_void, function: usize, argument: *mut c_void) -> c_int = libc::EAGAIN;
        fn thrd_create(thread: *mut c_void, function: usize, argument: *mut c_void) -> c_int = 2 /* thrd_error */;
    }
}

/// `pthread_create(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    function: usize,
    argument: *mut c_void,
) -> c_int {
    let (function, argument, state) =
        prepared(function, argument, posix_trampoline as *const () as usize);
    // SAFETY: the caller's arguments, or ours of the same types.
    let result = unsafe { real::pthread_create(thread, attributes, function, argument) };
    give_back_unless(result == 0, state);
    result
}

/// `thrd_create(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn thrd_create(
    thread: *mut c_void,
    function: usize,
    argument: *mut c_void,
) -> c_int {
    let (function, argument, state) =
        prepared(function, argument, c11_trampoline as *const () as usize);
    // SAFETY: as above.
    let result = unsafe { real::thrd_create(thread, function, argument) };
    give_back_unless(result == 0, state);
    result
}

/// What to start instead: the trampoline with a fresh state, or the function itself where there can
/// be none.
fn prepared(
    function: usize,
    argument: *mut c_void,
    trampoline: usize,
) -> (usize, *mut c_void, Option<*mut ThreadState>) {
    // A thread that has a live state is one of the process that all was set up for: the kernel need
    // not be asked for that, too.
    let this = ThreadState::current();
    if !PROCESS.was_started() || this.is_none() && !PROCESS.is_active() {
        return (function, argument, None);
    }
    this.inspect(|this| process::finish_early(this));
    let Ok(state) = ThreadState::allocate(PROCESS.config().max_depth) else {
        return (function, argument, None);
    };
    let inherited = this.map(|this| {
        follow::follow(this);
        (this.signal(), this.belief.is_blocked())
    });
    // SAFETY: fresh, and not yet any thread's.
    unsafe {
        let this = &*state;
        this.birth.start.set(Start { function, argument });
        // What it believes is of that signal, wherever the process goes over to before the thread
        // runs.
        if let Some((signal, blocked)) = inherited {
            this.belief.set_signal(signal);
            this.belief.set_blocked(blocked);
        }
    }
    (trampoline, state.cast(), Some(state))
}

fn give_back_unless(started: bool, state: Option<*mut ThreadState>) {
    if let (false, Some(state)) = (started, state) {
        // SAFETY: no thread was started with it.
        unsafe { ThreadState::release(state) };
    }
}

extern "C" fn posix_trampoline(state: *mut c_void) -> *mut c_void {
    let start = begin(state);
    // SAFETY: what `pthread_create` was given.
    let function = unsafe { core::mem::transmute::<usize, PosixFunction>(start.function) };
    function(start.argument)
}

extern "C" fn c11_trampoline(state: *mut c_void) -> c_int {
    let start = begin(state);
    // SAFETY: what `thrd_create` was given.
    let function = unsafe { core::mem::transmute::<usize, C11Function>(start.function) };
    function(start.argument)
}

fn begin(state: *mut c_void) -> Start {
    // SAFETY: from `prepared`, and this thread's from now on.
    let this = unsafe { ThreadState::adopt(state.cast()) };
    this.handler_stack.lend_anew();
    thread_end::expect();
    let held = HeldBack::ours();
    // Really blocked only where a thread attribute says so.
    let was_blocked = held.found_blocked(this.signal());
    if was_blocked {
        this.belief.set_blocked(true);
    }
    this.arm_thread(&held);
    drop(held);
    if was_blocked {
        sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(this.signal()));
    }
    this.birth.start.get()
}
