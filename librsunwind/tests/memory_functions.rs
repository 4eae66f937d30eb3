//! The memory functions of the libraries that run in programs: in this test program they stand in
//! the place of libc's.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, missing_docs, clippy::undocumented_unsafe_blocks)]

#[path = "../../preload/src/memory_functions.rs"]
mod memory_functions;

use std::ffi::{c_int, c_void};
use std::hint::black_box;

unsafe extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
    fn memset(to: *mut c_void, byte: c_int, count: usize) -> *mut c_void;
    fn memcmp(one: *const c_void, other: *const c_void, count: usize) -> c_int;
}

/// Every short length, and those around where they go about it in another way.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=100).chain(1000..=1050)
}

/// Bytes of which no two near each other are the same, with as many before and behind.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ 0x55).collect()
}

/// Byte for byte: what is tested is in whatever compares slices, too.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (0..one.len()).all(|at| black_box(one[at]) == black_box(other[at]))
}

#[test]
fn copies_are_whole_and_touch_nothing_else() {
    for (length, shift) in lengths().flat_map(|length| (0..17).map(move |shift| (length, shift))) {
        let from = bytes(length + 40);
        let mut to = vec![0u8; length + 64];
        let place = unsafe { to.as_mut_ptr().add(20) };
        let given = unsafe { memcpy(place.cast(), from.as_ptr().add(shift).cast(), length) };
        assert_eq!(given.cast(), place);
        for at in 0..to.len() {
            let copied = at >= 20 && at < 20 + length;
            let expected = if copied { from[at - 20 + shift] } else { 0 };
            assert_eq!(to[at], expected, "{length} {shift} {at}");
        }
    }
}

#[test]
fn moves_within_themselves_keep_what_is_moved() {
    for length in lengths() {
        for distance in [1usize, 2, 7, 8, 15, 16, 17, 40, 2000] {
            for (from, to) in [(0, distance), (distance, 0)] {
                let before = bytes(length + distance);
                let mut all = before.clone();
                let start = all.as_mut_ptr();
                let given =
                    unsafe { memmove(start.add(to).cast(), start.add(from).cast(), length) };
                assert_eq!(given.cast(), unsafe { start.add(to) });
                let moved = same(&all[to..to + length], &before[from..from + length]);
                assert!(moved, "{length} from {from} to {to}");
                for at in (0..all.len()).filter(|at| *at < to || *at >= to + length) {
                    assert_eq!(all[at], before[at], "{length} from {from} to {to}");
                }
            }
        }
    }
}

#[test]
fn what_is_set_is_set_whole() {
    for length in lengths() {
        let mut all = bytes(length + 32);
        let before = all.clone();
        let place = unsafe { all.as_mut_ptr().add(13) };
        let given = unsafe { memset(place.cast(), 0x1a5, length) };
        assert_eq!(given.cast(), place);
        for at in 0..all.len() {
            let is_set = at >= 13 && at < 13 + length;
            let expected = if is_set { 0xa5 } else { before[at] };
            assert_eq!(all[at], expected, "{length} {at}");
        }
    }
}

#[test]
fn the_first_difference_decides() {
    let one = bytes(64);
    for at in 0..64 {
        let mut other = one.clone();
        other[at] = other[at].wrapping_add(1);
        let order = |count| unsafe { memcmp(one.as_ptr().cast(), other.as_ptr().cast(), count) };
        assert_eq!(order(at), 0);
        assert_eq!(order(64).signum(), if one[at] < other[at] { -1 } else { 1 });
    }
}
