//! Register, unregister, request: what the C functions do. Rust programs use [`super::api`].
//!
//! # Safety
//! A request holds all signals back while it changes the thread's mask, so that no entry comes
//! between.
#![allow(unsafe_code)]

use super::attend::{attend, prepare};
use super::counts::COUNTS;
use super::stack::Callback;
use super::{entry, table};
use crate::error::Error;
use crate::process::PROCESS;
use crate::signal::REQUESTED;
use crate::sys::{self, HeldBack};
use crate::thread::ThreadState;
use crate::thread::requests::Asked;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use engine::registers::Registers;

/// Registers a client; gives its number, which is positive.
///
/// # Errors
/// [`Error::Full`] beyond [`crate::thread::requests::CLIENTS`], [`Error::Memory`].
///
/// # Safety
/// `callback` may be called with `data` on any thread that the number is used on, where only what
/// is legal in a signal handler is legal, until [`unregister`] has succeeded. Libraries whose code
/// may be on a stack are not unloaded behind the runtime's back.
pub unsafe fn register(callback: Callback, data: *mut c_void) -> Result<i32, Error> {
    prepare()?;
    table::add(callback, data)
}

/// Takes a client out. When this is done none of its callbacks runs, and none will.
///
/// # Errors
/// [`Error::NoClient`]; [`Error::InCallback`] from within any callback on the same thread.
pub fn unregister(client: i32) -> Result<(), Error> {
    if inside_callback() {
        return Err(Error::InCallback);
    }
    table::remove(client)
}

/// Whether the calling thread is in a callback. The child of a vfork that one made is too: it runs
/// on the same memory.
fn inside_callback() -> bool {
    ThreadState::current_unchecked().is_some_and(|this| this.requests.is_inside())
}

/// Asks for a stack of the calling thread. The callback has run when this returns, unless the
/// signal is blocked on this thread, or this is called by a callback: then it runs when the thread
/// lets the signal through, or after that callback. What [`request_later`] has left is answered by
/// the same entry.
///
/// # Signal safety
/// Raw system calls.
///
/// # Errors
/// [`Error::NoClient`], [`Error::ForeignThread`], [`Error::Memory`].
pub fn request(client: i32) -> Result<Asked, Error> {
    request_all(&[client])
}

/// The same for several clients, by one entry; `already` if all of them had asked before.
///
/// # Signal safety
/// As above.
///
/// # Errors
/// As above, and nobody has asked; [`Error::Null`] without clients.
pub fn request_all(clients: &[i32]) -> Result<Asked, Error> {
    ask(clients, answer_held)
}

/// Asks for a stack of the calling thread, to be had from its next entry, whoever begins that.
///
/// # Signal safety
/// As above; no walk.
///
/// # Errors
/// As above.
pub fn request_later(client: i32) -> Result<Asked, Error> {
    ask(&[client], |_| ())
}

/// Has what the calling thread was asked for answered now.
///
/// # Signal safety
/// As above.
///
/// # Errors
/// [`Error::ForeignThread`], [`Error::Memory`].
pub fn answer() -> Result<(), Error> {
    let this = attend()?;
    let _held = hold_back(this);
    answer_held(this);
    Ok(())
}

/// The nonce of the entry under way on the calling thread, else of its next one.
///
/// # Signal safety
/// As above; no walk.
///
/// # Errors
/// [`Error::ForeignThread`], [`Error::Memory`].
pub fn nonce() -> Result<u64, Error> {
    let this = attend()?;
    let _held = hold_back(this);
    Ok(this.requests.nonce_of_entry())
}

/// Asks for clients; `then` runs with all signals held back.
fn ask(clients: &[i32], then: fn(&ThreadState)) -> Result<Asked, Error> {
    if clients.is_empty() {
        return Err(Error::Null);
    }
    for client in clients {
        table::find(*client)?;
    }
    let this = attend()?;
    let _held = hold_back(this);
    let mut all = Asked {
        nonce: this.requests.nonce_of_entry(),
        already: true,
    };
    for client in clients {
        // One that has been unregistered meanwhile is cancelled by the entry.
        all.already &= counted(this.requests.ask(table::known(*client))).already;
    }
    then(this);
    Ok(all)
}

/// In an entry all signals are held back already.
fn hold_back(this: &ThreadState) -> Option<HeldBack> {
    (!this.requests.is_inside()).then(HeldBack::all)
}

/// Answers what the calling thread was asked, if no entry is under way, which looks again before it
/// ends.
fn answer_held(this: &ThreadState) {
    let requests = &this.requests;
    if !requests.is_inside() && requests.any() && !ask_by_signal(this.signal()) {
        let registers = Registers::capture();
        // SAFETY: the calling thread's, not within an entry, all signals held back.
        unsafe { entry::serve_here(this, &registers, None) };
    }
}

fn counted((asked, is_displaced): (Asked, bool)) -> Asked {
    COUNTS
        .requests
        .fetch_add(u64::from(!asked.already), Relaxed);
    COUNTS.cancelled.fetch_add(u64::from(is_displaced), Relaxed);
    asked
}

/// Sends the thread its own signal, if the handler is in force and nothing may take offence.
fn ask_by_signal(signal: i32) -> bool {
    PROCESS.is_active() && !sys::seccomp_filtered() && sys::raise_with(signal, REQUESTED, 0).is_ok()
}
