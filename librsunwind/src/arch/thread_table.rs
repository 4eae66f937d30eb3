//! The word of each thread, in a table of our own by the thread's number:
//! for a library that is brought into a process that runs, where no thread has storage for it.
//!
//! A thread enters and changes its own word alone; the word of one that is gone is taken away by
//! who buries it. Its place is then anybody's.
//!
//! # Safety
//! Assembly.
#![allow(unsafe_code)]

use super::syscall6;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

/// Threads at a time for which there is certainly room are fewer, by [`LOOKS`].
const PLACES: usize = 32_768;
/// So many places a thread looks at.
const LOOKS: usize = 128;

struct Place {
    /// 0 while nobody was ever here.
    tid: AtomicU32,
    word: AtomicPtr<c_void>,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        tid: AtomicU32::new(0),
        word: AtomicPtr::new(ptr::null_mut()),
    }
}; PLACES];

fn places(tid: u32) -> impl Iterator<Item = &'static Place> {
    let first = (tid.wrapping_mul(0x9e37_79b1) >> 17) as usize;
    (0..LOOKS).filter_map(move |step| TABLE.get(first.wrapping_add(step) % PLACES))
}

fn place(tid: u32) -> Option<&'static Place> {
    for place in places(tid) {
        match place.tid.load(Acquire) {
            found if found == tid => return Some(place),
            0 => return None,
            _ => {}
        }
    }
    None
}

/// The calling thread's number.
fn own() -> u32 {
    // SAFETY: no memory involved.
    unsafe { syscall6(libc::SYS_gettid, 0, 0, 0, 0, 0, 0) as u32 }
}

/// This thread's word: where its state is ([`crate::thread`]), or null for a thread that is not
/// ours to sample.
///
/// # Signal safety
/// One system call, which cannot fail.
pub fn thread_word() -> *mut c_void {
    word_of(own())
}

/// The word of a thread.
///
/// # Signal safety
/// Loads.
pub(crate) fn word_of(tid: u32) -> *mut c_void {
    place(tid).map_or(ptr::null_mut(), |place| place.word.load(Acquire))
}

/// Sets what [`thread_word`] gives on this thread; where the table has no room, it stays null.
///
/// # Signal safety
/// As above.
pub fn set_thread_word(pointer: *mut c_void) {
    let tid = own();
    if let Some(place) = place(tid) {
        place.word.store(pointer, Release);
        return;
    }
    for place in places(tid) {
        let before = place.tid.load(Acquire);
        let is_free = before == 0 || place.word.load(Acquire).is_null();
        if is_free
            && (place.tid)
                .compare_exchange(before, tid, AcqRel, Relaxed)
                .is_ok()
        {
            place.word.store(pointer, Release);
            return;
        }
    }
}

/// Takes away the word of a thread that is gone.
pub(crate) fn forget_thread(tid: u32) {
    if let Some(place) = place(tid) {
        place.word.store(ptr::null_mut(), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_word_and_places_are_used_again() {
        let word = |number: usize| number as *mut c_void;
        assert!(thread_word().is_null());
        set_thread_word(word(1));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(thread_word().is_null());
                set_thread_word(word(2));
                assert_eq!(thread_word(), word(2));
                own()
            });
            let tid = other.join().unwrap();
            assert_eq!(word_of(tid), word(2));
            forget_thread(tid);
            assert!(word_of(tid).is_null());
        });
        assert_eq!(thread_word(), word(1));
        // More threads than there are places, one after the other.
        for _ in 0..3 {
            std::thread::spawn(move || {
                set_thread_word(word(3));
                assert_eq!(thread_word(), word(3));
                forget_thread(own());
            })
            .join()
            .unwrap();
        }
        let used = TABLE
            .iter()
            .filter(|place| !place.word.load(Relaxed).is_null());
        assert_eq!(used.count(), 1);
        set_thread_word(ptr::null_mut());
    }
}
