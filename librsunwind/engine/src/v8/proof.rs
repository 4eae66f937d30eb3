//! Whose a frame is that was copied with its stack some time ago. The function that stands there
//! may have been moved meanwhile, and another one have taken its place. Bytecodes and code seldom
//! move, as does what all functions of one place in the source share; and each must lead to the
//! other.

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
    /// A function's: where its `SharedFunctionInfo` is, and its bytecodes.
    Proved {
        /// See there.
        shared: u64,
        /// See there.
        bytecodes: Option<u64>,
    },
    /// A function's that is not known any more.
    Unknown,
    /// That of a function that V8 brings.
    Own,
}

impl Layout {
    /// Tells it. `by_bytecodes`: the `SharedFunctionInfo` that was proved for bytecodes before;
    /// `caller`: the one that was proved last, in whose script others are looked for.
    pub fn owner(
        &self,
        memory: &impl Memory,
        frame: &Native,
        standing: &Standing,
        by_bytecodes: impl Fn(u64) -> Option<u64>,
        caller: Option<u64>,
    ) -> Owner {
        let heap = Heap {
            memory,
            layout: self,
        };
        let shared = |address: u64| heap.of_kind(address | 1, self.types.shared);
        let named = heap.shared(standing.function);
        let of_bytecodes = |array: u64| {
            let known = || by_bytecodes(array).and_then(shared);
            let is_it = |shared: &u64| heap.bytecodes_of(*shared) == Some(array);
            let found = named.filter(is_it).or_else(|| known().filter(is_it));
            found.or_else(|| heap.in_script(caller.and_then(shared)?, array))
        };
        let found = if frame.is_compiled {
            let at = Instruction {
                pc: frame.pc,
                is_exact: frame.is_exact,
            };
            let near = named.or_else(|| caller.and_then(shared));
            match near.and_then(|near| heap.made_of(near, at)) {
                Some(MadeOf::Bytecodes(array)) => of_bytecodes(array),
                Some(MadeOf::Function(shared)) => Some(shared),
                None => None,
            }
        } else {
            let word = standing.fp.and_then(|fp| frame::bytecodes(memory, fp));
            match word
                .filter(|word| word & 3 == 1)
                .map(|word| heap.object(word))
            {
                Some(Some(array)) if array.kind == self.types.bytecodes => {
                    of_bytecodes(array.address)
                }
                Some(None) => None,
                _ => return Owner::Own,
            }
        };
        match found {
            Some(shared) => Owner::Proved {
                shared,
                bytecodes: heap.bytecodes_of(shared),
            },
            None => Owner::Unknown,
        }
    }
}

impl<M: Memory> Heap<'_, M> {
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
