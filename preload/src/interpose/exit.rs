//! Ways out of a process that run no destructors.

use core::ffi::c_int;
use rsunwind::process::PROCESS;
use rsunwind::wire::thread::ThreadEndReason;

mod host {
    use super::c_int;
    crate::next! {
        fn _exit(status: c_int) -> () = leave(status);
        fn _Exit(status: c_int) -> () = leave(status);
        fn quick_exit(status: c_int) -> () = leave(status);
    }

    fn leave(status: c_int) {
        rsunwind::sys::exit_process(status);
    }
}

macro_rules! exits {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(status: c_int) -> ! {
                PROCESS.end(ThreadEndReason::ProcessExit);
                // SAFETY: the caller's argument.
                unsafe { host::$name(status) };
                rsunwind::sys::exit_process(status)
            }
        )*
    };
}

exits! { _exit _Exit quick_exit }
