//! CPython's frames, without a word from the interpreter: 3.9 to 3.15, found by what its module
//! exports, read from its own structures ([`engine::python`]).
//!
//! Nothing of libpython is called, and nothing is taken from it but by guarded reads. A native
//! frame that runs Python code has a record of its entry on the C stack; it is followed by the
//! Python frames that it runs, from 3.11 on there may be many. 3.9 has no such records: its frames
//! of the loop are known by their code, and which Python frame each runs by what it points at.
//!
//! Not here: where in memory what is, and the thread state's key ([`thread_state`]).
//!
//! # Safety
//! What is known of the interpreter is written before the language can be asked, and not again.
#![allow(unsafe_code)]

mod thread_state;
mod walk;

use super::api::{self, Answer, Cursor, Language};
use super::call::Call;
use super::layout::STATE;
use crate::modules::python::{Python as Module, found, is_here};
use crate::text::Text;
use crate::thread::ThreadState;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use engine::interpreter::memory::Memory;
use engine::memory::{is_readable, load_verified};
use engine::python::layout::{self, Entries};
use engine::registers::thread_block;
use engine::wire::event::EventKind;
use walk::{Interpreter, Walk};

const NOT_YET: u32 = 0;
const REGISTERED: u32 = 1;
const DECLINED: u32 = 2;

struct Python {
    /// Of these.
    state: AtomicU32,
    known: UnsafeCell<Option<Interpreter>>,
}

// SAFETY: see the module.
unsafe impl Sync for Python {}

static PYTHON: Python = Python {
    state: AtomicU32::new(NOT_YET),
    known: UnsafeCell::new(None),
};

/// Whether an interpreter has been met that was not known before this walk, and is registered now.
///
/// # Signal safety
/// Two loads; raw system calls where there is one.
#[inline]
pub(super) fn has_come(this: &ThreadState) -> bool {
    if PYTHON.state.load(Relaxed) != NOT_YET {
        return false;
    }
    found().is_some_and(|module| PYTHON.comes(this, module))
}

impl Python {
    #[cold]
    fn comes(&'static self, this: &ThreadState, module: Module) -> bool {
        let Some(layout) = layout::of(&Own, module.minor(), module.runtime) else {
            self.decline(this, &module);
            return false;
        };
        let [start, size] = module.code;
        let code = match layout.entries {
            Entries::Unplaced => Some(start..start.saturating_add(size)),
            _ => None,
        };
        let added = api::add_own(self, code, || {
            let is_first = self.state.load(Acquire) == NOT_YET;
            if is_first {
                // SAFETY: the language is not registered, and nobody else comes here meanwhile.
                unsafe { *self.known.get() = Some(Interpreter { module, layout }) };
                self.state.store(REGISTERED, Release);
            }
            is_first
        });
        added.is_some()
    }

    fn decline(&self, this: &ThreadState, module: &Module) {
        let change = self
            .state
            .compare_exchange(NOT_YET, DECLINED, AcqRel, Relaxed);
        if change.is_err() {
            return;
        }
        let text = Text::<160>::new()
            .then(b"no Python frames: they are known of CPython 3.9 to 3.15, this is 3.")
            .decimal(module.minor())
            .then(b"; its native frames are shown");
        this.event(EventKind::Note, module.version, text.bytes());
    }

    /// The interpreter, while its module is loaded.
    fn interpreter(&self) -> Option<&Interpreter> {
        // SAFETY: only called for the registered language.
        is_here().then(|| unsafe { (*self.known.get()).as_ref() })?
    }
}

/// The interpreter's own table, in the data of a module that is in use.
struct Own;

impl Memory for Own {
    fn load(&self, address: u64) -> Option<u64> {
        // SAFETY: just found readable; the table is part of the module.
        is_readable(address).then(|| unsafe { load_verified(address) })
    }

    fn copy(&self, _: u64, _: &mut [u8]) -> Option<()> {
        None
    }
}

// SAFETY: reads through the cursor alone, and is bounded.
unsafe impl Language for Python {
    const NAME: &'static CStr = c"python";
    const HAS_ENTRIES: bool = true;

    fn entry(&self, cursor: &mut Cursor<'_>) -> Option<u64> {
        let (known, call) = (self.interpreter()?, cursor.own_call()?);
        let own = thread_block();
        let thread = thread_state::find(call, &known.module, &known.layout, own)?;
        if thread.has_lock {
            call.has_lock.set(true);
        }
        let entry = known.layout.innermost(call, thread.address)?;
        Walk::new(known, call, cursor.state())?.come_to(&entry);
        Some(entry.address)
    }

    fn unwind(&self, cursor: &mut Cursor<'_>) -> Answer {
        // Where it has one, it is met; this is what is left of them when the walk is over.
        cursor.set_entry(None);
        let (known, call) = (self.interpreter(), cursor.own_call());
        let walk = known.zip(call);
        let walk = walk.and_then(|(known, call)| Walk::new(known, call, cursor.state()));
        if let Some(mut walk) = walk {
            walk.give_rest();
        }
        Answer::Native
    }
}

/// Gives what runs in a native frame that reaches from an entry to `end`, and the next entry, or 0.
///
/// # Signal safety
/// As a callback.
pub(super) fn meet(call: &Call<'_>, state: &mut [u64; STATE / 8], at: Range<u64>) -> u64 {
    let known = PYTHON.interpreter();
    let walk = known.and_then(|known| Walk::new(known, call, state));
    walk.and_then(|mut walk| walk.give(at)).unwrap_or(0)
}
