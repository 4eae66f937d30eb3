//! For Rust programs. A process has one broker: that of the preloaded or linked library if there is
//! one, else the one that this crate brings. `include/rsunwind.h` describes the same for C, and
//! says what callbacks may do.
//!
//! # Safety
//! The library's functions have the signatures of its header, which the C interface's tests compile
//! against.
#![allow(unsafe_code)]

use super::stack::{Callback, Counts};
use super::{backtrace as own_backtrace, broker, counts as own_counts};
use crate::error::Error;
pub use crate::thread::requests::Asked;
use crate::thread::requests::CLIENTS;
use crate::weak_address;
use core::ffi::{c_int, c_void};
use engine::registers::Registers;

/// A registered client. It stays registered until [`Client::unregister`]; dropping it changes
/// nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Client(i32);

fn function<T>(address: usize) -> Option<T> {
    // SAFETY: `T` is the type of the function whose address it is.
    (address != 0).then(|| unsafe { core::mem::transmute_copy::<usize, T>(&address) })
}

fn checked(result: c_int) -> Result<c_int, Error> {
    if result >= 0 {
        return Ok(result);
    }
    Err(Error::from_number(result.wrapping_neg()).unwrap_or(Error::Memory))
}

impl Client {
    /// Registers a client.
    ///
    /// # Errors
    /// [`Error::Full`] beyond 62 clients, [`Error::Memory`].
    ///
    /// # Safety
    /// `callback` may be called with `data` on any thread that this client is used on, until it is
    /// unregistered, and does only what is legal in a signal handler. Without the library (which
    /// stands in front of `dlclose`), no code that may be on a stack is unloaded.
    pub unsafe fn register(callback: Callback, data: *mut c_void) -> Result<Self, Error> {
        type Register = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;
        let number = match function::<Register>(weak_address!("rsunwind_register")) {
            // SAFETY: the caller's promise.
            Some(register) => checked(unsafe { register(callback, data) })?,
            // SAFETY: the caller's promise.
            None => unsafe { broker::register(callback, data) }?,
        };
        Ok(Self(number))
    }

    /// Asks for a stack of the calling thread.
    ///
    /// # Signal safety
    /// May be called in signal handlers and in callbacks.
    ///
    /// # Errors
    /// [`Error::NoClient`], [`Error::ForeignThread`], [`Error::Memory`].
    pub fn request(&self) -> Result<Asked, Error> {
        type Request = unsafe extern "C" fn(c_int, *mut u64) -> c_int;
        let Some(request) = function::<Request>(weak_address!("rsunwind_request")) else {
            return broker::request(self.0);
        };
        let mut nonce = 0;
        // SAFETY: the place is ours.
        let already = checked(unsafe { request(self.0, &raw mut nonce) })? != 0;
        Ok(Asked { nonce, already })
    }

    /// Asks for a stack of the calling thread that its next entry shows, whoever begins that: the
    /// next request, a sample, [`answer`], the thread's end. All who ask in this way before it, and
    /// who begins it, share its walk and its nonce.
    ///
    /// # Signal safety
    /// May be called in signal handlers and in callbacks. No walk is made.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn request_later(&self) -> Result<Asked, Error> {
        type Request = unsafe extern "C" fn(c_int, *mut u64) -> c_int;
        let Some(request) = function::<Request>(weak_address!("rsunwind_request_later")) else {
            return broker::request_later(self.0);
        };
        let mut nonce = 0;
        // SAFETY: the place is ours.
        let already = checked(unsafe { request(self.0, &raw mut nonce) })? != 0;
        Ok(Asked { nonce, already })
    }

    /// Takes the client out and waits until none of its callbacks runs; none will afterwards.
    ///
    /// # Errors
    /// [`Error::InCallback`] from within a callback, with the client, which stays registered.
    pub fn unregister(self) -> Result<(), (Self, Error)> {
        type Unregister = unsafe extern "C" fn(c_int) -> c_int;
        let done = match function::<Unregister>(weak_address!("rsunwind_unregister")) {
            // SAFETY: no memory involved.
            Some(unregister) => checked(unsafe { unregister(self.0) }).map(|_| ()),
            None => broker::unregister(self.0),
        };
        done.map_err(|error| (self, error))
    }
}

/// Asks for several clients at once: one walk, one nonce. `already` if all of them had asked
/// before.
///
/// # Signal safety
/// As [`Client::request`].
///
/// # Errors
/// As [`Client::request`], and nobody has asked; [`Error::Null`] for none, or more than there can
/// be.
pub fn request_all(clients: &[&Client]) -> Result<Asked, Error> {
    type Request = unsafe extern "C" fn(*const c_int, usize, *mut u64) -> c_int;
    let mut numbers = [0; CLIENTS];
    let numbers = numbers.get_mut(..clients.len()).ok_or(Error::Null)?;
    for (number, client) in numbers.iter_mut().zip(clients) {
        *number = client.0;
    }
    let Some(request) = function::<Request>(weak_address!("rsunwind_request_all")) else {
        return broker::request_all(numbers);
    };
    let mut nonce = 0;
    // SAFETY: so many numbers; the place is ours.
    let result = unsafe { request(numbers.as_ptr(), numbers.len(), &raw mut nonce) };
    let already = checked(result)? != 0;
    Ok(Asked { nonce, already })
}

/// Has what [`Client::request_later`] has left on this thread answered now.
///
/// # Signal safety
/// As [`Client::request`].
///
/// # Errors
/// [`Error::ForeignThread`], [`Error::Memory`].
pub fn answer() -> Result<(), Error> {
    type Answer = unsafe extern "C" fn() -> c_int;
    match function::<Answer>(weak_address!("rsunwind_answer")) {
        // SAFETY: no memory involved.
        Some(answer) => checked(unsafe { answer() }).map(|_| ()),
        None => broker::answer(),
    }
}

/// The nonce of the entry under way on this thread, else of its next one.
///
/// # Signal safety
/// As [`Client::request`]. No walk is made.
///
/// # Errors
/// As above.
pub fn nonce() -> Result<u64, Error> {
    type Nonce = unsafe extern "C" fn(*mut u64) -> c_int;
    let Some(function) = function::<Nonce>(weak_address!("rsunwind_nonce")) else {
        return broker::nonce();
    };
    let mut nonce = 0;
    // SAFETY: the place is ours.
    checked(unsafe { function(&raw mut nonce) })?;
    Ok(nonce)
}

/// Fills `out` with the addresses that the calls under way return to, the caller's own first; gives
/// how many. Of a stack deeper than 1,024 frames the innermost 768 are had.
///
/// # Signal safety
/// May be called anywhere; takes up to 6 KiB of the caller's stack.
///
/// # Errors
/// [`Error::ForeignThread`], [`Error::Memory`].
#[inline(never)]
pub fn backtrace(out: &mut [usize]) -> Result<usize, Error> {
    own_backtrace::backtrace(&Registers::capture(), out)
}

/// What has happened in the process so far.
#[must_use]
pub fn counts() -> Counts {
    type CountsFunction = unsafe extern "C" fn(*mut Counts) -> c_int;
    let Some(function) = function::<CountsFunction>(weak_address!("rsunwind_counts")) else {
        return own_counts::counts();
    };
    let mut counts = Counts::default();
    // SAFETY: the place is ours.
    unsafe { function(&raw mut counts) };
    counts
}
