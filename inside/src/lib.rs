//! The library that the collector brings into a process that runs (`record -p --how inside`). It is
//! mapped and relocated from outside; the collector has one thread call the functions here, on a
//! stack of their own and with all signals held back. It stands in front of no function of libc and
//! has no thread-local storage.
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

#[path = "../../preload/src/memory_functions.rs"]
mod memory_functions;

use core::slice;
use rsunwind::life::inside::{self, Failure};
use rsunwind::modules::Auxiliary;

/// Calls the function in rax, and stops: the collector is told by the trap.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn rsunwind_inside_call() {
    core::arch::naked_asm!("call rax", "int3")
}

/// What the collector tells: its layout is known there.
#[repr(C)]
pub struct Arrival {
    settings: *const u8,
    settings_length: usize,
    vdso: usize,
    entry: u64,
    above_stack: u64,
    descriptor: i64,
}

/// 0, or the stage and errno of what did not succeed.
fn result(done: Result<(), Failure>) -> u64 {
    match done {
        Ok(()) => 0,
        Err(Failure { stage, errno }) => (stage as u64) << 32 | u64::from(errno.0 as u32),
    }
}

/// Begins.
///
/// # Safety
/// As [`inside::begin`]; the arrival is whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsunwind_inside_begin(arrival: *const Arrival) -> u64 {
    // SAFETY: the caller's promise.
    let (arrival, settings) = unsafe {
        let arrival = &*arrival;
        let settings = slice::from_raw_parts(arrival.settings, arrival.settings_length);
        (arrival, settings)
    };
    let auxiliary = Auxiliary {
        vdso: arrival.vdso,
        entry: arrival.entry,
        by_loader: false,
        headers: (0, 0),
        above_stack: arrival.above_stack,
        is_secure: true,
    };
    result(inside::begin(
        settings,
        auxiliary,
        arrival.descriptor as i32,
    ))
}

/// Ends.
#[unsafe(no_mangle)]
pub extern "C" fn rsunwind_inside_end() -> u64 {
    result(inside::end())
}

/// Takes all memory away but the library itself.
///
/// # Safety
/// As [`inside::unmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsunwind_inside_unmap() -> u64 {
    // SAFETY: the caller's promise.
    unsafe { inside::unmap() };
    0
}

#[panic_handler]
fn on_panic(_: &core::panic::PanicInfo<'_>) -> ! {
    rsunwind::shim::give_up_sample();
    loop {
        rsunwind::sys::yield_now();
    }
}
