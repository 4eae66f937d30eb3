//! The end of a thread, whichever way it ends: return, `pthread_exit`, cancellation. libc calls the
//! destructor of a thread-specific key in all three.
//!
//! # Safety
//! Calls the program's functions with the signatures of their manual pages. The destructor is the
//! last ordinary code of ours on its thread.
#![allow(unsafe_code)]

use super::thread;
use crate::thread::ThreadState;
use crate::{arch, weak_address};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The key plus one; 0 without.
static KEY: AtomicU32 = AtomicU32::new(0);

type CreateKey = unsafe extern "C" fn(*mut u32, extern "C" fn(*mut c_void)) -> i32;
type SetSpecific = unsafe extern "C" fn(u32, *const c_void) -> i32;

/// Keys below this need no memory of libc's.
const SMALL_KEYS: u32 = 32;

/// libc calls destructors in up to four rounds; ours asks for another until the last, so that the
/// program's own are profiled too.
const ROUNDS: usize = 4;

/// Creates the key, if there is none yet.
pub fn register() {
    let create = weak_address!("pthread_key_create");
    if create == 0 || KEY.load(Relaxed) != 0 {
        return;
    }
    let mut key = 0u32;
    // SAFETY: the program's function of this signature.
    if unsafe { core::mem::transmute::<usize, CreateKey>(create)(&raw mut key, at_end) } == 0 {
        KEY.store(key.wrapping_add(1), Relaxed);
    }
}

/// Makes libc call us when the calling thread ends.
pub fn expect() {
    set(1);
}

/// The same, where a signal handler may be running: `false` if that would take memory of libc's,
/// and the thread's state is then never reused.
pub fn expect_anywhere() -> bool {
    let is_small = (1..=SMALL_KEYS).contains(&KEY.load(Relaxed));
    if is_small {
        set(1);
    }
    is_small
}

fn set(round: usize) {
    let (key, set_specific) = (KEY.load(Relaxed), weak_address!("pthread_setspecific"));
    if key != 0 && set_specific != 0 {
        // SAFETY: the program's function of this signature; small keys need no memory in glibc and
        // musl.
        unsafe {
            core::mem::transmute::<usize, SetSpecific>(set_specific)(
                key.wrapping_sub(1),
                round as *const c_void,
            )
        };
    }
}

/// The destructor. musl runs it on whatever stack pointer an asynchronous cancellation met, so the
/// stack is aligned first.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn at_end(round: *mut c_void) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "and rsp, -16",
        "call {end_of_round}",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        end_of_round = sym end_of_round,
    )
}

extern "C" fn end_of_round(round: *mut c_void) {
    let round = round as usize;
    if round < ROUNDS {
        set(round.wrapping_add(1));
    } else if ThreadState::current().is_some() {
        // SAFETY: ordinary code of the thread, its last.
        unsafe { thread::end(arch::thread_word().cast()) };
    }
}
