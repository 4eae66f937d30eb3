//! Where a walk puts its frames: as many as the caller's memory holds, and of a deeper stack both
//! ends.
//!
//! ```text
//!   | leaf part, 3/4: the first frames | root part, 1/4: the last frames, in a circle |
//! ```

use crate::address::RuntimeAddress;
use crate::wire::sample::{Frame, Method};

/// How many frames a walk visits at most, kept or not.
pub const BUDGET: u32 = 65_536;

/// The frames of one walk, from leaf to root.
#[derive(Debug)]
pub struct FrameBuffer<'a> {
    leaf: &'a mut [Frame],
    root: &'a mut [Frame],
    /// Frames visited.
    count: u32,
    limit: u32,
}

/// The frames kept and those left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Frames in the caller's memory, from leaf to root.
    pub kept: usize,
    /// Frames left out.
    pub elided: u64,
    /// How many frames stand before the gap; 0 if none are left out.
    pub elided_at: u64,
}

impl<'a> FrameBuffer<'a> {
    /// A buffer that keeps as many frames as `memory` holds.
    #[inline]
    #[must_use]
    pub fn new(memory: &'a mut [Frame]) -> Self {
        let length = memory.len();
        let root = length >> 2;
        let (leaf, root) = memory
            .split_at_mut_checked(length.wrapping_sub(root))
            .unwrap_or_default();
        Self {
            leaf,
            root,
            count: 0,
            limit: BUDGET,
        }
    }

    /// Forgets all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Frames visited.
    #[inline]
    #[must_use]
    pub const fn visited(&self) -> u32 {
        self.count
    }

    /// Adds a frame; `false` when the budget of the walk is spent.
    ///
    /// # Signal safety
    /// One store into the caller's memory.
    #[inline]
    pub fn push(&mut self, pc: u64, method: Method) -> bool {
        self.push_frame(Frame::native(RuntimeAddress(pc), method))
    }

    /// Adds a frame of any kind, likewise.
    ///
    /// # Signal safety
    /// As [`FrameBuffer::push`].
    #[inline]
    pub fn push_frame(&mut self, frame: Frame) -> bool {
        match self.leaf.get_mut(self.count as usize) {
            Some(place) => *place = frame,
            None => return self.push_root(frame),
        }
        self.count = self.count.wrapping_add(1);
        true
    }

    #[cold]
    fn push_root(&mut self, frame: Frame) -> bool {
        if self.count >= self.limit {
            return false;
        }
        let beyond = (self.count as usize).wrapping_sub(self.leaf.len());
        let place = beyond.checked_rem(self.root.len()).unwrap_or(0);
        if let Some(place) = self.root.get_mut(place) {
            *place = frame;
        }
        self.count = self.count.wrapping_add(1);
        true
    }

    /// The last one, if it is none of the root's.
    #[inline]
    pub(crate) fn last(&self) -> Option<Frame> {
        self.leaf
            .get((self.count as usize).checked_sub(1)?)
            .copied()
    }

    /// The places of the next frames, as far as they lie one behind the other.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [Frame] {
        self.leaf.get_mut(self.count as usize..).unwrap_or_default()
    }

    /// That many of them have been filled.
    #[inline]
    pub(crate) const fn fill(&mut self, count: usize) {
        self.count = self.count.wrapping_add(count as u32);
    }

    /// Puts the frames in order and gives up the memory.
    ///
    /// # Signal safety
    /// Moves frames in the caller's memory, if the stack was deeper than it.
    #[inline]
    #[must_use]
    pub fn finish(self) -> Depth {
        let count = self.count as usize;
        if count > self.length() {
            return self.order_root();
        }
        Depth {
            kept: count,
            ..Depth::default()
        }
    }

    /// How many frames are kept at most.
    #[inline]
    const fn length(&self) -> usize {
        self.leaf.len().wrapping_add(self.root.len())
    }

    #[cold]
    fn order_root(self) -> Depth {
        let room = self.length();
        let Self {
            leaf, root, count, ..
        } = self;
        let count = count as usize;
        let beyond = count.wrapping_sub(leaf.len());
        let oldest = beyond.checked_rem(root.len()).unwrap_or(0);
        rotate_left(root, oldest);
        Depth {
            kept: room,
            elided: count.wrapping_sub(room) as u64,
            elided_at: leaf.len() as u64,
        }
    }
}

/// `slice::rotate_left` without its panic.
fn rotate_left(frames: &mut [Frame], by: usize) {
    if let Some((first, second)) = frames.split_at_mut_checked(by) {
        first.reverse();
        second.reverse();
        frames.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(room: usize, depth: u64) -> (Vec<u64>, Depth) {
        let mut memory = vec![Frame::default(); room];
        let mut buffer = FrameBuffer::new(&mut memory);
        for pc in 0..depth {
            assert!(buffer.push(pc, Method::EhFrame));
        }
        let depth = buffer.finish();
        let pcs = memory.iter().take(depth.kept).map(|f| f.pc.0).collect();
        (pcs, depth)
    }

    #[test]
    fn both_ends_of_a_deep_stack_are_kept_in_order() {
        assert_eq!(
            walk(8, 8),
            (
                (0..8).collect(),
                Depth {
                    kept: 8,
                    elided: 0,
                    elided_at: 0
                }
            )
        );
        for depth in 9..30 {
            let mut expected: Vec<u64> = (0..6).collect();
            expected.extend([depth - 2, depth - 1]);
            let elided = depth - 8;
            assert_eq!(
                walk(8, depth),
                (
                    expected,
                    Depth {
                        kept: 8,
                        elided,
                        elided_at: 6
                    }
                )
            );
        }
    }

    #[test]
    fn tiny_and_empty_buffers_work() {
        assert_eq!(
            walk(0, 5).1,
            Depth {
                kept: 0,
                elided: 5,
                elided_at: 0
            }
        );
        assert_eq!(
            walk(1, 3),
            (
                vec![0],
                Depth {
                    kept: 1,
                    elided: 2,
                    elided_at: 1
                }
            )
        );
    }

    #[test]
    fn the_budget_ends_a_walk() {
        let mut memory = [Frame::default(); 4];
        let mut buffer = FrameBuffer::new(&mut memory);
        let pushed = (0..)
            .take_while(|pc| buffer.push(*pc, Method::EhFrame))
            .count();
        assert_eq!(pushed as u32, BUDGET);
    }
}
