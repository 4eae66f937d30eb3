//! Rows as tables state them, and the table of those that no rule word holds.
//!
//! The table is shared by all threads and only ever grows: an entry is written once, then
//! published. Equal rows share an entry, so a program has a few dozen. It is full at [`CAPACITY`];
//! further rows are evaluated at every step instead.
//!
//! # Safety
//! An entry's row is written by the one thread that took the entry from empty to busy, and read
//! only after it is ready.
#![allow(unsafe_code)]

use crate::registers::{RETURN_ADDRESS_ON_STACK, Register};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

/// How many different rows the table holds.
pub const CAPACITY: usize = 2048;
/// How many entries a row may be away from where its content says.
const REACH: usize = 16;

/// How the CFA (canonical frame address: the caller's stack pointer after the return) is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// A register plus an offset in bytes.
    Offset {
        /// The register.
        register: Register,
        /// Bytes.
        offset: i32,
    },
    /// The word at a register plus an offset, plus something: functions that realign their stack
    /// (GCC's DRAP).
    Deref {
        /// The register.
        register: Register,
        /// Bytes from the register to the word.
        offset: i32,
        /// Bytes added to the word.
        add: i32,
    },
}

/// How a caller's register is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It still has it.
    Same,
    /// It is lost; for the return address: there is no caller.
    Undefined,
    /// In the word at CFA plus this many bytes.
    At(i32),
    /// It is CFA plus this many bytes.
    ValueAt(i32),
    /// In another register.
    InRegister(Register),
    /// In the word at a register plus an offset.
    AtRegister {
        /// The register.
        register: Register,
        /// Bytes.
        offset: i32,
    },
}

/// A row of an unwind table: how a caller's registers are found from a callee's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The canonical frame address.
    pub cfa: Cfa,
    /// The registers of [`crate::registers::SLOTS`].
    pub saved: [Saved; 6],
    /// The caller's stack pointer, if it is not the CFA.
    pub stack_pointer: Saved,
    /// The caller's pc.
    pub return_address: Saved,
    /// Whether registers that are not mentioned are lost, because the table does not know about
    /// them.
    pub drops: bool,
}

impl Row {
    /// A row that saves nothing.
    #[must_use]
    pub const fn new(cfa: Cfa) -> Self {
        let on_stack = RETURN_ADDRESS_ON_STACK;
        Self {
            cfa,
            saved: [Saved::Same; 6],
            stack_pointer: Saved::Same,
            return_address: if on_stack { Saved::At(-8) } else { Saved::Same },
            drops: false,
        }
    }
}

const EMPTY: u32 = 0;
const BUSY: u32 = 1;
const READY: u32 = 2;

#[derive(Debug)]
struct Entry {
    state: AtomicU32,
    row: UnsafeCell<core::mem::MaybeUninit<Row>>,
}

impl Entry {
    fn get(&self) -> Option<Row> {
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: ready entries are initialised and never written again.
        Some(unsafe { (*self.row.get()).assume_init() })
    }

    fn put(&self, row: &Row) -> bool {
        let taken = self
            .state
            .compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        // SAFETY: only the thread that made the entry busy gets here, and nobody reads before it is
        // ready.
        unsafe { (*self.row.get()).write(*row) };
        self.state.store(READY, Ordering::Release);
        true
    }
}

/// The table. Zeroed memory is an empty one.
#[derive(Debug)]
#[repr(C)]
pub struct WideRows {
    entries: [Entry; CAPACITY],
}

// SAFETY: see the head of this file.
unsafe impl Sync for WideRows {}

impl WideRows {
    /// The row at an index that [`WideRows::insert`] gave.
    ///
    /// # Signal safety
    /// Loads only.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<Row> {
        self.entries.get(index as usize)?.get()
    }

    /// The index of a row, which is added if it is new and there is room.
    ///
    /// # Signal safety
    /// Bounded, takes no lock: an entry that another thread is writing is passed over.
    pub fn insert(&self, row: &Row) -> Option<u32> {
        let start = (hash(row) as usize).wrapping_rem(CAPACITY);
        for distance in 0..REACH {
            let index = start.wrapping_add(distance).wrapping_rem(CAPACITY);
            let entry = self.entries.get(index)?;
            if entry.put(row) || entry.get().is_some_and(|found| found == *row) {
                return u32::try_from(index).ok();
            }
        }
        None
    }
}

fn hash(row: &Row) -> u64 {
    let mut state = match row.cfa {
        Cfa::Offset { register, offset } => mix(u64::from(register.0), offset),
        Cfa::Deref {
            register,
            offset,
            add,
        } => mix(mix(u64::from(register.0) | 256, offset), add),
    };
    for saved in row
        .saved
        .iter()
        .chain([&row.stack_pointer, &row.return_address])
    {
        state = match *saved {
            Saved::Same => mix(state, 1),
            Saved::Undefined => mix(state, 2),
            Saved::At(offset) => mix(state, offset),
            Saved::ValueAt(offset) => mix(!state, offset),
            Saved::InRegister(register) => mix(!state, i32::from(register.0)),
            Saved::AtRegister { register, offset } => {
                mix(mix(state, offset), i32::from(register.0))
            }
        };
    }
    state >> 32
}

fn mix(state: u64, value: i32) -> u64 {
    (state ^ u64::from(value as u32))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}
