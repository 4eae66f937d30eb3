//! The program's own use of our signal: its action is remembered and honoured, and ours stays
//! installed. Other signals' `sa_mask` is kept free of ours, their handlers are entered through
//! [`super::handlers`], and both read back as they were set.

use super::handlers;
use super::sets::{self, mask_set, mask_word, note_mask, with, without};
use crate::next::Next;
use core::ffi::c_int;
use core::ptr;
use rsunwind::config::SignalChoice;
use rsunwind::life::leave;
use rsunwind::process::PROCESS;
use rsunwind::signal;
use rsunwind::sys::{self, KernelAction};
use rsunwind::thread::{ThreadState, handler_stack};
use rsunwind::{program_signal, shim};

mod real {
    use super::c_int;
    crate::next! {
        fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int = super::fail(libc::ENOSYS);
        fn signal(signal: c_int, handler: usize) -> usize = usize::MAX;
        fn bsd_signal(signal: c_int, handler: usize) -> usize = usize::MAX;
        fn ssignal(signal: c_int, handler: usize) -> usize = usize::MAX;
        fn sysv_signal(signal: c_int, handler: usize) -> usize = usize::MAX;
        fn __sysv_signal(signal: c_int, handler: usize) -> usize = usize::MAX;
        fn sigset(signal: c_int, disposition: usize) -> usize = usize::MAX;
        fn sigignore(signal: c_int) -> c_int = -1;
        fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int = -1;
    }
}

/// Whether actions were set, or asked for, by a function of libc's.
pub fn were_set() -> bool {
    use real::next;
    let functions = [
        &next::sigaction,
        &next::signal,
        &next::bsd_signal,
        &next::ssignal,
        &next::sysv_signal,
        &next::__sysv_signal,
        &next::sigset,
    ];
    functions.into_iter().any(Next::is_known)
}

extern "C" fn fail(errno: i32) -> c_int {
    rsunwind::errno::set(errno);
    -1
}

/// What both of its names do. Not by way of each other: an exported name may be the program's. A
/// program that stands in front of libc's with one of its own, and goes on by `__sigaction`
/// (Erlang's), would come back to itself for ever.
unsafe fn set_action(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !PROCESS.is_active() {
        // SAFETY: the caller's arguments.
        let result = unsafe { real::sigaction(signal, new, old) };
        // SAFETY: null or the caller's structure.
        if let (0, Some(old)) = (result, unsafe { old.as_mut() }) {
            show(signal, old);
        }
        return result;
    }
    // SAFETY: null or the caller's structures.
    let (new, old) = unsafe { (new.as_ref(), old.as_mut()) };
    if let Some(new) = new
        && handlers::is_like_go(new.sa_flags as u32 as u64, mask_word(&new.sa_mask))
    {
        handler_stack::leave_visible();
    }
    if signal::is_taken(signal) {
        own_signal(signal, new, old)
    } else {
        other_signal(signal, new, old)
    }
}

/// `sigaction(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { set_action(signal, new, old) }
}

/// The same by the name that libc has for itself, and that some programs call.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { set_action(signal, new, old) }
}

/// `siginterrupt(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    if !signal::is_taken(signal) || !PROCESS.is_active() {
        // SAFETY: the caller's arguments.
        let result = unsafe { real::siginterrupt(signal, interrupts) };
        handlers::learn_flags(signal);
        return result;
    }
    let mut action = program_signal::action(signal);
    let restart = libc::SA_RESTART as u64;
    action.flags = match interrupts {
        0 => action.flags | restart,
        _ => action.flags & !restart,
    };
    program_signal::set_action(signal, action);
    0
}

fn own_signal(
    signal: c_int,
    new: Option<&libc::sigaction>,
    old: Option<&mut libc::sigaction>,
) -> c_int {
    let before = match new {
        Some(new) => set_own(
            signal,
            KernelAction {
                handler: new.sa_sigaction,
                flags: new.sa_flags as u32 as u64,
                restorer: 0,
                mask: mask_word(&new.sa_mask),
            },
        ),
        None => program_signal::action(signal),
    };
    if let Some(old) = old {
        *old = libc::sigaction {
            sa_sigaction: handlers::shown(before.handler),
            sa_mask: mask_set(before.mask),
            sa_flags: before.flags as c_int,
            sa_restorer: None,
        };
    }
    0
}

fn other_signal(
    signal: c_int,
    new: Option<&libc::sigaction>,
    mut old: Option<&mut libc::sigaction>,
) -> c_int {
    let ours = sys::bit(signal::current());
    let copy = new.map(|new| libc::sigaction {
        sa_sigaction: handlers::hide(new.sa_sigaction),
        sa_mask: match handlers::on_alternate_stack(signal, new.sa_flags as u32 as u64) {
            true => with(&new.sa_mask, ours),
            false => without(&new.sa_mask, ours),
        },
        ..*new
    });
    let new_pointer = copy.as_ref().map_or(ptr::null(), ptr::from_ref);
    let old_pointer = old.as_deref_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the caller's structures, or our copy.
    let result = unsafe { real::sigaction(signal, new_pointer, old_pointer) };
    if result != 0 || !(1..=64).contains(&signal) {
        return result;
    }
    if let Some(old) = old {
        show(signal, old);
    }
    if let Some(new) = new {
        handlers::note_flags(signal, new.sa_flags as u32 as u64);
        note_mask(signal, mask_word(&new.sa_mask));
    }
    result
}

