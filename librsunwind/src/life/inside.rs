//! The life of a library that was brought into a process that runs: it begins and ends by order of
//! the collector, which stops one thread for a moment and has it call these functions, on a stack
//! of their own and with all signals held back. The collector opens the events, on each thread, and
//! closes them before the end.
//!
//! # Safety
//! The calls come one after the other: [`begin`], [`end`], and when no thread is in the handler any
//! more [`unmap`].
#![allow(unsafe_code)]

use super::identity::Identity;
use super::outside;
pub use super::outside::{Failure, Stage};
use crate::config::Config;
use crate::modules::Auxiliary;
use crate::process::PROCESS;
use crate::shim;
use crate::signal;
use crate::sys::{self, Errno};
use crate::thread;
use crate::thread::outside::entered;
use engine::wire::thread::ThreadEndReason;

/// Sets the runtime up, with the handler for SIGURG; signals with that `si_fd` are then samples.
///
/// # Errors
/// [`Failure`]; what was done until then is undone by [`end`] and [`unmap`].
pub fn begin(settings: &[u8], auxiliary: Auxiliary, descriptor: i32) -> Result<(), Failure> {
    let config = Config::parse(settings).map_err(|_| Errno(libc::EINVAL));
    let config = config.map_err(Stage::Settings.failed())?;
    outside::begin(&config, auxiliary, descriptor, &Identity::read_late()).map(drop)
}

/// The recording is over: the program has its action back, and accounts are closed.
///
/// # Errors
/// [`Failure`] if the action could not be put back; then memory must stay.
pub fn end() -> Result<(), Failure> {
    let this = entered();
    signal::give_up();
    shim::remove(libc::SIGURG).map_err(|errno| Failure {
        stage: Stage::Signal,
        errno,
    })?;
    // Stopped in the handler it may be about to write itself.
    if let Some(this) = this.filter(|this| !this.shared.is_walking()) {
        let reason = ThreadEndReason::Stopped;
        thread::for_each_other(Some(this), |other| this.close_account_of(other, reason));
        this.close_account_here(reason);
    }
    Ok(())
}

/// Takes away all memory but the library itself, of a fork child too, which has [`end`] called and
/// then this.
///
/// # Safety
/// [`end`] was called, and no thread is in the handler any more.
pub unsafe fn unmap() {
    // SAFETY: the caller's promise.
    unsafe { sys::unmap_all(PROCESS.is_new_child()) };
}
