//! Unwind tables: from the pc of a frame to its rule, when the rule cache has none.
//!
//! For every frame the first that answers is taken: SFrame, `.eh_frame`, frame pointers.

pub mod eh_frame;
mod epilogue;
pub mod expression;
pub mod frame_pointer;
mod frame_program;
mod sframe;
pub mod signal_frame;
mod usual;

use crate::cursor::Cursor;
use crate::memory::{self, StackMemory};
use crate::module_map::{Module, Modules};
use crate::rule::UnwindRule;
use crate::rule::wide::WideRows;
use crate::wire::sample::StopReason;
use eh_frame::EhFrameTable;

/// Why a table has no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No row covers the pc.
    NoRow,
    /// The table is damaged, or uses what we do not know.
    BadTable,
}

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

/// The rule of a cursor's frame. `module` is that of the frame found before: callers often lie in the same.
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
                rule: without_table(StopReason::UnknownCode, cursor, memory),
                keep: false,
            };
        };
        *module = found;
    }
    let rule = match by_table(modules, module, preference, cursor, memory, wide) {
        Ok(rule) => rule,
        Err(Missing::NoRow) => without_table(StopReason::NoRow, cursor, memory),
        Err(Missing::BadTable) => without_table(StopReason::BadTable, cursor, memory),
    };
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

/// The rule of code for which no table has one: a trampoline, or frame pointers.
fn without_table(reason: StopReason, cursor: &Cursor, memory: &mut StackMemory) -> UnwindRule {
    if signal_frame::is_trampoline(cursor.pc(), memory) {
        UnwindRule::signal()
    } else {
        UnwindRule::frame_pointer(reason)
    }
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
    EhFrameTable::new(memory::table_bytes(start, end), start.0, hdr.start.0)
}
