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
use super::process;
use crate::clock;
use crate::config::{Config, Destination};
use crate::modules::{self, Auxiliary};
use crate::process::PROCESS;
use crate::segment::SEGMENT;
use crate::session;
use crate::shim;
use crate::signal;
use crate::sys::{self, Errno};
use crate::thread::{self, handler_stack, inside};
use crate::trigger;
use engine::wire::thread::ThreadEndReason;

/// Stages of [`begin`], as its result names them.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub enum Stage {
    /// The settings.
    Settings = 1,
    /// The session's control page.
    Session = 2,
    /// Memory.
    Memory = 3,
    /// The file that samples go to.
    File = 4,
    /// The signal's action.
    Signal = 5,
}

/// What did not succeed, and why.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// In which stage.
    pub stage: Stage,
    /// Why.
    pub errno: Errno,
}

/// Sets the runtime up, with the handler for SIGURG; signals with that `si_fd` are then samples.
///
/// # Errors
/// [`Failure`]; what was done until then is undone by [`end`] and [`unmap`].
pub fn begin(settings: &[u8], auxiliary: Auxiliary, descriptor: i32) -> Result<(), Failure> {
    let failed = |stage| move |errno| Failure { stage, errno };
    let config = Config::parse(settings).map_err(|_| Failure {
        stage: Stage::Settings,
        errno: Errno(libc::EINVAL),
    })?;
    let Destination::Session(directory) = config.destination else {
        return Err(failed(Stage::Settings)(Errno(libc::EINVAL)));
    };
    SEGMENT.set_path(directory);
    session::attach(directory).map_err(|error| match error {
        session::AttachError::Over => failed(Stage::Session)(Errno(libc::ENOENT)),
        session::AttachError::Refused(errno) => failed(Stage::Session)(errno),
    })?;
    modules::find_tables(auxiliary).map_err(failed(Stage::Memory))?;
    // Threads may be forbidden to read the processor's counter, each for itself.
    clock::avoid_counter();
    handler_stack::leave_visible();
    // SAFETY: nothing of ours runs yet that reads it.
    unsafe { PROCESS.set_config(config) };
    PROCESS.set_key_to_now();
    PROCESS.set_period_ns(config.period_ns);
    let identity = Identity::read_late();
    process::create_segment(&identity).map_err(failed(Stage::File))?;
    signal::choose(config.signal);
    trigger::set_outside(descriptor);
    PROCESS.activate(core::ptr::null_mut());
    let this = inside::entered().ok_or(Failure {
        stage: Stage::Memory,
        errno: Errno(libc::ENOMEM),
    })?;
    process::record(this, &identity);
    modules::record_vdso(this);
    modules::record_program(this, identity.executable());
    shim::install(libc::SIGURG).map_err(failed(Stage::Signal))
}

/// The recording is over: the program has its action back, and accounts are closed.
///
/// # Errors
/// [`Failure`] if the action could not be put back; then memory must stay.
pub fn end() -> Result<(), Failure> {
    let this = inside::entered();
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

/// Takes away all memory but the library itself.
///
/// # Safety
/// [`end`] was called, and no thread is in the handler any more.
pub unsafe fn unmap() {
    // SAFETY: the caller's promise.
    unsafe { sys::unmap_all() };
}
