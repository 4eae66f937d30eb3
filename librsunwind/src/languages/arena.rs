//! Memory for what is registered while the process runs: blocks of powers of two out of mappings of
//! our own.
//!
//! # Safety
//! One writer at a time (under the lock of [`super::lock`]). Blocks are given back when nobody can
//! be reading them.
#![allow(unsafe_code)]

use crate::sys;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::compiler_fence;

/// Smallest block, bytes, as a power of two.
const SMALLEST: u32 = 6;
/// Sizes of blocks: 64 bytes to 64 KiB.
const SIZES: usize = 11;
/// Bytes of a mapping.
const SLAB: usize = 1 << 20;

struct Lists {
    /// Blocks given back, each with the next one's address in its first word.
    free: [*mut u8; SIZES],
    /// What is left of the newest mapping.
    rest: *mut u8,
    left: usize,
}

struct Shared(UnsafeCell<Lists>);

// SAFETY: used under a lock.
unsafe impl Sync for Shared {}

static LISTS: Shared = Shared(UnsafeCell::new(Lists {
    free: [ptr::null_mut(); SIZES],
    rest: ptr::null_mut(),
    left: 0,
}));

/// Which list blocks for so many bytes are in, and their size.
fn size_of_block(bytes: usize) -> Option<(usize, usize)> {
    let size = bytes.max(1 << SMALLEST).checked_next_power_of_two()?;
    let list = size.trailing_zeros().checked_sub(SMALLEST)? as usize;
    (list < SIZES).then_some((list, size))
}

/// A block of at least so many bytes, aligned to 64; `None` beyond 64 KiB, or without memory. What
/// it holds is of no meaning.
///
/// # Safety
/// Under the lock.
pub(super) unsafe fn take(bytes: usize) -> Option<*mut u8> {
    let (list, size) = size_of_block(bytes)?;
    // SAFETY: the caller's promise.
    let lists = unsafe { &mut *LISTS.0.get() };
    let head = lists.free.get_mut(list)?;
    if !head.is_null() {
        let block = *head;
        // SAFETY: a block of ours, whose first word was written when it was given back.
        *head = unsafe { block.cast::<*mut u8>().read() };
        return Some(block);
    }
    if lists.left < size {
        // What is left is at most a block of the largest size, and is not used any more.
        lists.rest = sys::map_anonymous(SLAB).ok()?;
        compiler_fence(SeqCst);
        lists.left = SLAB;
    }
    let block = lists.rest;
    // Another thread may fork here, and the child takes these as they are: never more than there
    // is.
    lists.left = lists.left.saturating_sub(size);
    compiler_fence(SeqCst);
    lists.rest = block.wrapping_add(size);
    Some(block)
}

/// Gives a block back.
///
/// # Safety
/// Under the lock; `block` came from [`take`] for so many bytes, and nobody reads it.
pub(super) unsafe fn give_back(block: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    let lists = unsafe { &mut *LISTS.0.get() };
    let Some(head) = size_of_block(bytes).and_then(|(list, _)| lists.free.get_mut(list)) else {
        return;
    };
    // SAFETY: at least 64 bytes that nobody uses.
    unsafe { block.cast::<*mut u8>().write(*head) };
    *head = block;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        let mut blocks = Vec::new();
        for bytes in [1, 64, 65, 4000, 65_536].repeat(40) {
            // SAFETY: this test is the only one that uses these lists.
            let block = unsafe { take(bytes) }.unwrap();
            assert_eq!(block.addr() % 64, 0);
            // SAFETY: there is so much room.
            unsafe { block.write_bytes(0xff, bytes) };
            blocks.push((block.addr(), bytes, block));
        }
        blocks.sort_unstable();
        for pair in blocks.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0);
        }
        let (_, bytes, block) = blocks[7];
        // SAFETY: as above; nobody reads it.
        unsafe {
            give_back(block, bytes);
            assert_eq!(take(bytes), Some(block));
            assert_eq!(take(65_537), None);
            assert_eq!(take(usize::MAX), None);
        }
    }
}
