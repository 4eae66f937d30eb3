//! What frames run that are like others shortly before: to find that out takes objects from five to
//! eight pages of memory, which the processor has mostly forgotten since the last sample. Here it
//! takes two: the function, which says what it shares with others of its place in the source, and
//! that, which says whose script it is.
//!
//! What functions share stays in its place while there is one of them. When the collector has freed
//! it, something else may come to that address, of another script, whose number is another; within
//! a script it would have to be made anew, after several collections. What was found is therefore
//! believed for one [`Moment`], and found again in the next.

use super::code::Place;
use super::frame::{Native, Standing};
use super::function::SCRIPT_ID;
use super::heap::{Heap, address};
use super::layout::Layout;
use crate::interpreter::memory::Memory;
use crate::mix::mix;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Kinds of frames that are kept; a deep stack of a large program has some hundreds.
const KINDS: usize = 4096;

/// Of each: the number of its function, where in compiled code it is, and a number that tells which
/// kind it is and that all of this is of one.
static KEPT: [[AtomicU64; 3]; KINDS] = [const { [const { AtomicU64::new(0) }; 3] }; KINDS];

/// When and by whom frames are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The number of a thread, which has a heap of its own.
    pub thread: u64,
    /// A number of the time.
    number: u64,
}

impl Moment {
    /// That of a time, ns: each lasts for 134 ms.
    #[must_use]
    pub const fn at(thread: u64, time_ns: u64) -> Self {
        Self {
            thread,
            number: time_ns >> 27,
        }
    }
}

/// What a frame runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// The number of its function.
    pub check: u64,
    /// As that of a [`Place`].
    pub id: u64,
    /// Likewise.
    pub position: u32,
}

impl Layout {
    /// What a frame runs, if one that was kept in that moment is like it.
    pub fn met(
        &self,
        memory: &impl Memory,
        frame: &Native,
        standing: &Standing,
        moment: &Moment,
    ) -> Option<Met> {
        let function = address(standing.function)?;
        let shared = address(memory.at(function, self.function_shared)?)?;
        let key = key(shared, frame)?;
        let kept = KEPT.get(key as usize % KINDS)?;
        let [check, place, proof] = kept.each_ref().map(|word| word.load(Relaxed));
        if proof == 0 || self.proof(memory, key, [shared, check, place], moment)? != proof {
            return None;
        }
        let (id, position) = match frame.is_compiled {
            true => (place & !POSITION, place as u32),
            // The frame itself says it.
            false => {
                let place = self.place(memory, frame, standing, (shared, check));
                (place.id, place.position)
            }
        };
        Some(Met {
            check,
            id,
            position,
        })
    }

    /// Keeps what was found of a frame: its function's `SharedFunctionInfo` and number, and where
    /// it is. Not of functions without a script.
    pub fn keep(
        &self,
        memory: &impl Memory,
        frame: &Native,
        (shared, check): (u64, u64),
        place: &Place,
        moment: &Moment,
    ) -> Option<()> {
        let heap = Heap {
            memory,
            layout: self,
        };
        let key = key(shared, frame)?;
        heap.of_kind(heap.field(shared, self.shared_script)?, self.types.script)?;
        let place = place.id | u64::from(place.position);
        let proof = self.proof(memory, key, [shared, check, place], moment)?;
        let kept = KEPT.get(key as usize % KINDS)?;
        for (word, new) in kept.iter().zip([check, place, proof]) {
            word.store(new, Relaxed);
        }
        Some(())
    }

    /// A number that is another for other words and another script, and at another moment; never 0.
    fn proof(
        &self,
        memory: &impl Memory,
        key: u64,
        words: [u64; 3],
        moment: &Moment,
    ) -> Option<u64> {
        let script = memory.at(words[0], self.shared_script)?;
        let number = memory.at(address(script)?, SCRIPT_ID)?;
        let more = [script, number, moment.thread, moment.number];
        let parts = words.iter().chain(&more);
        let proof = parts.fold(key, |proof, part| mix(proof ^ part));
        Some(proof.max(1))
    }
}

/// Of a place: the position, below its id.
const POSITION: u64 = u32::MAX as u64;

/// What frames of a kind have in common; `None` of one that was interrupted, which has more to it.
fn key(shared: u64, frame: &Native) -> Option<u64> {
    let pc = if frame.is_compiled { frame.pc } else { 0 };
    (!frame.is_exact).then(|| mix(shared ^ mix(pc)))
}

/// For tests, which have other objects at the same addresses.
#[cfg(test)]
pub(super) fn forget() {
    let proofs = KEPT.iter().map(|[.., proof]| proof);
    proofs.for_each(|proof| proof.store(0, Relaxed));
}
