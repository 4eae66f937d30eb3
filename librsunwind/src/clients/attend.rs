//! The state of threads that the runtime did not start, and the process's tables where it is not
//! recorded: made at the first call.
//!
//! A fork child finds the page of [`HOME`] wiped and begins anew; the child of a vfork finds its
//! parent's there, and is refused, because it runs on its parent's thread-local memory.
//!
//! # Safety
//! As [`crate::thread`]; signals are held back while a thread gets its state.
#![allow(unsafe_code)]

use super::table;
use crate::error::Error;
use crate::languages;
// Upwards: a thread that asks before the runtime knows it is born here, and its end is to be
// awaited.
use crate::life::thread_end;
use crate::modules::{self, Auxiliary};
use crate::process::PROCESS;
use crate::sys::{self, HeldBack, PAGE};
use crate::thread::ThreadState;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

/// A page that fork wipes; its word is the pid of the process that set it up.
static HOME: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Whether the process's tables are there: 0 not yet, 1 being made, 2 yes.
static PREPARED: AtomicU32 = AtomicU32::new(0);

/// Makes the process ready for clients: its module map and rule cache, unless the runtime has done
/// so, and the page.
pub(super) fn prepare() -> Result<(), Error> {
    if is_prepared() {
        return Ok(());
    }
    // A handler that came in between would wait for the code that it interrupted.
    let _held = HeldBack::all();
    loop {
        match PREPARED.compare_exchange(0, 1, AcqRel, Acquire) {
            Ok(_) => break,
            Err(1) => sys::yield_now(),
            Err(_) => return Ok(()),
        }
    }
    let made = make();
    PREPARED.store(if made.is_ok() { 2 } else { 0 }, Release);
    made
}

fn make() -> Result<(), Error> {
    if !PROCESS.was_started() {
        modules::find_tables(Auxiliary::of_process()).map_err(|_| Error::Memory)?;
    }
    thread_end::register();
    let page = sys::map_anonymous(PAGE).map_err(|_| Error::Memory)?;
    sys::advise(page, PAGE, libc::MADV_WIPEONFORK);
    // SAFETY: a fresh page, aligned.
    unsafe { (*page.cast::<AtomicU32>()).store(sys::getpid(), Relaxed) };
    HOME.store(page.cast(), Release);
    Ok(())
}

/// The calling thread's state, made if it has none.
///
/// # Signal safety
/// Raw system calls, and a store into libc's array of thread-specific values.
pub(super) fn attend() -> Result<&'static ThreadState, Error> {
    if let Some(this) = present()? {
        return Ok(this);
    }
    let _held = HeldBack::all();
    if let Some(this) = present()? {
        return Ok(this); // a signal's handler was here meanwhile
    }
    prepare()?;
    settle()?;
    let state = ThreadState::allocate(PROCESS.config().max_depth).map_err(|_| Error::Memory)?;
    // SAFETY: fresh, and this thread's from now on.
    let this = unsafe { ThreadState::adopt_late(state) };
    thread_end::expect_anywhere();
    #[cfg(feature = "outside")]
    if PROCESS.is_active() {
        crate::thread::outside::arm(this);
    }
    Ok(this)
}

fn present() -> Result<Option<&'static ThreadState>, Error> {
    match ThreadState::current_unchecked() {
        Some(this) if this.tid() == sys::gettid() => Ok(Some(this)),
        Some(_) => Err(Error::ForeignThread),
        None => Ok(None),
    }
}

/// Makes sure that this process is the one that was set up, or a fork child that now is.
fn settle() -> Result<(), Error> {
    // SAFETY: null or the page made above, which stays.
    let home = unsafe { HOME.load(Acquire).as_ref() }.ok_or(Error::Memory)?;
    let pid = sys::getpid();
    match home.load(Relaxed) {
        0 => {
            home.store(pid, Relaxed);
            if !PROCESS.is_active() {
                ThreadState::inherit(ptr::null_mut(), PROCESS.config().max_depth);
            }
            after_fork_in_child();
            Ok(())
        }
        owner if owner == pid => Ok(()),
        _ => Err(Error::ForeignThread),
    }
}

/// In a fork child: the parent's other threads are not here, so none of their callbacks is under
/// way.
pub fn after_fork_in_child() {
    languages::after_fork_in_child();
    table::forget_running();
}

/// Whether stacks may be walked in this process though it is not recorded.
pub fn is_prepared() -> bool {
    PREPARED.load(Acquire) == 2
}
