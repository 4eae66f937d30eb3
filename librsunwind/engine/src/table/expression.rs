//! DWARF expressions in unwind tables.
//!
//! The same evaluator runs twice: when a row is lowered, with registers as symbols, to find out
//! that the expression is one that a [`Row`](crate::rule::wide::Row) states (the PLT's, which
//! depends on the pc only, and those of functions that realign their stack); and with a cursor, at
//! every step, for anything else.

use crate::cursor::Cursor;
use crate::memory::StackMemory;
use crate::registers::Register;
use crate::wire::sample::StopReason;
use gimli::{Encoding, EndianSlice, LittleEndian, Operation};

/// Bytes of a table.
pub type Bytes<'a> = EndianSlice<'a, LittleEndian>;

const STACK: usize = 16;
/// Operations that an expression may execute.
const BUDGET: u32 = 256;
/// The DWARF number of the pc where expressions may name it.
const PC: u16 = 16;
pub(crate) const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: gimli::Format::Dwarf32,
    version: 4,
};

/// A value, or what is known about it when registers are symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// The CFA, which an expression for a register finds on its stack.
    Cfa,
    /// A register plus an offset.
    Register(Register, i64),
    /// The word at a register plus an offset, plus another.
    Word(Register, i64, i64),
}

/// What an expression sees.
pub struct Machine<'a, 'm> {
    /// The pc of the frame.
    pub pc: u64,
    /// Registers and memory; none: registers are symbols.
    pub frame: Option<(&'a Cursor, &'m mut StackMemory)>,
}

impl Machine<'_, '_> {
    /// Evaluates an expression, with `initial` on its stack.
    ///
    /// # Errors
    /// [`StopReason::MissingRegister`], [`StopReason::UnreadableStack`], and
    /// [`StopReason::BadTable`] for what we do not understand or, with symbols, cannot state.
    ///
    /// # Signal safety
    /// Bounded; loads through the frame's memory only.
    pub fn evaluate(
        &mut self,
        expression: Bytes<'_>,
        initial: Option<Value>,
    ) -> Result<Value, StopReason> {
        let mut stack = Stack::default();
        if let Some(value) = initial {
            stack.push(value)?;
        }
        let mut rest = expression;
        for _ in 0..BUDGET {
            if rest.slice().is_empty() {
                return stack.pop();
            }
            let operation =
                Operation::parse(&mut rest, ENCODING).map_err(|_| StopReason::BadTable)?;
            if let Some(distance) = self.execute(&mut stack, &operation)? {
                rest = jump(expression, rest, distance)?;
            }
        }
        Err(StopReason::TimeBudget)
    }

    /// Executes one operation; gives the distance of a jump taken.
    fn execute(
        &mut self,
        stack: &mut Stack,
        operation: &Operation<Bytes<'_>>,
    ) -> Result<Option<i16>, StopReason> {
        let value = match *operation {
            Operation::Nop | Operation::StackValue => return Ok(None),
            Operation::Skip { target } => return Ok(Some(target)),
            Operation::Bra { target } => {
                let taken = stack.number()? != 0;
                return Ok(taken.then_some(target));
            }
            Operation::Drop => {
                stack.pop()?;
                return Ok(None);
            }
            Operation::RegisterOffset {
                register, offset, ..
            } => self.register(register.0, offset)?,
            Operation::UnsignedConstant { value } => Value::Number(value),
            Operation::SignedConstant { value } => Value::Number(value as u64),
            Operation::PlusConstant { value } => add(stack.pop()?, Value::Number(value))?,
            Operation::Plus => add(stack.pop()?, stack.pop()?)?,
            Operation::Deref {
                size: 8,
                space: false,
                ..
            } => {
                let address = stack.pop()?;
                self.load(address)?
            }
            Operation::Pick { index } => stack.peek(usize::from(index))?,
            Operation::Swap => {
                let (top, below) = (stack.pop()?, stack.pop()?);
                stack.push(top)?;
                below
            }
            Operation::Rot => {
                let (top, second, third) = (stack.pop()?, stack.pop()?, stack.pop()?);
                stack.push(top)?;
                stack.push(third)?;
                second
            }
            Operation::Abs => Value::Number((stack.number()? as i64).unsigned_abs()),
            Operation::Neg => Value::Number(stack.number()?.wrapping_neg()),
            Operation::Not => Value::Number(!stack.number()?),
            ref other => {
                let (right, left) = (stack.number()?, stack.number()?);
                Value::Number(binary(other, left, right)?)
            }
        };
        stack.push(value)?;
        Ok(None)
    }

