//! The word of each thread, in a table of our own by the thread's number:
//! for a library that is brought into a process that runs, where no thread has storage for it.
//!
//! A thread enters and changes its own word alone; the word of one that is gone is taken away by
//! who buries it. Its place is then anybody's. Number and word are one: neither is ever seen with
//! another's.
//!
//! # Safety
//! Assembly.
#![allow(unsafe_code)]

use super::syscall6;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Threads at a time for which there is certainly room are fewer, by [`LOOKS`].
const PLACES: usize = 32_768;
/// So many places a thread looks at.
const LOOKS: usize = 128;

/// Bits of a word: addresses are of 47, and what is there is aligned to 64 bytes.
const WORD_BITS: u32 = 41;
const ALIGNMENT_BITS: u32 = 6;

/// Of each thread its number (the kernel's are of 22 bits), and below it its word; 0 while nobody
/// was ever here.
static TABLE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// What stands in the place of a thread that has that word; none if either is not as it should be.
fn entry(tid: u32, word: *mut c_void) -> Option<u64> {
    let bits = (word as u64).rotate_right(ALIGNMENT_BITS);
    let fits = tid != 0 && tid >> (64 - WORD_BITS) == 0 && bits >> WORD_BITS == 0;
    fits.then_some(u64::from(tid) << WORD_BITS | bits)
}

const fn tid_of(entry: u64) -> u32 {
    (entry >> WORD_BITS) as u32
}

fn word_in(entry: u64) -> *mut c_void {
    let bits = entry & ((1 << WORD_BITS) - 1);
    ptr::with_exposed_provenance_mut((bits << ALIGNMENT_BITS) as usize)
}

fn places(tid: u32) -> impl Iterator<Item = &'static AtomicU64> {
    let first = (tid.wrapping_mul(0x9e37_79b1) >> 17) as usize;
    (0..LOOKS).filter_map(move |step| TABLE.get(first.wrapping_add(step) % PLACES))
}

/// A thread's place, with what stands there.
fn place(tid: u32) -> Option<(&'static AtomicU64, u64)> {
    for place in places(tid) {
        match place.load(Acquire) {
            0 => return None,
            found if tid_of(found) == tid => return Some((place, found)),
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
    place(tid).map_or(ptr::null_mut(), |(_, found)| word_in(found))
}

/// Sets what [`thread_word`] gives on this thread; where the table has no room, it stays null.
///
/// # Signal safety
/// As above.
pub fn set_thread_word(pointer: *mut c_void) {
    set_word_of(own(), pointer);
}

fn set_word_of(tid: u32, pointer: *mut c_void) {
    let Some(entry) = entry(tid, pointer) else {
        return;
    };
    // A place of its own that has no word may be taken by others at any time.
    let own = place(tid).into_iter();
    let free = places(tid).map(|place| (place, place.load(Acquire)));
    let free = free.filter(|(_, before)| word_in(*before).is_null());
    for (place, before) in own.chain(free) {
        let set = place.compare_exchange(before, entry, AcqRel, Relaxed);
        if set.is_ok() {
            return;
        }
    }
}

/// Takes away the word of a thread that is gone, unless its number is another's by now.
pub(crate) fn forget_thread(tid: u32, word: *mut c_void) {
    if let (Some((place, _)), Some(entry), Some(none)) =
        (place(tid), entry(tid, word), entry(tid, ptr::null_mut()))
    {
        let _ = place.compare_exchange(entry, none, AcqRel, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(number: usize) -> *mut c_void {
        (number << ALIGNMENT_BITS) as *mut c_void
    }

    fn used() -> usize {
        let used = TABLE.iter().map(|place| word_in(place.load(Relaxed)));
        used.filter(|word| !word.is_null()).count()
    }

    /// The table is one for all tests of a process.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn each_thread_has_its_own_word_and_places_are_used_again() {
        let _alone = ALONE.lock().unwrap();
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
            forget_thread(tid, word(7));
            assert_eq!(word_of(tid), word(2), "another's by now");
            forget_thread(tid, word(2));
            assert!(word_of(tid).is_null());
        });
        assert_eq!(thread_word(), word(1));
        // More threads than there are places, one after the other.
        for _ in 0..3 {
            std::thread::spawn(move || {
                set_thread_word(word(3));
                assert_eq!(thread_word(), word(3));
                forget_thread(own(), word(3));
            })
            .join()
            .unwrap();
        }
        assert_eq!(used(), 1);
        set_thread_word(ptr::null_mut());
    }

    #[test]
    fn threads_that_come_at_once_have_none_of_anothers() {
        let _alone = ALONE.lock().unwrap();
        let first = |tid: u32| places(tid).next().map(ptr::from_ref);
        let mut same = (1..1 << 22).filter(|tid| first(*tid) == first(1));
        let wait = &std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for tid in same.by_ref().take(4) {
                scope.spawn(move || {
                    wait.wait();
                    for round in 0..20_000 {
                        let word = word((tid as usize) << 16 | round);
                        set_word_of(tid, word);
                        assert_eq!(word_of(tid), word);
                        set_word_of(tid, ptr::null_mut());
                    }
                });
            }
        });
        assert_eq!(used(), 0);
    }

    #[test]
    fn numbers_and_words_that_do_not_fit_are_none() {
        let most = usize::MAX >> 17 & !63;
        let highest = entry((1 << 22) - 1, most as *mut c_void).unwrap();
        assert_eq!(
            (tid_of(highest), word_in(highest) as usize),
            ((1 << 22) - 1, most)
        );
        assert_eq!(entry(0, word(1)), None);
        assert_eq!(entry(1, word(1).wrapping_byte_add(1)), None, "not aligned");
        assert_eq!(entry(1, (1usize << 47) as *mut c_void), None);
    }
}
