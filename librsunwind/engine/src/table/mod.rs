//! Unwind tables: from the pc of a frame to its rule, when the rule cache has none.
//!
//! For every frame the first that answers is taken: SFrame, `.eh_frame`, frame pointers.

pub mod eh_frame;
mod epilogue;
pub mod expression;
pub mod frame_pointer;
mod frame_program;
pub(crate) mod go_switch;
pub mod index;
mod missing;
pub mod outset;
mod sframe;
pub mod signal_frame;
mod system_stack;
mod usual;

use crate::cursor::Cursor;
use crate::memory::{self, StackMemory};
use crate::module_map::{Module, Modules};
use crate::rule::UnwindRule;
use crate::rule::wide::WideRows;
use crate::wire::sample::{Method, StopReason};
use eh_frame::EhFrameTable;
pub use missing::Missing;

/// Which tables are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preference {
    /// SFrame where a module has it, then `.eh_frame`, then frame pointers.
    #[default]
    Auto,
    /// SFrame, then frame pointers.
    Sframe,
    /// `.eh_frame`, then frame pointers.
    EhFrame,
    /// Frame pointers only.
    FramePointer,
}

/// A rule, and whether it may be kept for the pc.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) rule: UnwindRule,
    pub(crate) keep: bool,
}

/// The rule of a cursor's frame. `module` is that of the frame found before: callers often lie in
/// the same.
#[inline(never)]
pub(crate) fn find_rule<M: Modules>(
    modules: &M,
    module: &mut Module,
    preference: Preference,
    cursor: &Cursor,
    memory: &mut StackMemory,
    wide: &WideRows,
) -> Answer {
    let pc = cursor.code_address().lookup();
    if !module.contains(pc) {
        let Some(found) = modules.find(pc) else {
            return Answer {
                rule: by_code(cursor, memory)
                    .unwrap_or(UnwindRule::frame_pointer(StopReason::UnknownCode)),
                keep: false,
            };
        };
        *module = found;
    }
    let rule = by_table(modules, module, preference, cursor, memory, wide);
    let rule = rule.unwrap_or_else(|missing| {
        by_code(cursor, memory).unwrap_or_else(|| match missing {
            Missing::NoRow if is_made_entry(module, cursor) => UnwindRule::root(Method::EhFrame),
            Missing::NoRow => UnwindRule::frame_pointer(StopReason::NoRow),
            Missing::BadTable => UnwindRule::frame_pointer(StopReason::BadTable),
        })
    });
    Answer { rule, keep: true }
}

fn by_table<M: Modules>(
    modules: &M,
    module: &mut Module,
    preference: Preference,
    cursor: &Cursor,
    memory: &mut StackMemory,
    wide: &WideRows,
) -> Result<UnwindRule, Missing> {
    if matches!(preference, Preference::Auto | Preference::Sframe) {
        let found = sframe::find_rule(modules, module, cursor, memory, wide);
        if found.is_ok() || preference == Preference::Sframe {
            return found;
        }
    }
    if preference == Preference::FramePointer {
        return Err(Missing::NoRow);
    }
    by_eh_frame(module, cursor, memory, wide)
}

fn by_eh_frame(
    module: &Module,
    cursor: &Cursor,
    memory: &mut StackMemory,
    wide: &WideRows,
) -> Result<UnwindRule, Missing> {
    let table = eh_frame_of(module).ok_or(Missing::NoRow)?;
    table.rule(
        cursor.code_address().lookup().0,
        wide,
        memory,
        |memory| signal_frame::is_trampoline(cursor.pc(), memory),
        |memory| epilogue::code(cursor, memory),
    )
}

/// What code for which no table has a rule says itself: that it is a trampoline, or a change of
/// stacks.
fn by_code(cursor: &Cursor, memory: &mut StackMemory) -> Option<UnwindRule> {
    let pc = cursor.pc();
    if signal_frame::is_trampoline(pc, memory) {
        return Some(UnwindRule::signal());
    }
    (!cursor.is_exact())
        .then(|| go_switch::rule(pc, memory))
        .flatten()
}

/// Whether a return address is the beginning of a function, with no code of another in front of it:
/// nobody called from there. It was put on a new stack so that its first function returns there
/// (`makecontext`).
fn is_made_entry(module: &Module, cursor: &Cursor) -> bool {
    let begins = |table: EhFrameTable<'_>| table.begins_at(cursor.pc());
    !cursor.is_exact() && eh_frame_of(module).is_some_and(begins)
}

/// A module's `.eh_frame`, if it has an index for it.
#[inline]
#[must_use]
pub fn eh_frame_of(module: &Module) -> Option<EhFrameTable<'static>> {
    let hdr = &module.eh_frame_hdr;
    if !hdr.is_present() {
        return None;
    }
    let (start, end) = hdr.readable;
    let bytes = memory::table_bytes(start, end);
    if hdr.is_inside() {
        return EhFrameTable::new(bytes, start.0, hdr.start.0);
    }
    let index = memory::table_bytes(hdr.start, hdr.end);
    Some(EhFrameTable::with_index(bytes, start.0, index))
}
