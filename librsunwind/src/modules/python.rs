//! Where CPython is, if a module of the process is one: known by what it exports, which is looked
//! for once in each module, when it is found.
//!
//! # Safety
//! Looks into modules that the loader gave for code on this thread's stack, or for the program
//! itself.
#![allow(unsafe_code)]

use super::sections;
use crate::loader;
use core::ffi::CStr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use engine::address::RuntimeAddress;
use engine::python::tasks::TABLE;

/// What CPython exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Python {
    /// Where its module starts.
    pub module: u64,
    /// `_PyRuntime`.
    pub runtime: u64,
    /// `PyCode_Type`.
    pub code_type: u64,
    /// Where the loop starts, and how long it is (`_PyEval_EvalFrameDefault`).
    pub code: [u64; 2],
    /// As in `Py_Version`: 0x030b07f0 is 3.11.7. Of those before 3.11, which do not say so, only
    /// the minor version.
    pub version: u64,
}

impl Python {
    /// The minor version of 3; 0 of another.
    pub const fn minor(&self) -> u64 {
        match self.version >> 24 {
            3 => self.version >> 16 & 0xff,
            _ => 0,
        }
    }
}

const NOBODY: u64 = 0;
const BEING_WRITTEN: u64 = 1;
const HERE: u64 = 2;
const GONE: u64 = 3;

/// Of these, in this order; a process has one CPython, the first that is found, or none any more.
static STATE: AtomicU64 = AtomicU64::new(NOBODY);
static WORDS: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

/// Whether the process has a CPython.
///
/// # Signal safety
/// A load.
#[inline]
pub fn is_here() -> bool {
    STATE.load(Acquire) == HERE
}

/// The process's CPython.
///
/// # Signal safety
/// Loads.
#[inline]
pub fn found() -> Option<Python> {
    if !is_here() {
        return None;
    }
    let words = WORDS.each_ref().map(|word| word.load(Relaxed));
    let [module, runtime, code_type, version, code @ ..] = words;
    Some(Python {
        module,
        runtime,
        code_type,
        code,
        version,
    })
}

/// Looks whether a module is CPython.
pub(super) fn look_at(module: u64, bias: u64, dynamic: u64) {
    if STATE.load(Relaxed) != NOBODY {
        return;
    }
    let extent = |name: &CStr| {
        // SAFETY: see the module.
        let found = unsafe { loader::extent(bias as usize, dynamic as usize, name) };
        found.map(|found| [found.start as u64, found.len() as u64])
    };
    let exported = |name: &CStr| extent(name).map(|[start, _]| start);
    let Some(runtime) = exported(c"_PyRuntime") else {
        return;
    };
    let Some(code_type) = exported(c"PyCode_Type") else {
        return;
    };
    let version = match exported(c"Py_Version") {
        // SAFETY: the variable, an unsigned long, of a module in use.
        Some(address) => unsafe { engine::memory::load_verified(address) },
        None if exported(c"PyIter_Send").is_some() => 0x030a_0000,
        None if exported(c"PyFrame_GetCode").is_some() => 0x0309_0000,
        None => 0x0308_0000,
    };
    let [start, size] = extent(c"_PyEval_EvalFrameDefault").unwrap_or_default();
    let claimed = STATE.compare_exchange(NOBODY, BEING_WRITTEN, Acquire, Relaxed);
    if claimed.is_ok() {
        let words = [module, runtime, code_type, version, start, size];
        for (word, value) in WORDS.iter().zip(words) {
            word.store(value, Relaxed);
        }
        STATE.store(HERE, Release);
    }
}

/// The module that is `_asyncio`, from 3.14 on, and its table of where tasks have what.
static TASKS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// That table, if the module is there.
///
/// # Signal safety
/// A load.
#[inline]
pub fn tasks() -> Option<u64> {
    Some(TASKS[1].load(Acquire)).filter(|table| *table != 0)
}

/// Looks whether a module has such a table: a section of its own, which nothing exports.
pub(super) fn look_for_tasks(start: RuntimeAddress, bias: u64, dynamic: u64, path: &[u8]) {
    // SAFETY: see the module.
    let begins = unsafe { loader::exported(bias as usize, dynamic as usize, c"PyInit__asyncio") };
    if begins.is_none() || tasks().is_some() {
        return;
    }
    let section = sections::section(start, path, b".AsyncioDebug\0");
    if let Some(section) = section.filter(|section| section.size >= TABLE) {
        TASKS[0].store(start.0, Relaxed);
        TASKS[1].store(section.address.wrapping_add(bias), Release);
    }
}

/// A module was unloaded; no walk uses it any more.
pub(super) fn forget(module: u64) {
    if TASKS[0].load(Relaxed) == module {
        TASKS[1].store(0, Release);
    }
    if found().is_some_and(|python| python.module == module) {
        STATE.store(GONE, Release);
    }
}
