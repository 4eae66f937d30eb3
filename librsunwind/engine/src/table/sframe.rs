//! SFrame: the table made for stack traces, read with the crate of that name.
//!
//! Its rows know the CFA, the return address and the frame pointer; every other register is lost in
//! such a step. The bytes may be damaged: then the module is said to be distrusted and its
//! `.eh_frame` answers instead.

use super::{Missing, epilogue, signal_frame};
use crate::cursor::Cursor;
use crate::memory::{self, StackMemory};
use crate::module_map::{Module, Modules, Table};
use crate::registers::{FP, RETURN_ADDRESS_ON_STACK, Register, SP};
use crate::rule::UnwindRule;
use crate::rule::wide::{Cfa, Row, Saved, WideRows};
use crate::wire::sample::Method;
use sframe::{Abi, Address, Base, Error, Rule, Section};

const ABI: Abi = if RETURN_ADDRESS_ON_STACK {
    Abi::Amd64
} else {
    Abi::Aarch64Little
};

/// The rule of a cursor's frame by its module's `.sframe`.
pub(super) fn find_rule<M: Modules>(
    modules: &M,
    module: &mut Module,
    cursor: &Cursor,
    memory: &mut StackMemory,
    wide: &WideRows,
) -> Result<UnwindRule, Missing> {
    if !module.sframe.is_present() {
        return Err(Missing::NoRow);
    }
    let row = match lookup(module, cursor.code_address().lookup().0) {
        Ok(row) => row.ok_or(Missing::NoRow)?,
        Err(_) => {
            modules.distrust_sframe(module);
            module.sframe = Table::default();
            return Err(Missing::BadTable);
        }
    };
    if row.signal_frame {
        let is_trampoline = signal_frame::is_trampoline(cursor.pc(), memory);
        return is_trampoline.then(UnwindRule::signal).ok_or(Missing::NoRow);
    }
    if row.is_outermost() {
        return Ok(UnwindRule::root(Method::Sframe));
    }
    let mut row = row_of(&row).ok_or(Missing::NoRow)?;
    epilogue::mend(&mut row, || epilogue::code(cursor, memory));
    UnwindRule::from_row(&row, Method::Sframe)
        .or_else(|| Some(UnwindRule::wide(Method::Sframe, wide.insert(&row)?)))
        .ok_or(Missing::NoRow)
}

fn lookup(module: &Module, pc: u64) -> Result<Option<sframe::Row>, Error> {
    let table = &module.sframe;
    // The program header's size is not to be relied on, so the section may reach to the end of the
    // segment.
    let (_, end) = table.readable;
    let bytes = memory::table_bytes(table.start, end);
    let section = Section::new(bytes, Address(table.start.0))?;
    if section.header().abi != ABI {
        return Ok(None);
    }
    section.lookup(Address(pc))
}

/// A row in our own words; none if it says what these do not.
fn row_of(from: &sframe::Row) -> Option<Row> {
    let register = match from.cfa.base {
        Base::StackPointer => SP,
        Base::FramePointer => FP,
        Base::Register(register) => register_of(register)?,
    };
    let offset = from.cfa.offset;
    let mut row = Row::new(if from.cfa.deref {
        Cfa::Deref {
            register,
            offset,
            add: 0,
        }
    } else {
        Cfa::Offset { register, offset }
    });
    row.drops = true;
    row.return_address = saved_of(from.ra)?;
    let [fp, link, ..] = &mut row.saved;
    *fp = saved_of(from.fp)?;
    if !RETURN_ADDRESS_ON_STACK {
        *link = row.return_address;
    }
    Some(row)
}

fn saved_of(rule: Rule) -> Option<Saved> {
    Some(match rule {
        Rule::Unchanged => Saved::Same,
        Rule::Undefined => Saved::Undefined,
        Rule::AtCfa(offset) => Saved::At(offset),
        Rule::Register {
            register,
            offset: 0,
        } => Saved::InRegister(register_of(register)?),
        Rule::AtRegister { register, offset } => Saved::AtRegister {
            register: register_of(register)?,
            offset,
        },
        _ => return None,
    })
}

fn register_of(register: sframe::Register) -> Option<Register> {
    u8::try_from(register.0).ok().map(Register)
}
