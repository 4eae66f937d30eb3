//! A machine whose registers and memory hold values made from their numbers and addresses, to
//! compute what a rule comes to. Two rules that agree on two such machines are the same rule,
//! whatever they look like.

use sframe_unwind::{Abi, Address, Base, Register, Row, Rule};

/// A state of registers and memory.
#[derive(Clone, Copy)]
pub struct Machine {
    pub seed: u64,
    pub abi: Abi,
    pub pc: Address,
}

/// What a row or a rule of `.eh_frame` comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    None,
    Frame { cfa: u64, ra: u64, fp: u64 },
}

impl Machine {
    pub fn register(&self, register: Register) -> u64 {
        // On amd64 the number of the return address stands for the pc.
        if self.abi == Abi::Amd64 && register == self.abi.return_address() {
            return self.pc.0;
        }
        scramble(self.seed ^ u64::from(register.0))
    }

    pub fn memory(&self, address: u64) -> u64 {
        scramble(self.seed.rotate_left(32) ^ address)
    }

    /// What the row comes to.
    pub fn caller(&self, row: &Row) -> Caller {
        if row.is_outermost() {
            return Caller::None;
        }
        let base = self.register(match row.cfa.base {
            Base::StackPointer => self.abi.stack_pointer(),
            Base::FramePointer => self.abi.frame_pointer(),
            Base::Register(register) => register,
        });
        let sum = base.wrapping_add_signed(row.cfa.offset.into());
        let cfa = if row.cfa.deref { self.memory(sum) } else { sum };
        let ra = self.value(row.ra, cfa, self.abi.return_address());
        Caller::Frame {
            cfa,
            ra,
            fp: self.value(row.fp, cfa, self.abi.frame_pointer()),
        }
    }

    fn value(&self, rule: Rule, cfa: u64, own: Register) -> u64 {
        match rule {
            Rule::Unchanged => self.register(own),
            Rule::AtCfa(offset) => self.memory(cfa.wrapping_add_signed(offset.into())),
            Rule::Register { register, offset } => {
                self.register(register).wrapping_add_signed(offset.into())
            }
            Rule::AtRegister { register, offset } => {
                self.memory(self.register(register).wrapping_add_signed(offset.into()))
            }
            rule => panic!("{rule:?} has no value"),
        }
    }
}

/// Steele, Lea and Flood's SplitMix64, one step: no two inputs give the same.
fn scramble(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
