//! The words that assembly reads and writes: by their offsets in the thread's state, without a
//! reference.

use core::cell::Cell;

/// See the module. Written by the shim (the handler) and, the slot, by ordinary code with all
/// signals held back.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ShimWords {
    /// Where the shim left the interrupted stack.
    pub saved_sp: Cell<usize>,
    /// Where the shim goes; 0 in a state that fork has wiped.
    pub stack_top: Cell<usize>,
    /// The mask to set on the way to a handler of the program's.
    pub program_mask: Cell<u64>,
    /// Whether it may be set: 0 or 1.
    pub sets_mask: Cell<u64>,
    /// Where ordinary code waits for a call on that stack; 0 while it does not.
    pub call_slot: Cell<usize>,
}

impl ShimWords {
    /// With the handler's stack ending there.
    pub fn new(stack_top: usize) -> Self {
        Self {
            saved_sp: Cell::new(0),
            stack_top: Cell::new(stack_top),
            program_mask: Cell::new(0),
            sets_mask: Cell::new(1),
            call_slot: Cell::new(0),
        }
    }
}
