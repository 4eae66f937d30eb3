//! Executes the call frame instructions of an FDE up to one pc, keeping only the registers that a
//! walk follows.
//!
//! gimli parses the instructions; the state here is a tenth of its own table row, which counts in a
//! signal handler that has just missed the rule cache. Tests compare the two for every row of real
//! libraries.

use super::expression::Bytes;
use crate::registers::{RETURN_ADDRESS, SLOTS, SP};
use gimli::{CallFrameInstruction, CallFrameInstructionIter, UnwindExpression};

/// Saved states; compilers nest one deep.
const DEPTH: usize = 8;
/// Columns followed: the slots, then the stack pointer, then the return address.
const COLUMNS: usize = 8;
/// Instructions that one program may have.
const BUDGET: u32 = 100_000;

/// A table that we cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad;

/// Where an expression stands in the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    offset: u32,
    length: u32,
}

impl Place {
    fn of(expression: UnwindExpression<usize>) -> Result<Self, Bad> {
        let number = |value: usize| u32::try_from(value).map_err(|_| Bad);
        Ok(Self {
            offset: number(expression.offset)?,
            length: number(expression.length)?,
        })
    }

    /// The expression's bytes.
    pub(crate) fn bytes(self, section: Bytes<'_>) -> Option<Bytes<'_>> {
        let bytes = section.slice().get(self.offset as usize..)?;
        let bytes = bytes.get(..self.length as usize)?;
        Some(Bytes::new(bytes, gimli::LittleEndian))
    }
}

/// A column as the program left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Unspecified,
    Undefined,
    Same,
    At(i32),
    ValueAt(i32),
    Register(u16),
    Expression(Place),
    ValueExpression(Place),
}

/// The CFA as the program left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Offset(u16, i64),
    Expression(Place),
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) cfa: Base,
    pub(crate) columns: [Column; COLUMNS],
}

impl State {
    pub(crate) const BLANK: Self = Self {
        cfa: Base::Offset(0, 0),
        columns: [Column::Unspecified; COLUMNS],
    };
}

/// A program under execution.
pub(crate) struct Program {
    state: State,
    initial: State,
    has_initial: bool,
    stack: [State; DEPTH],
    depth: usize,
    location: u64,
    pc: u64,
    code_factor: u64,
    data_factor: i64,
}

impl Program {
    pub(crate) fn new(start: u64, pc: u64, code_factor: u64, data_factor: i64) -> Self {
        Self {
            state: State::BLANK,
            initial: State::BLANK,
            has_initial: false,
            stack: [State::BLANK; DEPTH],
            depth: 0,
            location: start,
            pc,
            code_factor,
            data_factor,
        }
    }

    /// Executes the CIE's instructions, then the FDE's up to the pc.
    pub(crate) fn run(
        mut self,
        cie: CallFrameInstructionIter<'_, Bytes<'_>>,
        fde: CallFrameInstructionIter<'_, Bytes<'_>>,
    ) -> Result<State, Bad> {
        self.execute_all(cie)?;
        self.initial = self.state;
        self.has_initial = true;
        self.execute_all(fde)?;
        Ok(self.state)
    }

