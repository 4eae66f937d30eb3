//! The constructor and the destructor.

use crate::environment;
use crate::interpose::{exit, fork, handlers, signals, strict, syscalls};
use crate::plugins;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rsunwind::config::{Config, ConfigError};
use rsunwind::environment::{SETTINGS_KEY, variable};
use rsunwind::life::complaint::{self, Line, reason};
use rsunwind::life::start::{self, StartError};
use rsunwind::life::thread_end;
use rsunwind::modules::{Auxiliary, notes};
use rsunwind::process::PROCESS;
use rsunwind::segment::SEGMENT;
use rsunwind::thread::ThreadState;
use rsunwind::wire::process::Origin;
use rsunwind::{arch, sys};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destruct;

/// Where set-up in progress would be cut short.
static SETUP_STACK: AtomicUsize = AtomicUsize::new(0);

extern "C" fn construct() {
    // There a signal comes late, between two blocks of translated code, and a probe of memory has
    // valgrind complain on standard error. What runs is valgrind, which a collector samples from
    // outside.
    if arch::is_in_valgrind() {
        return;
    }
    notes::closing_is_seen();
    let settings = variable(SETTINGS_KEY);
    if let Some(settings) = settings {
        environment::remember();
        begin(settings);
    }
    // A program that is not recorded may ask for stacks; to one that could not be set up, nothing
    // is done.
    if settings.is_none() || PROCESS.is_active() {
        plugins::load();
    }
}

/// Set-up takes about as much stack, bytes.
const SETUP_STACK_SIZE: usize = 5 * sys::PAGE;

/// What set-up is told, and tells.
struct Beginning<'a> {
    settings: &'a [u8],
    state: *mut ThreadState,
    has_begun: bool,
}

/// Set-up runs on the stack of the handler that it sets up, so that it can be cut short without
/// harm to the program, however small its stack is. The handler may come in there meanwhile.
fn begin(settings: &CStr) {
    let settings = settings.to_bytes();
    let max_depth = Config::depth(settings);
    let state = match start::make_room(max_depth) {
        Ok(state) => state,
        Err(errno) => return complain(StartError::Memory(errno)),
    };
    let mut beginning = Beginning {
        settings,
        state,
        has_begun: false,
    };
    // SAFETY: it was just made.
    let top = unsafe { ThreadState::handler_stack_top(state) };
    sys::populate(
        (top as *mut u8).wrapping_sub(SETUP_STACK_SIZE),
        SETUP_STACK_SIZE,
    );
    let mut slot = 0usize;
    SETUP_STACK.store(&raw mut slot as usize, Relaxed);
    // SAFETY: a fresh stack; what it is told and the slot outlive the call.
    let finished = unsafe {
        let told = (&raw mut beginning).cast();
        arch::call_on_stack(set_up, told, top, &raw mut slot)
    };
    SETUP_STACK.store(0, Relaxed);
    if finished == 0 {
        sys::write_stderr(b"rsunwind: not profiled: internal error during set-up\n");
    } else if !beginning.has_begun {
        // SAFETY: set-up has not got as far as to use it.
        unsafe { start::give_room_back(state, max_depth) };
    }
}

unsafe extern "C" fn set_up(told: *mut c_void) {
    // SAFETY: `begin` passes one.
    let beginning = unsafe { &mut *told.cast::<Beginning<'_>>() };
    let begun = Config::parse(beginning.settings)
        .map_err(StartError::Config)
        // SAFETY: made for this thread.
        .and_then(|config| unsafe {
            start::start(
                &config,
                beginning.state,
                Auxiliary::of_process(),
                Origin::Exec,
            )
        });
    beginning.has_begun = begun.is_ok();
    match begun {
        Ok(caught) => {
            let measured = PROCESS.config().event_cost_ns.is_none();
            if let (true, Some(cost)) = (measured, PROCESS.event_cost_ns()) {
                environment::remember_cost(cost);
            }
            fork::register();
            thread_end::register();
            syscalls::find();
            // Whoever called libc may have set some that the kernel does not tell of.
            handlers::adopt(if signals::were_set() { !0 } else { caught });
            if let Some(this) = ThreadState::current() {
                this.handler_stack.lend(core::ptr::null_mut());
            }
            strict::look_back();
        }
        Err(StartError::SessionOver) => {}
        // It has the stacks copied.
        Err(StartError::Segment(_)) if complaint::is_left_to_collector() => {}
        Err(error) => complain(error),
    }
}

/// Cuts set-up short, if it is in progress.
pub fn give_up() {
    let slot = SETUP_STACK.load(Relaxed);
    if slot != 0 {
        // SAFETY: `construct` is waiting for the call that this runs below.
        unsafe { arch::abandon_call(*(slot as *const usize)) };
    }
}

extern "C" fn destruct() {
    exit::end();
}

/// The one line that says why the program runs unprofiled. Its text is not to be in the frame of
/// who calls this.
#[inline(never)]
fn complain(error: StartError) {
    let text = Line::new().then(complaint::NOT_PROFILED);
    let text = match error {
        StartError::Config(ConfigError { what, remedy }) => text
            .then(b"bad ")
            .then(what.as_bytes())
            .then(b" in RSUNWIND: ")
            .then(remedy.as_bytes()),
        StartError::Segment(errno) => complaint::cannot_write(text, &SEGMENT.path(), errno),
        StartError::Memory(errno) => text.then(b"no memory: ").then(reason(errno.0).as_bytes()),
        StartError::Signal(errno) => text
            .then(b"cannot handle SIGPROF: ")
            .then(reason(errno.0).as_bytes()),
        StartError::SessionOver => return,
    };
    sys::write_stderr(text.then(b"\n").bytes());
}