    fn register(&self, number: u16, offset: i64) -> Result<Value, StopReason> {
        if cfg!(target_arch = "x86_64") && number == PC {
            return Ok(Value::Number(self.pc.wrapping_add_signed(offset)));
        }
        let number = u8::try_from(number).map_err(|_| StopReason::BadTable)?;
        let register = Register(number);
        match &self.frame {
            None => Ok(Value::Register(register, offset)),
            Some((cursor, _)) => {
                let value = cursor.get(register).ok_or(StopReason::MissingRegister)?;
                Ok(Value::Number(value.wrapping_add_signed(offset)))
            }
        }
    }

    fn load(&mut self, address: Value) -> Result<Value, StopReason> {
        match (address, &mut self.frame) {
            (Value::Number(address), Some((_, memory))) => memory
                .load(address)
                .map(Value::Number)
                .ok_or(StopReason::UnreadableStack),
            (Value::Register(register, offset), None) => Ok(Value::Word(register, offset, 0)),
            _ => Err(StopReason::BadTable),
        }
    }
}

fn binary(operation: &Operation<Bytes<'_>>, left: u64, right: u64) -> Result<u64, StopReason> {
    let (signed_left, signed_right) = (left as i64, right as i64);
    let shift = |shifted: Option<u64>| shifted.unwrap_or(0);
    let places = u32::try_from(right).unwrap_or(u32::MAX);
    let result = match operation {
        Operation::And => left & right,
        Operation::Or => left | right,
        Operation::Xor => left ^ right,
        Operation::Minus => left.wrapping_sub(right),
        Operation::Mul => left.wrapping_mul(right),
        Operation::Div => signed_left
            .checked_div(signed_right)
            .ok_or(StopReason::BadTable)? as u64,
        Operation::Mod => left.checked_rem(right).ok_or(StopReason::BadTable)?,
        Operation::Shl => shift(left.checked_shl(places)),
        Operation::Shr => shift(left.checked_shr(places)),
        Operation::Shra => signed_left.wrapping_shr(places.min(63)) as u64,
        Operation::Eq => u64::from(left == right),
        Operation::Ne => u64::from(left != right),
        Operation::Ge => u64::from(signed_left >= signed_right),
        Operation::Gt => u64::from(signed_left > signed_right),
        Operation::Le => u64::from(signed_left <= signed_right),
        Operation::Lt => u64::from(signed_left < signed_right),
        _ => return Err(StopReason::BadTable),
    };
    Ok(result)
}

fn add(a: Value, b: Value) -> Result<Value, StopReason> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(Value::Number(a.wrapping_add(b))),
        (Value::Register(register, offset), Value::Number(n))
        | (Value::Number(n), Value::Register(register, offset)) => {
            Ok(Value::Register(register, offset.wrapping_add(n as i64)))
        }
        (Value::Word(register, offset, plus), Value::Number(n))
        | (Value::Number(n), Value::Word(register, offset, plus)) => {
            Ok(Value::Word(register, offset, plus.wrapping_add(n as i64)))
        }
        _ => Err(StopReason::BadTable),
    }
}

/// The rest of an expression after a jump, forward or backward, from the end of the jump's
/// operation.
fn jump<'a>(whole: Bytes<'a>, rest: Bytes<'a>, distance: i16) -> Result<Bytes<'a>, StopReason> {
    let at = whole.slice().len().wrapping_sub(rest.slice().len());
    let to = at.checked_add_signed(isize::from(distance));
    let rest = to.and_then(|to| whole.slice().get(to..));
    rest.map(|rest| EndianSlice::new(rest, LittleEndian))
        .ok_or(StopReason::BadTable)
}

struct Stack {
    values: [Value; STACK],
    depth: usize,
}

impl Default for Stack {
    fn default() -> Self {
        Self {
            values: [Value::Number(0); STACK],
            depth: 0,
        }
    }
}

impl Stack {
    fn push(&mut self, value: Value) -> Result<(), StopReason> {
        *self
            .values
            .get_mut(self.depth)
            .ok_or(StopReason::BadTable)? = value;
        self.depth = self.depth.wrapping_add(1);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, StopReason> {
        let value = self.peek(0)?;
        self.depth = self.depth.wrapping_sub(1);
        Ok(value)
    }

    fn peek(&self, below_top: usize) -> Result<Value, StopReason> {
        let index = self
            .depth
            .checked_sub(1)
            .and_then(|top| top.checked_sub(below_top));
        let value = index.and_then(|index| self.values.get(index));
        value.copied().ok_or(StopReason::BadTable)
    }

    fn number(&mut self) -> Result<u64, StopReason> {
        match self.pop()? {
            Value::Number(value) => Ok(value),
            _ => Err(StopReason::BadTable),
        }
    }
}