/// Makes what the kernel says of a signal's action what the program set.
fn show(signal: c_int, action: &mut libc::sigaction) {
    action.sa_sigaction = handlers::shown(action.sa_sigaction);
    sets::show_mask(signal, &mut action.sa_mask);
}

/// Sets the program's action for our signal; gives the one before. By a handler it takes the signal
/// for itself.
fn set_own(signal: c_int, action: KernelAction) -> KernelAction {
    let before = program_signal::set_action(signal, action);
    // Go waits for each SIGURG that it sends to a thread: one that is lost behind a sample of ours
    // would stop it for good.
    let is_leaving = PROCESS.config().signal == SignalChoice::Auto
        || signal == libc::SIGURG && handlers::is_like_go(action.flags, action.mask);
    if handlers::is_function(action.handler)
        && is_leaving
        && let Some(this) = ThreadState::current()
    {
        leave::leave_to_program(signal, this);
    }
    before
}

/// Sets the program's handler for our signal as the `signal` family does; gives the one before.
fn simple(signal: c_int, handler: usize, flags: c_int) -> usize {
    let action = KernelAction {
        handler,
        flags: flags as u64,
        restorer: 0,
        mask: 0,
    };
    handlers::shown(set_own(signal, action).handler)
}

macro_rules! signal_family {
    ($($name:ident: $flags:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
                if signal::is_taken(signal) && PROCESS.is_active() {
                    return simple(signal, handler, $flags);
                }
                // SAFETY: the program's function.
                unsafe { through_entry(real::$name, signal, handler) }
            }
        )*
    };
}

/// Sets the handler of another signal.
///
/// # Safety
/// The function is one of the `signal` family.
unsafe fn through_entry(
    function: unsafe extern "C" fn(c_int, usize) -> usize,
    signal: c_int,
    handler: usize,
) -> usize {
    let handler = match PROCESS.is_active() {
        true => handlers::hide(handler),
        false => handler,
    };
    // SAFETY: the caller's promise.
    let before = unsafe { function(signal, handler) };
    handlers::learn_flags(signal);
    handlers::shown(before)
}

signal_family! {
    signal: libc::SA_RESTART;
    bsd_signal: libc::SA_RESTART;
    ssignal: libc::SA_RESTART;
    sysv_signal: libc::SA_RESETHAND | libc::SA_NODEFER;
    __sysv_signal: libc::SA_RESETHAND | libc::SA_NODEFER;
}

/// `sigset(3)`: a disposition, or `SIG_HOLD`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigset(signal: c_int, disposition: usize) -> usize {
    const SIG_HOLD: usize = 2;
    let hold = disposition == SIG_HOLD;
    if !signal::is_taken(signal) || !PROCESS.is_active() {
        // SAFETY: the program's function; holding sets no handler.
        return unsafe {
            match hold {
                true => handlers::shown(real::sigset(signal, disposition)),
                false => through_entry(real::sigset, signal, disposition),
            }
        };
    }
    let how = if hold {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    let before = super::masks::hold(how, signal);
    let handler = if hold {
        handlers::shown(program_signal::action(signal).handler)
    } else {
        simple(signal, disposition, 0)
    };
    if before { SIG_HOLD } else { handler }
}

/// `sigignore(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    if signal::is_taken(signal) && PROCESS.is_active() {
        simple(signal, libc::SIG_IGN, 0);
        return 0;
    }
    // SAFETY: the caller's argument.
    unsafe { real::sigignore(signal) }
}

mod host_profile {
    use super::c_int;
    crate::next! {
        fn profil(buffer: usize, size: usize, offset: usize, scale: u32) -> c_int = -1;
        fn sprofil(regions: usize, count: c_int, time: usize, flags: u32) -> c_int = -1;
        fn monstartup(low: usize, high: usize) -> () = ();
        fn __monstartup(low: usize, high: usize) -> () = ();
        fn moncontrol(mode: c_int) -> () = ();
    }
}

/// gprof's functions set their handler from within libc: it is remembered as the program's, and
/// ours put back.
macro_rules! gprof {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the caller's arguments.
                let result = unsafe { host_profile::$name($($argument),*) };
                if PROCESS.is_active() && signal::is_taken(libc::SIGPROF) {
                    let _ = shim::install(libc::SIGPROF);
                }
                result
            }
        )*
    };
}

gprof! {
    profil(buffer: usize, size: usize, offset: usize, scale: u32) -> c_int;
    sprofil(regions: usize, count: c_int, time: usize, flags: u32) -> c_int;
    monstartup(low: usize, high: usize) -> ();
    __monstartup(low: usize, high: usize) -> ();
    moncontrol(mode: c_int) -> ();
}
