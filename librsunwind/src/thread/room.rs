//! Room for the frames of a thread's walks, and what is known of its stack from walk to walk.
//!
//! Used in the handler, or with the signal held back.
//!
//! # Safety
//! The memory is given once, for as long as the state is there, and used through this alone.
#![allow(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::slice;
use engine::last_walk::{self, Known, LastWalk};
use engine::memory::StackMemory;
use engine::wire::sample::Frame;

/// See the module.
#[derive(Debug)]
pub(crate) struct Room {
    /// The thread's own stack.
    pub stack: Cell<StackMemory>,
    /// What its last walk read. Borrowed for a walk, and for good by one that is abandoned.
    pub last: RefCell<LastWalk<'static>>,
    /// Frames of each room.
    size: usize,
    /// For the next sample, and that of the sample before.
    samples: Cell<[*mut Frame; 2]>,
    /// As much again for walks that are no sample.
    spare: *mut Frame,
}

impl Room {
    /// Rooms for so many frames.
    pub const ROOMS: usize = 3;

    /// Bytes for rooms of `size` frames each.
    pub const fn bytes(size: usize) -> usize {
        let frames = size.saturating_mul(Self::ROOMS);
        let known = last_walk::MEMORY.saturating_mul(size_of::<Known>());
        frames
            .saturating_mul(size_of::<Frame>())
            .saturating_add(known)
    }

    /// Rooms of `size` frames each.
    ///
    /// # Safety
    /// There are [`Room::bytes`] of memory, aligned to 16, which are this value's alone and hold
    /// zeros or what one of these has left.
    pub unsafe fn new(memory: *mut Frame, size: usize) -> Self {
        let at = |room: usize| memory.wrapping_add(size.saturating_mul(room));
        // SAFETY: they lie behind the rooms; zeros are values of that type.
        let known = unsafe { slice::from_raw_parts_mut(at(Self::ROOMS).cast(), last_walk::MEMORY) };
        Self {
            stack: Cell::new(StackMemory::new(0, 0)),
            last: RefCell::new(LastWalk::new(known)),
            size,
            samples: Cell::new([at(0), at(1)]),
            spare: at(2),
        }
    }

    /// Another thread comes.
    pub fn reset(&self) {
        self.stack.set(StackMemory::new(0, 0));
        if let Ok(mut last) = self.last.try_borrow_mut() {
            last.forget();
        }
    }

    /// For the frames of the next sample.
    ///
    /// # Safety
    /// The slice must be gone before the next call of any method but [`Room::spare`].
    pub unsafe fn next(&self) -> &'static mut [Frame] {
        let [next, _] = self.samples.get();
        // SAFETY: `size` frames that are this value's; not used twice by the caller's promise.
        unsafe { slice::from_raw_parts_mut(next, self.size) }
    }

    /// For a walk that is no sample.
    ///
    /// # Safety
    /// The slice must be gone before the next call of this.
    pub unsafe fn spare(&self) -> &'static mut [Frame] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.spare, self.size) }
    }

    /// The first frames of the next sample, and of the one before.
    ///
    /// # Safety
    /// No slice of them is being written.
    pub unsafe fn frames(&self, next: usize, before: usize) -> (&[Frame], &[Frame]) {
        let rooms = self.samples.get();
        // SAFETY: as above; every bit pattern that mapped or written memory holds is a frame.
        let [next, before] = [(0, next), (1, before)].map(|(room, count): (usize, usize)| unsafe {
            let first = rooms.get(room).copied().unwrap_or(self.spare);
            slice::from_raw_parts(first, count.min(self.size))
        });
        (next, before)
    }

    /// The next sample was written: it is the one before from now on.
    pub fn swap(&self) {
        let [next, before] = self.samples.get();
        self.samples.set([before, next]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::address::RuntimeAddress;

    #[test]
    fn rooms_do_not_overlap_and_two_take_turns() {
        let mut memory = vec![Frame::default(); Room::bytes(4) / size_of::<Frame>()];
        // SAFETY: memory of that size, used through this alone.
        let room = unsafe { Room::new(memory.as_mut_ptr(), 4) };
        for sample in 1..=3u64 {
            // SAFETY: the slices are used one at a time.
            unsafe {
                room.next()
                    .iter_mut()
                    .for_each(|frame| frame.pc = RuntimeAddress(sample));
                room.spare()
                    .iter_mut()
                    .for_each(|frame| frame.pc = RuntimeAddress(99));
                let (next, before) = room.frames(4, 9);
                assert_eq!((next.len(), before.len()), (4, 4));
                assert!(next.iter().all(|frame| frame.pc.0 == sample));
                assert!(before.iter().all(|frame| frame.pc.0 == sample - 1));
            }
            room.swap();
        }
    }
}
