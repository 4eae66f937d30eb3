//! V8's frames, without a word from the program: of Node 20, 22 and 24, found by what V8 exports
//! for debuggers, read from its own objects ([`engine::v8`]).
//!
//! Nothing of V8 is called, and nothing is taken from it but by guarded reads. All code that V8
//! makes or brings has frame pointers, by which the native walk goes along; this language is asked
//! about each frame in code that no table knows, and adds the function that it runs.
//!
//! # Safety
//! What is known of V8 is written before the language can be asked, and not again.
#![allow(unsafe_code)]

use super::api::{self, Answer, Cursor, Language};
use super::layout::flags;
use super::{ranges, table};
use crate::modules::is_of_file;
use crate::modules::v8::{V8 as Module, found};
use crate::text::Text;
use crate::thread::ThreadState;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use engine::language::Steady;
use engine::registers::Registers;
use engine::v8::code::{EXPRESSION, expression};
use engine::v8::frame::{Caller, Native, Standing, is_expression, is_functionless, standing};
use engine::v8::layout::{self, Layout, Unknown};
use engine::v8::met::Moment;
use engine::wire::event::EventKind;

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
        let layout = match layout::of(|name| module.constant(name)) {
            Ok(layout) => layout,
            Err(unknown) => {
                self.decline(this, unknown);
                return false;
            }
        };
        let added = api::add_own(self, None, || {
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
        let standing = self.layout().and_then(|layout| look(layout, cursor));
        match standing.and_then(|standing| standing.caller) {
            Some(caller) => answer(cursor, caller),
            None => Answer::Native,
        }
    }
}

/// By DWARF number.
const RDI: u8 = 5;
const RBP: u8 = 6;
const RSP: u8 = 7;
const R9: u8 = 9;
const R12: u8 = 12;

/// Gives the function of a frame; `None` if it is not one.
fn look(layout: &Layout, cursor: &mut Cursor<'_>) -> Option<Standing> {
    let frame = Native {
        pc: cursor.pc(),
        is_exact: cursor.flags() & flags::EXACT != 0,
        is_compiled: !is_of_file(cursor.pc()),
        sp: cursor.register(RSP)?,
        fp: cursor.register(RBP)?,
        rdi: cursor.register(RDI),
        r9: cursor.register(R9),
        r12: cursor.register(R12),
    };
    let call = cursor.own_call()?;
    let moment = Moment::at(call.this.key(), call.began_ns);
    let Some(standing) = standing(call, &frame) else {
        let [id, number] = EXPRESSION;
        if is_expression(call, &frame, layout.expression) && !call.frame(id, number, 0).ok()? {
            let _ = call.describe(expression(), true);
        } else if is_functionless(call, &frame) {
            call.steady.set(Some(Steady::Nothing));
        }
        return None;
    };
    let steady = standing.words(&frame).map(Steady::Frame);
    if let Some(met) = layout.met(call, &frame, &standing, &moment)
        && call.known_frame(met.id, met.check, met.position).ok()?
    {
        call.steady.set(steady);
        return Some(standing);
    }
    let shared = layout.shared(call, standing.function)?;
    let check = layout.check(call, shared, moment.thread);
    if check == 0 {
        return None;
    }
    let place = layout.place(call, &frame, &standing, (shared, check));
    let is_kept = layout.keep(call, &frame, (shared, check), &place, &moment);
    let is_known = call.frame(place.id, check, place.position).ok()?;
    // What V8 brings has no script, and is not kept: its code is one function's.
    if is_known && (is_kept.is_some() || !frame.is_compiled) {
        call.steady.set(steady);
    }
    if !is_known {
        layout.describe(call, shared, &place, moment.thread, |code, is_whole| {
            // The function stays without a name if that fails, and is described at the next sample.
            let _ = call.describe(code, is_whole);
        });
    }
    Some(standing)
}

/// The caller of a frame that is not there: its frame pointer is known, and the stack pointer.
fn answer(cursor: &Cursor<'_>, caller: Caller) -> Answer {
    let mut registers = Registers {
        general: cursor.interrupted().general,
        pc: caller.pc,
    };
    for (number, value) in [(RBP, caller.fp), (RSP, caller.sp)] {
        if let Some(register) = registers.general.get_mut(usize::from(number)) {
            *register = value;
        }
    }
    Answer::Caller(registers, 1 << RBP | 1 << RSP)
}
