//! A thread's own stack, walked at once in ordinary code: no client, no signal, no nonce.
//!
//! # Safety
//! Uses room of the thread's state that entries do not use, with signals held back.
#![allow(unsafe_code)]

use super::attend::attend;
use crate::error::Error;
use crate::sample;
use crate::sys::HeldBack;
use engine::registers::Registers;

/// Fills `out` with where the calls under way return to, innermost first; gives how many.
/// `registers` are those of the caller's own frame, which is left out.
///
/// # Signal safety
/// Raw system calls and a walk, on the caller's stack, of which it takes up to 6 KiB.
///
/// # Errors
/// [`Error::ForeignThread`], [`Error::Memory`].
pub fn backtrace(registers: &Registers, out: &mut [usize]) -> Result<usize, Error> {
    let this = attend()?;
    let _held = HeldBack::all();
    let frames = sample::walk_aside(this, registers);
    let callers = frames.iter().skip(1);
    let filled = out
        .iter_mut()
        .zip(callers)
        .map(|(place, frame)| *place = frame.pc.0 as usize);
    Ok(filled.count())
}
