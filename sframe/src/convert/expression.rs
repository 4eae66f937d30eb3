//! The few DWARF expressions that SFrame has words for, recognised by their operations.

use alloc::vec::Vec;

use gimli::constants::{
    DW_OP_and, DW_OP_breg0, DW_OP_breg31, DW_OP_bregx, DW_OP_deref, DW_OP_ge, DW_OP_lit0,
    DW_OP_lit31, DW_OP_plus, DW_OP_plus_uconst, DW_OP_shl, DwOp,
};
use gimli::{Encoding, Expression, Operation};

use super::Reader;
use crate::Register;

/// The bytes of an entry of a procedure linkage table on amd64.
pub(super) const PLT_ENTRY_SIZE: u8 = 16;

/// A register plus an offset, or the word there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) register: Register,
    pub(super) offset: i64,
    pub(super) deref: bool,
}

/// The CFA in a procedure linkage table of amd64: rsp plus `offset`, and 8 more from the
/// instruction at `push_at` in each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plt {
    pub(super) offset: i32,
    pub(super) push_at: u8,
}

/// Besides `DW_OP_lit` and `DW_OP_breg`.
const KNOWN: [DwOp; 7] = [
    DW_OP_deref,
    DW_OP_and,
    DW_OP_plus,
    DW_OP_plus_uconst,
    DW_OP_shl,
    DW_OP_ge,
    DW_OP_bregx,
];

/// The operations, if all of them are ones that [`sum`] or [`plt`] may know. Of others not even the
/// operands are read: gimli computes with some of them, and in a build with overflow checks would
/// panic.
fn operations<'a>(
    expression: Expression<Reader<'a>>,
    encoding: Encoding,
) -> Option<Vec<Operation<Reader<'a>>>> {
    let (mut operations, mut rest) = (Vec::new(), expression.0);
    while let Some(opcode) = rest.slice().first() {
        let is_known = KNOWN.contains(&DwOp(*opcode))
            || (DW_OP_lit0.0..=DW_OP_lit31.0).contains(opcode)
            || (DW_OP_breg0.0..=DW_OP_breg31.0).contains(opcode);
        if !is_known {
            return None;
        }
        operations.push(Operation::parse(&mut rest, encoding).ok()?);
    }
    Some(operations)
}

/// `DW_OP_breg` with any number of `DW_OP_plus_uconst`, then perhaps `DW_OP_deref`.
pub(super) fn sum(expression: Expression<Reader<'_>>, encoding: Encoding) -> Option<Sum> {
    let operations = operations(expression, encoding)?;
    let (first, rest) = operations.split_first()?;
    let Operation::RegisterOffset {
        register, offset, ..
    } = first
    else {
        return None;
    };
    let mut sum = Sum {
        register: Register(register.0),
        offset: *offset,
        deref: false,
    };
    for operation in rest {
        match operation {
            _ if sum.deref => return None,
            Operation::PlusConstant { value } => {
                sum.offset = sum.offset.checked_add_unsigned(*value)?
            }
            Operation::Deref {
                size: 8,
                space: false,
                ..
            } => sum.deref = true,
            _ => return None,
        }
    }
    Some(sum)
}

/// `rsp + offset + ((rip & 15) >= push_at) << 3`, as every linker writes it.
pub(super) fn plt(expression: Expression<Reader<'_>>, encoding: Encoding) -> Option<Plt> {
    use Operation as Op;
    match operations(expression, encoding)?.as_slice() {
        [
            Op::RegisterOffset {
                register: gimli::X86_64::RSP,
                offset,
                ..
            },
            Op::RegisterOffset {
                register: gimli::X86_64::RA,
                offset: 0,
                ..
            },
            Op::UnsignedConstant { value: 15 },
            Op::And,
            Op::UnsignedConstant {
                value: push_at @ 1..=15,
            },
            Op::Ge,
            Op::UnsignedConstant { value: 3 },
            Op::Shl,
            Op::Plus,
        ] => Some(Plt {
            offset: i32::try_from(*offset).ok()?,
            push_at: *push_at as u8,
        }),
        _ => None,
    }
}
