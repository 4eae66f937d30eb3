//! libc's sets of signals as the kernel's words, and which of the program's actions block ours.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rsunwind::{signal, sys};

/// Signals whose `sa_mask` the program set to include ours, by [`signal::index`].
static MASKED: [AtomicU64; signal::COUNT] = [const { AtomicU64::new(0) }; signal::COUNT];

/// The first word of libc's `sigset_t` is the kernel's mask.
pub fn mask_word(set: &libc::sigset_t) -> u64 {
    // SAFETY: sigset_t is at least eight bytes of plain data.
    unsafe { ptr::from_ref(set).cast::<u64>().read_unaligned() }
}

/// A set with that first word and nothing else.
pub fn mask_set(word: u64) -> libc::sigset_t {
    // SAFETY: all zeros is a set, and it is at least eight bytes.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        ptr::from_mut(&mut set).cast::<u64>().write_unaligned(word);
        set
    }
}

/// A set without these signals.
pub fn without(set: &libc::sigset_t, bits: u64) -> libc::sigset_t {
    replaced(set, mask_word(set) & !bits)
}

/// A set with these signals.
pub fn with(set: &libc::sigset_t, bits: u64) -> libc::sigset_t {
    replaced(set, mask_word(set) | bits)
}

/// The same set with another first word.
fn replaced(set: &libc::sigset_t, word: u64) -> libc::sigset_t {
    let mut copy = *set;
    // SAFETY: sigset_t is at least eight bytes of plain data.
    unsafe { ptr::from_mut(&mut copy).cast::<u64>().write_unaligned(word) };
    copy
}

/// Notes what the program wants blocked while a signal's handler runs.
pub fn note_mask(signal: c_int, mask: u64) {
    for (masked, ours) in MASKED.iter().zip(signal::BY_INDEX) {
        match mask & sys::bit(ours) {
            0 => masked.fetch_and(!sys::bit(signal), Relaxed),
            _ => masked.fetch_or(sys::bit(signal), Relaxed),
        };
    }
}

/// Makes what the kernel says of a signal's mask what the program set.
pub fn show_mask(signal: c_int, mask: &mut libc::sigset_t) {
    for (masked, ours) in MASKED.iter().zip(signal::BY_INDEX) {
        *mask = match masked.load(Relaxed) & sys::bit(signal) {
            0 => without(mask, sys::bit(ours)),
            _ => with(mask, sys::bit(ours)),
        };
    }
}
