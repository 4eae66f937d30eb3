//! The beginning of a runtime whose events the collector opens, on each thread: nothing stands in
//! front of libc's functions. So no signal comes in a call, the program's alternate stacks stay as
//! they are, and its masks are never changed.
//!
//! # Safety
//! Runs once, before any signal of ours.
#![allow(unsafe_code)]

use super::identity::Identity;
use super::process;
use crate::clock;
use crate::config::{Config, Destination, SignalChoice};
use crate::modules::{self, Auxiliary};
use crate::process::PROCESS;
use crate::segment::SEGMENT;
use crate::session;
use crate::shim;
use crate::signal;
use crate::sys::Errno;
use crate::thread::{ThreadState, handler_stack, outside};
use crate::trigger;

/// Stages of [`begin`], as the collector is told of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Stage {
    pub(super) const fn failed(self) -> impl Fn(Errno) -> Failure {
        move |errno| Failure { stage: self, errno }
    }
}

/// Sets the runtime up, with the handler for SIGURG; signals with that `si_fd` are then samples.
/// Gives the state of the calling thread.
///
/// # Errors
/// [`Failure`]; what was done until then stays, and does nothing.
pub(super) fn begin(
    config: &Config,
    auxiliary: Auxiliary,
    descriptor: i32,
    identity: &Identity,
) -> Result<&'static ThreadState, Failure> {
    let Destination::Session(directory) = config.destination else {
        return Err(Stage::Settings.failed()(Errno(libc::EINVAL)));
    };
    SEGMENT.set_path(directory);
    session::attach(directory).map_err(|error| match error {
        session::AttachError::Over => Stage::Session.failed()(Errno(libc::ENOENT)),
        session::AttachError::Refused(errno) => Stage::Session.failed()(errno),
    })?;
    modules::find_tables(auxiliary).map_err(Stage::Memory.failed())?;
    // Threads may be forbidden to read the processor's counter, each for itself.
    clock::avoid_counter();
    handler_stack::leave_visible();
    // SAFETY: nothing of ours runs yet that reads it.
    unsafe { PROCESS.set_config(*config) };
    PROCESS.set_key_to_now();
    PROCESS.set_period_ns(config.period_ns);
    process::create_segment(identity).map_err(Stage::File.failed())?;
    signal::choose(SignalChoice::Urg);
    trigger::set_outside(descriptor);
    PROCESS.activate(core::ptr::null_mut());
    let this = outside::entered().ok_or(Errno(libc::ENOMEM));
    let this = this.map_err(Stage::Memory.failed())?;
    process::record(this, identity);
    modules::record_vdso(this);
    modules::record_program(this, identity.executable());
    shim::install(libc::SIGURG).map_err(Stage::Signal.failed())?;
    Ok(this)
}
