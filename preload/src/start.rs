//! The constructor and the destructor.

use crate::environment;
use crate::interpose::{fork, handlers, syscalls};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rsunwind::config::{Config, ConfigError};
use rsunwind::process::{Auxiliary, PROCESS, StartError};
use rsunwind::segment::SEGMENT;
use rsunwind::text::Text;
use rsunwind::wire::process::Origin;
use rsunwind::wire::thread::ThreadEndReason;
use rsunwind::{arch, sys, thread};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destruct;

/// Where set-up in progress would be cut short.
static SETUP_STACK: AtomicUsize = AtomicUsize::new(0);

const SETUP_STACK_SIZE: usize = 128 * 1024;

extern "C" fn construct() {
    let Some(settings) = environment::variable(b"RSUNWIND") else {
        return;
    };
    environment::remember();
    // Set-up runs on a stack of its own, so that it can be cut short without harm to the host, however small its stack is.
    let Ok(stack) = sys::map_anonymous(SETUP_STACK_SIZE) else {
        return;
    };
    let mut slot = 0usize;
    SETUP_STACK.store(&raw mut slot as usize, Relaxed);
    let top = stack as usize + SETUP_STACK_SIZE;
    // SAFETY: a fresh stack; the slot outlives the call.
    let finished = unsafe {
        arch::call_on_stack(set_up, settings.as_ptr() as *mut c_void, top, &raw mut slot)
    };
    SETUP_STACK.store(0, Relaxed);
    if finished == 0 {
        sys::write_stderr(b"rsunwind: not profiled: internal error during set-up\n");
    }
    // SAFETY: the call is over.
    unsafe { sys::unmap(stack, SETUP_STACK_SIZE) };
}

unsafe extern "C" fn set_up(settings: *mut c_void) {
    // SAFETY: `construct` passes a C string of the environment.
    let settings = unsafe { CStr::from_ptr(settings as *const c_char) };
    let started = Config::parse(settings.to_bytes())
        .map_err(StartError::Config)
        .and_then(|config| PROCESS.start(config, Auxiliary::of_process(), Origin::Exec));
    match started {
        Ok(()) => {
            fork::register();
            thread::end::register();
            syscalls::find();
            handlers::adopt();
        }
        Err(StartError::SessionOver) => {}
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
    PROCESS.end(ThreadEndReason::ProcessExit);
}

/// The one line that says why the program runs unprofiled.
fn complain(error: StartError) {
    let text = Text::<1400>::new().then(b"rsunwind: not profiled: ");
    let text = match error {
        StartError::Config(ConfigError { what, remedy }) => text
            .then(b"bad ")
            .then(what.as_bytes())
            .then(b" in RSUNWIND: ")
            .then(remedy.as_bytes()),
        StartError::Segment(errno) => text
            .then(b"cannot write ")
            .then(SEGMENT.path().bytes())
            .then(b": ")
            .then(reason(errno.0).as_bytes()),
        StartError::Memory(errno) => text.then(b"no memory: ").then(reason(errno.0).as_bytes()),
        StartError::Signal(errno) => text
            .then(b"cannot handle SIGPROF: ")
            .then(reason(errno.0).as_bytes()),
        StartError::SessionOver => return,
    };
    sys::write_stderr(text.then(b"\n").bytes());
}

/// What the likely errors mean, and the remedy.
fn reason(errno: i32) -> &'static str {
    match errno {
        libc::ENOENT | libc::ENOTDIR => {
            "no such directory; create it, or set RSUNWIND=output=PATH to another"
        }
        libc::EACCES | libc::EPERM | libc::EROFS => {
            "permission denied; set RSUNWIND=output=PATH to a writable place"
        }
        libc::ENOSPC | libc::EDQUOT => {
            "no space left; free some, or set RSUNWIND=output=PATH to another disk"
        }
        libc::EFBIG => "the file size limit is reached; raise it with ulimit -f",
        libc::ENOMEM => "the address space limit is reached; raise it with ulimit -v",
        libc::ELOOP => "it is a symbolic link; name the file itself",
        libc::EISDIR => "it is a directory; name a file",
        libc::EMFILE | libc::ENFILE => "no file descriptor left; raise the limit with ulimit -n",
        libc::EPROTO => "the session is of another version of rsunwind",
        _ => "see the error number in a system call trace",
    }
}
