//! The start of profiling: in the constructor of the preloaded library, before the program's own
//! code.
//!
//! # Safety
//! Runs once, on the only thread there is.
#![allow(unsafe_code)]

use super::identity::Identity;
use super::{charge, family, process};
use crate::config::{Config, Destination};
use crate::modules::{self, Auxiliary};
use crate::process::PROCESS;
use crate::segment::SEGMENT;
use crate::session;
use crate::shim;
use crate::signal;
use crate::sys::{self, Errno, filters};
use crate::thread::ThreadState;
use crate::trace_context;
use crate::trigger::cost;
use engine::affordable;
use engine::wire::process::Origin;

/// Why the program runs unprofiled.
#[derive(Clone, Copy, Debug)]
pub enum StartError {
    /// A setting is wrong.
    Config(crate::config::ConfigError),
    /// The session is over, or its collector gone: nothing to say, it is an outliving descendant.
    SessionOver,
    /// The file for samples could not be made; [`crate::segment::Segment::path`] names it.
    Segment(Errno),
    /// Memory could not be had.
    Memory(Errno),
    /// The signal's action could not be set.
    Signal(Errno),
}

/// Memory that is left to a program whose memory has a limit, bytes.
const LEFT: usize = 1 << 20;

/// Makes the memory that the runtime needs from the start, and gives the state of the first thread;
/// where that would leave too little to the program, nothing is taken.
///
/// # Errors
/// `ENOMEM`.
pub fn make_room(max_depth: usize) -> Result<*mut ThreadState, Errno> {
    modules::make_tables()?;
    let made = ThreadState::allocate(max_depth);
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
    let is_limited = limits.map(sys::soft_limit) != [u64::MAX; 2];
    let (Ok(state), true) = (made, is_limited) else {
        return made.inspect_err(|_| modules::give_tables_back());
    };
    match sys::map_anonymous(LEFT) {
        Ok(left) => {
            // SAFETY: made above.
            unsafe { sys::unmap(left, LEFT) };
            made
        }
        Err(errno) => {
            // SAFETY: made above.
            unsafe { give_room_back(state, max_depth) };
            Err(errno)
        }
    }
}

/// Gives that memory back.
///
/// # Safety
/// It came from [`make_room`] with that depth, and [`start`] did not succeed with it.
pub unsafe fn give_room_back(state: *mut ThreadState, max_depth: usize) {
    modules::give_tables_back();
    // SAFETY: the caller's promise.
    unsafe { ThreadState::unmake(state, max_depth) };
}

/// Sets the whole runtime up and arms the calling thread. Gives the signals for which libraries may
/// have set a handler by then, one bit for each.
///
/// # Errors
/// The program is then unprofiled, and unchanged.
///
/// # Safety
/// `state` came from [`ThreadState::allocate`] and is no other thread's.
pub unsafe fn start(
    config: &Config,
    state: *mut ThreadState,
    auxiliary: Auxiliary,
    origin: Origin,
) -> Result<u64, StartError> {
    charge::begin();
    family::begin();
    let mut foreign = None;
    if let Destination::Session(directory) = config.destination {
        SEGMENT.set_path(directory);
        let is_own = session::attach(directory).map_err(|error| match error {
            session::AttachError::Over => StartError::SessionOver,
            session::AttachError::Refused(errno) => StartError::Segment(errno),
        })?;
        foreign = Some(directory).filter(|_| !is_own);
    }
    modules::find_tables(auxiliary).map_err(StartError::Memory)?;
    // SAFETY: nothing of ours runs yet that reads it.
    unsafe { PROCESS.set_config(*config) };
    PROCESS.set_key_to_now();
    trace_context::find(auxiliary.headers);
    let identity = Identity::read(origin);
    process::create_segment(&identity).map_err(StartError::Segment)?;
    if let Some(directory) = foreign {
        process::introduce(&directory);
    }
    signal::choose(config.signal);
    shim::install(signal::current()).map_err(StartError::Signal)?;
    let first = affordable::beginning(config.period_ns, config.share, || {
        let cost = cost::of_event(config)?;
        PROCESS.set_event_cost_ns(cost);
        Some(cost)
    });
    PROCESS.set_period_ns(first.period_ns);
    let (cost, seen) = (PROCESS.event_cost_ns(), config.event_seen_ns);
    PROCESS.pace.begin(first, config.share, cost, seen);
    PROCESS.pace.price_switches(config.switch_cost_ns);
    PROCESS.pace.obey(session::Control::orders());
    filters::started();
    PROCESS.activate(state.cast());
    // SAFETY: the caller's promise: this thread's from now on.
    let this = unsafe { ThreadState::adopt_late(state) };
    // A mask inherited across exec.
    let ours = sys::bit(this.signal());
    let blocked = sys::signal_mask(libc::SIG_UNBLOCK, ours) & ours != 0;
    this.belief.set_blocked(blocked);
    process::record(this, &identity);
    modules::record_vdso(this);
    modules::record_own(this);
    modules::record_program(this, identity.executable());
    let [_, began_ns] = charge::began_at();
    let prepared_ns = this.cpu_ns().unwrap_or(0).saturating_sub(began_ns);
    PROCESS.pace.spend(prepared_ns);
    this.arm_program();
    Ok(identity.caught)
}