    #[inline(never)]
    fn execute_all(
        &mut self,
        mut instructions: CallFrameInstructionIter<'_, Bytes<'_>>,
    ) -> Result<(), Bad> {
        for _ in 0..BUDGET {
            match instructions.next() {
                Ok(Some(instruction)) => {
                    if !self.execute(&instruction)? {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => return Err(Bad),
            }
        }
        Err(Bad)
    }

    /// Executes one instruction; `false` when the row of the pc is complete.
    #[inline]
    fn execute(&mut self, instruction: &CallFrameInstruction<usize>) -> Result<bool, Bad> {
        use CallFrameInstruction as I;
        match *instruction {
            I::SetLoc { address } => return self.advance(address),
            I::AdvanceLoc { delta } => {
                let distance = u64::from(delta).wrapping_mul(self.code_factor);
                return self.advance(self.location.wrapping_add(distance));
            }
            I::DefCfa { register, offset } => {
                self.state.cfa = Base::Offset(register.0, offset as i64);
            }
            I::DefCfaSf {
                register,
                factored_offset,
            } => {
                let offset = factored_offset.wrapping_mul(self.data_factor);
                self.state.cfa = Base::Offset(register.0, offset);
            }
            I::DefCfaRegister { register } => match &mut self.state.cfa {
                Base::Offset(place, _) => *place = register.0,
                Base::Expression(_) => return Err(Bad),
            },
            I::DefCfaOffset { offset } => self.set_cfa_offset(offset as i64)?,
            I::DefCfaOffsetSf { factored_offset } => {
                self.set_cfa_offset(factored_offset.wrapping_mul(self.data_factor))?;
            }
            I::DefCfaExpression { expression } => {
                self.state.cfa = Base::Expression(Place::of(expression)?);
            }
            I::RememberState => {
                *self.stack.get_mut(self.depth).ok_or(Bad)? = self.state;
                self.depth = self.depth.wrapping_add(1);
            }
            I::RestoreState => {
                self.depth = self.depth.checked_sub(1).ok_or(Bad)?;
                self.state = *self.stack.get(self.depth).ok_or(Bad)?;
            }
            ref other => self.set_column(other)?,
        }
        Ok(true)
    }

    fn advance(&mut self, to: u64) -> Result<bool, Bad> {
        if to < self.location {
            return Err(Bad);
        }
        self.location = to;
        Ok(to <= self.pc)
    }

    fn set_cfa_offset(&mut self, to: i64) -> Result<(), Bad> {
        match &mut self.state.cfa {
            Base::Offset(_, offset) => *offset = to,
            Base::Expression(_) => return Err(Bad),
        }
        Ok(())
    }

    fn set_column(&mut self, instruction: &CallFrameInstruction<usize>) -> Result<(), Bad> {
        use CallFrameInstruction as I;
        let (register, column) = match *instruction {
            I::Offset {
                register,
                factored_offset,
            } => (register, Column::At(self.scaled(factored_offset as i64)?)),
            I::OffsetExtendedSf {
                register,
                factored_offset,
            } => (register, Column::At(self.scaled(factored_offset)?)),
            I::ValOffset {
                register,
                factored_offset,
            } => (
                register,
                Column::ValueAt(self.scaled(factored_offset as i64)?),
            ),
            I::ValOffsetSf {
                register,
                factored_offset,
            } => (register, Column::ValueAt(self.scaled(factored_offset)?)),
            I::Undefined { register } => (register, Column::Undefined),
            I::SameValue { register } => (register, Column::Same),
            I::Register {
                dest_register,
                src_register,
            } => (dest_register, Column::Register(src_register.0)),
            I::Expression {
                register,
                expression,
            } => (register, Column::Expression(Place::of(expression)?)),
            I::ValExpression {
                register,
                expression,
            } => (register, Column::ValueExpression(Place::of(expression)?)),
            I::Restore { register } => (register, self.initial_column(register.0)?),
            _ => return Ok(()),
        };
        let index = column_of(register.0);
        if let Some(place) = index.and_then(|index| self.state.columns.get_mut(index)) {
            *place = column;
        }
        Ok(())
    }

    fn initial_column(&self, register: u16) -> Result<Column, Bad> {
        if !self.has_initial {
            return Err(Bad);
        }
        let column = column_of(register).and_then(|index| self.initial.columns.get(index));
        Ok(column.copied().unwrap_or(Column::Unspecified))
    }

    fn scaled(&self, factored: i64) -> Result<i32, Bad> {
        i32::try_from(factored.wrapping_mul(self.data_factor)).map_err(|_| Bad)
    }
}

/// The column of a register that is followed.
#[inline]
fn column_of(register: u16) -> Option<usize> {
    let column = COLUMN_OF.get(usize::from(register))?;
    (*column < COLUMNS as u8).then_some(usize::from(*column))
}

/// By register number; [`COLUMNS`] for those that are not followed.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated by the compiler"
)]
const COLUMN_OF: [u8; 33] = {
    let mut columns = [COLUMNS as u8; 33];
    let mut column = 0;
    while column < SLOTS.len() {
        columns[SLOTS[column].0 as usize] = column as u8;
        column += 1;
    }
    columns[SP.0 as usize] = SLOTS.len() as u8;
    columns[RETURN_ADDRESS.0 as usize] = SLOTS.len() as u8 + 1;
    columns
};
