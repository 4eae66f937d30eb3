//! V8's frames, without a word from the program: of Node 20, 22 and 24, found by what V8 exports for
//! debuggers, read from its own objects.
//!
//! Nothing of V8 is called, and nothing is taken from it but by guarded reads. All code that V8
//! makes or brings has frame pointers, by which the native walk goes along; this language is asked
//! about each frame in code that no table knows, and adds the function that it runs.
//!
//! ```text
//! frame ─► JSFunction ─► SharedFunctionInfo ─► ScopeInfo: name, place in the source
//!   └► BytecodeArray: lines          └► Script: file, source
//! ```
//!
//! | file | |
//! |---|---|
//! | [`layout`] | where fields are, in each version |
//! | [`frame`] | how a frame stands, and which function it says it runs |
//! | [`heap`] | objects and their types |
//! | [`function`] | functions: told from others, and named |
//! | `lines` | where in the source it is |
//! | `strings` | text of string objects |
//!
//! # Safety
//! What is known of V8 is written before the language can be asked, and not again.
#![allow(unsafe_code)]

mod frame;
mod function;
mod heap;
mod layout;
mod lines;
mod strings;
#[cfg(test)]
mod tests;

use super::api::{self, Answer, Cursor, Language};
use super::{ranges, table};
use crate::modules::is_of_file;
use crate::modules::v8::{V8 as Module, found};
use crate::sys;
use crate::text::Text;
use crate::thread::ThreadState;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use engine::interpreter::recent::{Codes, WORDS};
use engine::mix::mix;
use engine::registers::Registers;
use engine::wire::code::{Code, LONGEST_FILE, LONGEST_LINES, LONGEST_NAME, LineFormat};
use engine::wire::event::EventKind;
use frame::{Bytecode, Caller, Standing};
use heap::Heap;
use layout::{Layout, Unknown};
use lines::Lines;

const NOT_YET: u32 = 0;
const DECLINED: u32 = 1;
const REGISTERED: u32 = 2;

struct V8 {
    /// Of these.
    state: AtomicU32,
    layout: UnsafeCell<Option<Layout>>,
}

// SAFETY: see the module.
unsafe impl Sync for V8 {}

static V8: V8 = V8 {
    state: AtomicU32::new(NOT_YET),
    layout: UnsafeCell::new(None),
};

/// Whether V8 has been met, was not known before this walk, and is registered now.
///
/// # Signal safety
/// Two loads; raw system calls where there is one.
#[inline]
pub(super) fn has_come(this: &ThreadState) -> bool {
    if V8.state.load(Relaxed) != NOT_YET {
        return false;
    }
    found().is_some_and(|module| V8.comes(this, &module))
}

impl V8 {
    #[cold]
    fn comes(&'static self, this: &ThreadState, module: &Module) -> bool {
        let layout = match layout::of(module) {
            Ok(layout) => layout,
            Err(unknown) => {
                self.decline(this, unknown);
                return false;
            }
        };
        // Memory for names is not asked for where that may kill the program.
        if sys::seccomp_filtered() {
            return false;
        }
        let added = api::add_own(self, || {
            let known = self.layout.get();
            // SAFETY: nobody else comes here meanwhile, and the language is not registered if
            // there is no layout.
            unsafe {
                let is_first = (*known).is_none();
                if is_first {
                    *known = Some(layout);
                }
                is_first
            }
        });
        if let Some(place) = added {
            ranges::add_untabled(place);
            self.state.store(REGISTERED, Relaxed);
            // Its code was taken for anybody's without tables.
            table::forget_rules();
        }
        added.is_some()
    }

    fn decline(&self, this: &ThreadState, Unknown(major, minor): Unknown) {
        let change = self
            .state
            .compare_exchange(NOT_YET, DECLINED, AcqRel, Relaxed);
        if change.is_err() {
            return;
        }
        let text = Text::<160>::new()
            .then(b"no JavaScript frames: they are known of V8 11.3, 12.4 and 13.6 (Node 20, 22, 24), this is ")
            .decimal(u64::from(major))
            .then(b".")
            .decimal(u64::from(minor));
        this.event(EventKind::Note, u64::from(major), text.bytes());
    }

    fn layout(&self) -> Option<&Layout> {
        // SAFETY: only called for the registered language.
        unsafe { (*self.layout.get()).as_ref() }
    }
}

// SAFETY: reads through the cursor alone, and is bounded.
unsafe impl Language for V8 {
    const NAME: &'static CStr = c"javascript";

