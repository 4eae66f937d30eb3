//! Threads that from now on may make no system calls but four: any of ours would have them killed.

use core::ffi::c_int;
use rsunwind::process::PROCESS;
use rsunwind::thread::ThreadState;

mod host {
    use super::c_int;
    crate::next! {
        fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int = -1;
    }
}

/// The calling thread enters that mode: it is not sampled any more.
pub fn enter() {
    if PROCESS.is_active()
        && let Some(this) = ThreadState::current()
    {
        this.disarm_for_good();
    }
}

/// Whether a call of `prctl` asks for it.
pub const fn is_asked_for(option: c_int, mode: usize) -> bool {
    option == libc::PR_SET_SECCOMP && mode == libc::SECCOMP_MODE_STRICT as usize
}

/// `prctl(2)`. It is variadic; its arguments lie where those of a function of five do.
#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if is_asked_for(option, a) {
        enter();
    }
    // SAFETY: the caller's arguments.
    unsafe { host::prctl(option, a, b, c, d) }
}
