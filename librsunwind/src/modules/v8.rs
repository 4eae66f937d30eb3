//! Where V8 is, if a module of the process is one: known by the constants that it exports for
//! debuggers, which is looked for once in each module, when it is found.
//!
//! # Safety
//! Looks into modules that the loader gave for code on this thread's stack, or for the program
//! itself, which stay loaded: V8 cannot be unloaded.
#![allow(unsafe_code)]

use crate::loader;
use core::ffi::CStr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use engine::memory::load_verified;

/// A module that is V8, or has it linked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V8 {
    bias: u64,
    dynamic: u64,
}

const NOBODY: u64 = 0;
const BEING_WRITTEN: u64 = 1;
const HERE: u64 = 2;

/// Of these, in this order.
static STATE: AtomicU64 = AtomicU64::new(NOBODY);
static WORDS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The process's V8.
///
/// # Signal safety
/// Loads.
#[inline]
pub fn found() -> Option<V8> {
    if STATE.load(Acquire) != HERE {
        return None;
    }
    let [bias, dynamic] = WORDS.each_ref().map(|word| word.load(Relaxed));
    Some(V8 { bias, dynamic })
}

/// Looks whether a module is V8.
pub(super) fn look_at(bias: u64, dynamic: u64) {
    if STATE.load(Relaxed) != NOBODY {
        return;
    }
    let module = V8 { bias, dynamic };
    if module
        .address(c"v8dbg_class_Map__instance_type__uint16_t")
        .is_none()
    {
        return;
    }
    let claimed = STATE.compare_exchange(NOBODY, BEING_WRITTEN, Acquire, Relaxed);
    if claimed.is_ok() {
        for (word, value) in WORDS.iter().zip([bias, dynamic]) {
            word.store(value, Relaxed);
        }
        STATE.store(HERE, Release);
    }
}

impl V8 {
    /// Where a variable is that the module exports.
    ///
    /// # Signal safety
    /// Loads.
    pub fn address(&self, name: &CStr) -> Option<u64> {
        // SAFETY: see the module.
        let found = unsafe { loader::exported(self.bias as usize, self.dynamic as usize, name) };
        found.map(|address| address as u64)
    }

    /// The value of a constant (an `int`) that the module exports.
    ///
    /// # Signal safety
    /// Loads.
    pub fn constant(&self, name: &CStr) -> Option<u32> {
        let address = self.address(name)?;
        // SAFETY: a variable of a module in use; the word that it begins may be cut by the end of
        // its page.
        let word = unsafe { load_verified(address & !7) };
        Some((word >> (address.wrapping_mul(8) & 32)) as u32)
    }
}
