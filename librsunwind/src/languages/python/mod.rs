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

use super::api::{self, Answer, Cursor, Language};
use super::layout::{STATE, flags};
use crate::modules::python::{Python as Module, found, tasks};
use crate::text::Text;
use crate::thread::ThreadState;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use engine::interpreter::memory::Memory;
use engine::interpreter::recent::Codes;
use engine::memory::{is_readable, load_verified};
use engine::mix::mix;
use engine::python::code::{Part, Place};
use engine::python::entries::Entry;
use engine::python::layout::{self, Entries, Layout};
use engine::python::names;
use engine::python::tasks::Awaiting;
use engine::registers::thread_block;
use engine::wire::event::EventKind;

const NOT_YET: u32 = 0;
const REGISTERED: u32 = 1;
const DECLINED: u32 = 2;

/// What is known of the interpreter.
struct Interpreter {
    module: Module,
    layout: Layout,
}

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
        found()?;
        // SAFETY: only called for the registered language.
        unsafe { (*self.known.get()).as_ref() }
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

/// What a walk keeps, in the words of its state.
struct Kept<'a> {
    entry: &'a mut [u64; Entry::WORDS],
    codes: Codes<'a>,
}

fn kept(state: &mut [u64; STATE / 8]) -> Option<Kept<'_>> {
    let (entry, rest) = state.split_first_chunk_mut()?;
    Some(Kept {
        entry,
        codes: Codes::new(rest.first_chunk_mut()?),
    })
}

// SAFETY: reads through the cursor alone, and is bounded.
unsafe impl Language for Python {
    const NAME: &'static CStr = c"python";
    const HAS_ENTRIES: bool = true;

    fn entry(&self, cursor: &mut Cursor<'_>) -> Option<u64> {
        let (known, memory) = (self.interpreter()?, cursor.own_memory()?);
        let own = thread_block();
        let thread = thread_state::find(memory, &known.module, &known.layout, own)?;
        if thread.has_lock {
            cursor.own_lock();
        }
        let entry = known.layout.innermost(memory, thread.address)?;
        *kept(cursor.state())?.entry = entry.to_words();
        Some(entry.address)
    }

    fn unwind(&self, cursor: &mut Cursor<'_>) -> Answer {
        let at = cursor.entry();
        cursor.set_entry(None);
        let next = self.interpreter().and_then(|known| known.give(cursor, at));
        cursor.set_entry(next);
        Answer::Native
    }
}

impl Interpreter {
    /// Gives the frames of the entry that was met, or of all that were not; and the next entry.
    fn give(&self, cursor: &mut Cursor<'_>, at: u64) -> Option<u64> {
        /// Entries that were not met, at most.
        const MOST: u32 = 1000;
        let (is_rest, memory) = (cursor.flags() & flags::REST != 0, cursor.own_memory()?);
        let mut entry = Entry::from_words(kept(cursor.state())?.entry);
        if entry.address == Entry::UNPLACED && !is_rest {
            match self.layout.placed(memory, &entry, at..cursor.cfa()?) {
                Some(placed) => entry = placed,
                None => return Some(entry.address),
            }
        }
        if entry.address != at {
            return None;
        }
        for _ in 0..MOST {
            let outermost = self.give_frames(cursor, &entry)?;
            match self.layout.outer(memory, &entry) {
                Some(outer) => entry = outer,
                None => {
                    self.tell_name(cursor, outermost);
                    return None;
                }
            }
            if !is_rest {
                break;
            }
        }
        *kept(cursor.state())?.entry = entry.to_words();
        Some(entry.address)
    }

    /// Tells what the program calls the thread whose outermost frame that is, from time to time.
    fn tell_name(&self, cursor: &Cursor<'_>, outermost: u64) {
        let thread = cursor.own_thread();
        let Some(thread) = thread.filter(|thread| thread.is_own_name_due()) else {
            return;
        };
        let mut room = [0; names::LONGEST];
        let memory = cursor.own_memory();
        let name = memory.and_then(|it| self.layout.thread_name(it, outermost, &mut room));
        if let Some(name) = name {
            thread.record_own_name(name);
        }
    }

    /// Gives the frames of an entry, and which is the outermost.
    fn give_frames(&self, cursor: &mut Cursor<'_>, entry: &Entry) -> Option<u64> {
        /// Frames of an entry, at most: more than a sample has room for. Of more, both ends.
        const MOST: u32 = 16_000;
        let left_out = entry.count.saturating_sub(MOST);
        let gap = MOST / 2..(MOST / 2).saturating_add(left_out);
        let memory = cursor.own_memory()?;
        let task = tasks().and_then(|table| Awaiting::of(memory, &self.layout, entry, table));
        let (mut frame, mut outermost) = (entry.frame, 0);
        for index in 0..entry.count {
            if !gap.contains(&index)
                && let Some(place) = self.layout.place(memory, frame)
            {
                self.give_frame(cursor, place)?;
            }
            // Who awaits a task calls it, as it were.
            if let Some(mut task) = task.filter(|task| task.outermost == frame) {
                while let Some(frame) = task.next(memory, &self.layout) {
                    if let Some(place) = self.layout.place(memory, frame) {
                        self.give_frame(cursor, place)?;
                    }
                }
            }
            outermost = frame;
            frame = self.layout.caller(memory, frame)?;
        }
        Some(outermost)
    }

    /// Gives a frame, with a description of its code object if that is new. One whose code object
    /// is none, or the interpreter's own, is left out.
    fn give_frame(&self, cursor: &mut Cursor<'_>, place: Place) -> Option<()> {
        let memory = cursor.own_memory()?;
        let mut codes = kept(cursor.state())?.codes;
        let code_type = self.module.code_type;
        let check = (self.layout).check(memory, place.code, code_type, &mut codes);
        if check == 0 {
            return Some(());
        }
        let start = match place.copy {
            0 => Some(0),
            copy => cursor.own_number(place.code, check ^ mix(copy.into()), || {
                self.layout.start_of(memory, &place)
            }),
        };
        let is_known = cursor
            .own_frame(place.code, check, place.position(start))
            .ok()?;
        if !is_known {
            // The frame stays without a name if that fails, or without some lines, and is described
            // at the next sample.
            let _ = self.layout.describe(memory, place.code, |part| {
                let told = match part {
                    Part::Code(code, true) => cursor.own_description(code),
                    Part::Code(code, false) => cursor.part_description(code),
                    Part::Lines(lines, is_last) => cursor.more_lines(lines, is_last),
                };
                told.ok()
            });
        }
        Some(())
    }
}
