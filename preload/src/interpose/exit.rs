//! Ways out of a process that run no destructors.

use super::strict;
use core::ffi::c_int;
use rsunwind::life::process;
use rsunwind::wire::thread::ThreadEndReason;

mod real {
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

/// Closes the process's accounts, where a filter that it has put on does not see to it that this is
/// its end in another way.
pub fn end() {
    if !strict::is_put_on() {
        process::end(ThreadEndReason::ProcessExit);
    }
}

macro_rules! exits {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(status: c_int) -> ! {
                end();
                // SAFETY: the caller's argument.
                unsafe { real::$name(status) };
                rsunwind::sys::exit_process(status)
            }
        )*
    };
}

exits! { _exit _Exit quick_exit }