    fn unwind(&self, cursor: &mut Cursor<'_>) -> Answer {
        let is_compiled = !is_of_file(cursor.pc());
        let standing = self
            .layout()
            .and_then(|layout| look(layout, cursor, is_compiled));
        match standing.and_then(|standing| standing.caller) {
            Some(caller) => answer(cursor, caller),
            None => Answer::Native,
        }
    }
}

/// Gives the function of a frame; `None` if it is not one.
fn look(layout: &Layout, cursor: &mut Cursor<'_>, is_compiled: bool) -> Option<Standing> {
    /// What tells the descriptions apart that have lines of bytecodes.
    const INTERPRETED: u64 = 1 << 62;
    let standing = frame::standing(cursor, is_compiled)?;
    let known = recent(cursor)?.find(standing.function);
    let check = match known {
        Some(check) => check,
        None => {
            let check = check(layout, cursor, standing.function);
            recent(cursor)?.keep(standing.function, check);
            check
        }
    };
    if check == 0 {
        return None;
    }
    let fp = standing
        .fp
        .filter(|_| !is_compiled && check & HAS_CODE != 0);
    let bytecode = fp.and_then(|fp| frame::bytecode(cursor, layout.bytecode_data, fp));
    let (id, position) = match bytecode {
        Some(bytecode) => (INTERPRETED, bytecode.offset),
        None => (0, 0),
    };
    let is_known = cursor.own_frame(id, check, position).ok()?;
    if !is_known {
        describe(layout, cursor, standing.function, bytecode);
    }
    Some(standing)
}

fn recent<'c>(cursor: &'c mut Cursor<'_>) -> Option<Codes<'c>> {
    Some(Codes::new(cursor.state().first_chunk_mut::<WORDS>()?))
}

/// Of the number of a function: that it is not one of V8's own.
const HAS_CODE: u64 = 1;

/// The number of a function; 0 if it is none.
fn check(layout: &Layout, cursor: &Cursor<'_>, function: u64) -> u64 {
    let heap = Heap {
        memory: cursor,
        layout,
    };
    let shared = heap.shared(function);
    let found = shared.and_then(|shared| heap.function(shared));
    // Builtins without a name are called by the name of their code.
    let found = found.filter(|function| heap.has_name(function));
    found.map_or(0, |function| {
        // Scripts are numbered in each thread anew.
        let check = mix(heap.check(&function) ^ thread()) & !HAS_CODE;
        check
            | if function.range.is_some() {
                HAS_CODE
            } else {
                2
            }
    })
}

/// A number of this thread.
fn thread() -> u64 {
    ThreadState::current_unchecked().map_or(0, ThreadState::key)
}

/// Describes a function. It stays without a name if that fails, and is described at the next
/// sample.
#[cold]
#[inline(never)]
fn describe(
    layout: &Layout,
    cursor: &Cursor<'_>,
    function: u64,
    bytecode: Option<Bytecode>,
) -> Option<()> {
    let heap = Heap {
        memory: cursor,
        layout,
    };
    let function = heap.function(heap.shared(function)?)?;
    let mut lines = Lines::none();
    let is_whole = heap.lines(&function, &mut lines, thread()).is_ok();
    let (mut name, mut file) = ([0; LONGEST_NAME], [0; LONGEST_FILE]);
    let mut rows = [0; LONGEST_LINES];
    let array = bytecode.and_then(|code| heap.of_kind(code.array, layout.types.bytecodes));
    let length = array
        .filter(|_| lines.first != 0)
        .and_then(|array| heap.bytecode_lines(array, &lines, &mut rows));
    let code = Code {
        name: heap.name_of(&function, &mut name),
        file: heap.file_of(&function, &mut file),
        first_line: lines.first,
        format: match length {
            Some(_) => LineFormat::Steps,
            None => LineFormat::None,
        },
        lines: rows.get(..length.unwrap_or(0))?,
        ..Code::default()
    };
    match is_whole {
        true => cursor.own_description(code).ok(),
        false => cursor.part_description(code).ok(),
    }
}

/// The caller of a frame that is not there: its frame pointer is known, and the stack pointer.
fn answer(cursor: &Cursor<'_>, caller: Caller) -> Answer {
    const FP: usize = 6;
    const SP: usize = 7;
    let mut registers = Registers {
        general: cursor.interrupted().general,
        pc: caller.pc,
    };
    for (place, value) in [(FP, caller.fp), (SP, caller.sp)] {
        if let Some(register) = registers.general.get_mut(place) {
            *register = value;
        }
    }
    Answer::Caller(registers, 1 << FP | 1 << SP)
}
