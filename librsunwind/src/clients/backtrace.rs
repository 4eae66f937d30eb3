//! A thread's own stack, walked at once in ordinary code: no client, no signal, no nonce.
//!
//! # Safety
//! Uses room of the thread's state that entries do not use, with signals held back.
#![allow(unsafe_code)]

use super::Error;
use super::attend::attend;
use crate::sample;
use crate::sys::HeldBack;
use engine::registers::Registers;

/// Fills `out` with where the calls under way return to, innermost first; gives how many. `registers` are those of the caller's own
/// frame, which is left out.
///
/// # Signal safety
/// Raw system calls and a walk, on the caller's stack, of which it takes up to 6 KiB.
///
/// # Errors
/// [`Error::ForeignThread`], [`Error::Memory`].
pub fn backtrace(registers: &Registers, out: &mut [usize]) -> Result<usize, Error> {
    let state = attend()?;
    let _held = HeldBack::all();
    // SAFETY: the calling thread's; in a callback the entry holds no reference, and the spare room is not its.
    let this = unsafe { &mut *state };
    let frames = sample::walk_aside(this, registers);
    let callers = frames.iter().skip(1);
    let filled = out
        .iter_mut()
        .zip(callers)
        .map(|(place, frame)| *place = frame.pc.0 as usize);
    Ok(filled.count())
}
