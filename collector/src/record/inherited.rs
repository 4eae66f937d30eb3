//! What this process inherited before Rust's runtime changed it, so that the program gets what a
//! plain exec would have given it.
//!
//! Before `main` the runtime ignores SIGPIPE and opens `/dev/null` for standard descriptors that
//! are closed.
//!
//! # Safety
//! The hook runs among the constructors, before any thread exists, and makes two kinds of harmless
//! system calls.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Bits 0 to 2: that descriptor was closed. Bit 3: SIGPIPE was ignored.
static STATE: AtomicU8 = AtomicU8::new(0);
const PIPE_IGNORED: u8 = 8;

#[used]
// SAFETY: the loader calls what this section lists as C functions, which `remember` is; extra
// arguments do no harm.
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

extern "C" fn remember() {
    let mut state = 0;
    for descriptor in 0..3 {
        // SAFETY: reads the flags of a descriptor.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            state |= 1 << descriptor;
        }
    }
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the action only.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    if asked == 0 && action.sa_sigaction == libc::SIG_IGN {
        state |= PIPE_IGNORED;
    }
    STATE.store(state, Relaxed);
}

/// Whether SIGPIPE was ignored.
#[must_use]
pub fn pipe_signal_was_ignored() -> bool {
    STATE.load(Relaxed) & PIPE_IGNORED != 0
}

/// Which of descriptors 0 to 2 were closed.
pub fn closed_descriptors() -> impl Iterator<Item = i32> {
    let state = STATE.load(Relaxed);
    (0..3).filter(move |descriptor| state & (1 << descriptor) != 0)
}
