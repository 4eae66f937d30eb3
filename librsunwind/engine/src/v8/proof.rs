//! Whose a frame seems to be that was copied with its stack some time ago. The function that stands
//! there may have been moved meanwhile, and another one have taken its place. Bytecodes and code
//! seldom move, as does what all functions of one place in the source share; and each must lead to
//! the other.
//!
//! That is how things are by now. Where a function was given up since, the collector has freed its
//! bytecodes and code, and those of another one may be at the same address: as it happens, in place
//! of code that was optimised for closures, of which none was left. So it is also told what else
//! speaks for the function; whoever asks has to know how long ago the copy was made, and what was
//! seen before.

use super::frame::{self, Instruction, Native, Standing};
use super::function::SCRIPT_FUNCTIONS;
use super::heap::{Heap, small};
use super::layout::Layout;
use super::optimised::MadeOf;
use super::rows::{DATA, LENGTH};
use crate::interpreter::memory::Memory;

/// So many functions of a script are looked through.
const MOST: u32 = 4096;

/// Whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A function's, as things are by now.
    Found(Found),
    /// A function's that is not known any more.
    Unknown,
    /// That of a function that V8 brings.
    Own,
}

/// A function that has what a frame runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where its `SharedFunctionInfo` is.
    pub shared: u64,
    /// What it was found by.
    pub runs: Runs,
    /// Whether the function that stands in the frame is the same.
    pub is_named: bool,
    /// Whether it is part of its caller, in the source.
    pub is_within: bool,
}

/// What a frame runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The bytecodes at that address, or what the baseline compiler made of them.
    Bytecodes(u64),
    /// What an optimising compiler made. What is optimised later has a higher number.
    Optimised(u32),
}

impl Layout {
    /// Tells it. `by_bytecodes`: the `SharedFunctionInfo` that had bytecodes before. `callers`:
    /// that of the frame's caller, if it is known, and that of any function.
    pub fn owner(
        &self,
        memory: &impl Memory,
        frame: &Native,
        standing: &Standing,
        by_bytecodes: impl Fn(u64) -> Option<u64>,
        callers: [Option<u64>; 2],
    ) -> Owner {
        let heap = Heap {
            memory,
            layout: self,
        };
        let shared = |address: u64| heap.of_kind(address | 1, self.types.shared);
        let [caller, any] = callers.map(|address| address.and_then(shared));
        let named = heap.shared(standing.function);
        let of_bytecodes = |array: u64| {
            let known = || by_bytecodes(array).and_then(shared);
            let is_it = |shared: &u64| heap.bytecodes_of(*shared) == Some(array);
            let found = named.filter(is_it).or_else(|| known().filter(is_it));
            let found = found.or_else(|| heap.in_script(caller.or(any)?, array))?;
            Some((found, Runs::Bytecodes(array)))
        };
        // Where a frame of the interpreter's or the baseline compiler's has its bytecodes.
        let slot = standing.fp.and_then(|fp| frame::bytecodes(memory, fp));
        let slot = slot
            .filter(|word| word & 3 == 1)
            .map(|word| heap.object(word));
        let found = if frame.is_compiled {
            let at = Instruction {
                pc: frame.pc,
                is_exact: frame.is_exact,
            };
            let near = named.or(caller).or(any);
            match near.and_then(|near| heap.made_of(near, at)) {
                Some(MadeOf::Bytecodes(array)) => {
                    let slot = slot.flatten().map(|object| object.address);
                    let is_told = standing.fp.is_none() || slot == Some(array);
                    Some(array).filter(|_| is_told).and_then(of_bytecodes)
                }
                Some(MadeOf::Function { shared, number }) => {
                    Some((shared, Runs::Optimised(number)))
                }
                None => None,
            }
        } else {
            match slot {
                Some(Some(array)) if array.kind == self.types.bytecodes => {
                    of_bytecodes(array.address)
                }
                Some(None) => None,
                _ => return Owner::Own,
            }
        };
        found.map_or(Owner::Unknown, |(shared, runs)| {
            Owner::Found(Found {
                shared,
                runs,
                is_named: named == Some(shared),
                is_within: caller.is_some_and(|caller| heap.is_within(shared, caller)),
            })
        })
    }
}

impl<M: Memory> Heap<'_, M> {
    /// Whether a function is part of another one, in the source.
    fn is_within(&self, shared: u64, other: u64) -> bool {
        let parts = |shared| {
            let function = self.function(shared)?;
            Some((function.script?, function.range?))
        };
        let (Some(inner), Some(outer)) = (parts(shared), parts(other)) else {
            return false;
        };
        let ((start, end), (from, to)) = (inner.1, outer.1);
        inner.0 == outer.0 && inner.1 != outer.1 && from <= start && end <= to
    }

    /// The `SharedFunctionInfo` that has those bytecodes, of the functions of another's script.
    fn in_script(&self, other: u64, bytecodes: u64) -> Option<u64> {
        let script = self.function(other)?.script?;
        let all = self.object(self.field(script, SCRIPT_FUNCTIONS)?)?.address;
        let count = small(self.field(all, LENGTH)?)?.min(MOST);
        let mut places = (DATA..).step_by(8).take(count as usize);
        places.find_map(|place| {
            let word = self.field(all, place)?;
            let is_weak = word & 3 == 3;
            let shared = self.of_kind(word & !2, self.layout.types.shared);
            let shared = shared.filter(|_| is_weak)?;
            (self.bytecodes_of(shared) == Some(bytecodes)).then_some(shared)
        })
    }
}
