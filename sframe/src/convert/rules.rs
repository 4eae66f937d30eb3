//! From a row of rules that gimli computed to a [`Row`].

use gimli::{CfaRule, Encoding, Expression, RegisterRule, UnwindExpression, UnwindTableRow};

use super::expression::{Plt, Sum, plt, sum};
use super::{Reader, Reason};
use crate::{Abi, Base, Cfa, Register, Row, Rule};

/// What the rows of a function have in common.
pub(super) struct Rules<'a, 'e> {
    pub(super) abi: Abi,
    pub(super) return_address: gimli::Register,
    pub(super) eh_frame: &'e gimli::EhFrame<Reader<'a>>,
    pub(super) encoding: Encoding,
}

impl<'a> Rules<'a, '_> {
    fn expression(&self, expression: &UnwindExpression<usize>) -> Option<Expression<Reader<'a>>> {
        expression.get(self.eh_frame).ok()
    }

    fn sum(&self, expression: &UnwindExpression<usize>) -> Option<Sum> {
        sum(self.expression(expression)?, self.encoding)
    }

    /// The rules of a procedure linkage table, if the row is one's.
    pub(super) fn plt(&self, row: &UnwindTableRow<usize>) -> Option<Plt> {
        match row.cfa() {
            CfaRule::Expression(expression) if self.abi == Abi::Amd64 => {
                plt(self.expression(expression)?, self.encoding)
            }
            _ => None,
        }
    }

    /// The row that says the same.
    pub(super) fn row(&self, row: &UnwindTableRow<usize>, at: u32) -> Result<Row, Reason> {
        let ra = row.register(self.return_address);
        if ra == Some(RegisterRule::Undefined) {
            return Ok(Row::outermost());
        }
        let cfa = self.cfa(row.cfa()).ok_or(Reason::Cfa { at })?;
        if !self.is_stack_pointer_the_cfa(row.register(dwarf(self.abi.stack_pointer())), cfa) {
            return Err(Reason::StackPointer { at });
        }
        let is_usual_register = self.return_address == dwarf(self.abi.return_address());
        let ra = self
            .rule(ra)
            .filter(|rule| is_usual_register || *rule != Rule::Unchanged);
        let ra = ra.ok_or(Reason::ReturnAddress { at })?;
        let fp = self
            .rule(row.register(dwarf(self.abi.frame_pointer())))
            .ok_or(Reason::FramePointer { at })?;
        let mut converted = Row::new(cfa, ra, fp);
        if matches!(self.abi, Abi::Aarch64Big | Abi::Aarch64Little) {
            let state = row.register(gimli::AArch64::RA_SIGN_STATE);
            converted.mangled_ra =
                matches!(state, Some(RegisterRule::Constant(state)) if state & 1 != 0);
        }
        Ok(converted)
    }

    fn cfa(&self, rule: &CfaRule<usize>) -> Option<Cfa> {
        let sum = match rule {
            CfaRule::RegisterAndOffset { register, offset } => Sum {
                register: Register(register.0),
                offset: *offset,
                deref: false,
            },
            CfaRule::Expression(expression) => self.sum(expression)?,
        };
        let base = match sum.register {
            register if register == self.abi.stack_pointer() => Base::StackPointer,
            register if register == self.abi.frame_pointer() => Base::FramePointer,
            register => Base::Register(register),
        };
        Some(Cfa {
            base,
            offset: i32::try_from(sum.offset).ok()?,
            deref: sum.deref,
        })
    }

    /// None where SFrame has no words.
    fn rule(&self, rule: Option<RegisterRule<usize>>) -> Option<Rule> {
        match rule {
            None | Some(RegisterRule::SameValue) => Some(Rule::Unchanged),
            Some(RegisterRule::Offset(offset)) => Some(Rule::AtCfa(i32::try_from(offset).ok()?)),
            Some(RegisterRule::Register(register)) => Some(Rule::Register {
                register: Register(register.0),
                offset: 0,
            }),
            Some(RegisterRule::Expression(expression)) => match self.sum(&expression)? {
                Sum {
                    register,
                    offset,
                    deref: false,
                } => Some(Rule::AtRegister {
                    register,
                    offset: i32::try_from(offset).ok()?,
                }),
                Sum { deref: true, .. } => None,
            },
            Some(RegisterRule::ValExpression(expression)) => {
                let Sum {
                    register,
                    offset,
                    deref,
                } = self.sum(&expression)?;
                let offset = i32::try_from(offset).ok()?;
                Some(if deref {
                    Rule::AtRegister { register, offset }
                } else {
                    Rule::Register { register, offset }
                })
            }
            Some(_) => None,
        }
    }

    /// The caller's stack pointer has no rule in SFrame: it follows from the CFA. Signal
    /// trampolines state it, with the CFA's own expression. On s390x functions save it, which does
    /// not change it.
    fn is_stack_pointer_the_cfa(&self, rule: Option<RegisterRule<usize>>, cfa: Cfa) -> bool {
        let same = |sum: Option<Sum>, deref: bool| {
            sum.is_some_and(|sum| {
                let is_same_register = match cfa.base {
                    Base::StackPointer => sum.register == self.abi.stack_pointer(),
                    Base::FramePointer => sum.register == self.abi.frame_pointer(),
                    Base::Register(register) => sum.register == register,
                };
                is_same_register && sum.offset == i64::from(cfa.offset) && sum.deref == deref
            })
        };
        match rule {
            None => true,
            Some(RegisterRule::ValOffset(offset)) => {
                offset == i64::from(self.abi.stack_pointer_offset())
            }
            Some(RegisterRule::Offset(_)) => self.abi == Abi::S390x,
            Some(RegisterRule::Expression(expression)) => {
                cfa.deref && same(self.sum(&expression), false)
            }
            Some(RegisterRule::ValExpression(expression)) => same(self.sum(&expression), cfa.deref),
            Some(_) => false,
        }
    }
}

const fn dwarf(register: Register) -> gimli::Register {
    gimli::Register(register.0)
}
