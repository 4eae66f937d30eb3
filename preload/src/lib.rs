//! The library that LD_PRELOAD puts into a program: it sets the runtime up before `main` and keeps
//! it right across threads, fork, exec, signals, dlclose and exit, by standing in front of the libc
//! functions of `interpose`.
//!
//! It has no DT_NEEDED and no strong undefined symbol: what it needs of libc it takes from whatever
//! libc the program has.
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

mod environment;
mod exports;
mod interpose;
mod memory_functions;
mod next;
mod plugins;
mod program_file;
mod stand_in;
mod start;

#[panic_handler]
fn on_panic(_: &core::panic::PanicInfo<'_>) -> ! {
    rsunwind::shim::give_up_sample();
    start::give_up();
    loop {
        rsunwind::sys::yield_now();
    }
}
