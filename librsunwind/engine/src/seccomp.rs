//! What a seccomp filter answers to a system call, found out without making it: the filter is a
//! classic BPF program in memory, which is run here as the kernel runs it
//! (`Documentation/userspace-api/seccomp_filter.rst`, `net/core/filter.c`).
//!
//! A program that the kernel would not take has no answer, nor has one whose answer depends on
//! something that is not known here.
//!
//! # Signal safety
//! Loads; jumps lead forward only, so a program of n instructions ends after n steps.

use crate::registers::AUDIT_ARCHITECTURE;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a filter says where the call is to be made.
pub const ALLOW: u32 = 0x7fff_0000;
/// Where it is to fail, with the error number in the lower half.
const REFUSE: u32 = 0x0005_0000;
/// The largest error number; the kernel takes larger ones for this.
const MOST_ERROR: u32 = 4095;
/// The part of an answer that says what becomes of the call.
const ACTION: u32 = 0xffff_0000;
/// Instructions that a program has at most.
pub const MOST: usize = 4096;
/// Bytes of `struct seccomp_data`.
const DATA_SIZE: u32 = 64;
/// Words of a program's own memory.
const MEMORY: usize = 16;

/// A system call that might be made.
#[derive(Clone, Copy, Debug)]
pub struct SystemCall {
    /// By what number.
    pub number: i64,
    /// With what arguments, as far as they are known.
    pub arguments: [Option<u64>; 6],
}

impl SystemCall {
    /// With arguments of which nothing is known.
    #[must_use]
    pub const fn any(number: i64) -> Self {
        Self {
            number,
            arguments: [None; 6],
        }
    }

    /// With these arguments.
    #[must_use]
    pub fn with(number: i64, arguments: &[u64; 6]) -> Self {
        Self {
            number,
            arguments: arguments.map(Some),
        }
    }

    /// The word of `struct seccomp_data` at that offset. Where the instruction is, is not known.
    fn word(&self, offset: u32) -> Option<u32> {
        const NUMBER: u32 = 0;
        const ARCHITECTURE: u32 = 4;
        const ARGUMENTS: u32 = 16;
        match offset {
            NUMBER => Some(self.number as u32),
            ARCHITECTURE => Some(AUDIT_ARCHITECTURE),
            _ => {
                let offset = offset.checked_sub(ARGUMENTS)?;
                let argument = (*self.arguments.get((offset >> 3) as usize)?)?;
                Some(if offset & 4 == 0 {
                    argument as u32
                } else {
                    (argument >> 32) as u32
                })
            }
        }
    }
}

/// Whether the program, an instruction (`struct sock_filter`) in each word, lets the call be made
/// and nobody know of it.
#[must_use]
pub fn allows(program: &[AtomicU64], call: &SystemCall) -> bool {
    answer(program, call).is_some_and(|answer| answer & ACTION == ALLOW)
}

/// The error number with which the program refuses the call, if that is its answer.
#[must_use]
pub fn refusal(program: &[AtomicU64], call: &SystemCall) -> Option<u32> {
    let refused = answer(program, call).filter(|answer| answer & ACTION == REFUSE);
    let error = refused.map(|answer| (answer & !ACTION).min(MOST_ERROR));
    error.filter(|error| *error != 0)
}

/// What the program returns for the call.
#[must_use]
pub fn answer(program: &[AtomicU64], call: &SystemCall) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; MEMORY]);
    let mut next = 0usize;
    loop {
        let word = program.get(next)?.load(Relaxed);
        next = next.checked_add(1)?;
        let code = word as u16;
        let (if_true, if_false, k) = ((word >> 16) as u8, (word >> 24) as u8, (word >> 32) as u32);
        let mut jump = |distance: u32| {
            next = next.wrapping_add(distance as usize);
        };
        match code {
            LOAD_DATA if k.is_multiple_of(4) && k < DATA_SIZE => a = call.word(k)?,
            LOAD_LENGTH => a = DATA_SIZE,
            LOAD_X_LENGTH => x = DATA_SIZE,
            LOAD => a = k,
            LOAD_X => x = k,
            LOAD_MEMORY => a = *memory.get(k as usize)?,
            LOAD_X_MEMORY => x = *memory.get(k as usize)?,
            STORE => *memory.get_mut(k as usize)? = a,
            STORE_X => *memory.get_mut(k as usize)? = x,
            TO_X => x = a,
            FROM_X => a = x,
            RETURN => return Some(k),
            RETURN_A => return Some(a),
            JUMP => jump(k),
            _ => {
                let is_by_x = code & BY_X != 0;
                let operand = if is_by_x { x } else { k };
                match (code & CLASS, code & !(CLASS | BY_X)) {
                    (CALCULATE, DIVIDE) if operand == 0 && is_by_x => return Some(0),
                    (CALCULATE, operation) => a = calculated(operation, a, operand, is_by_x)?,
                    (BRANCH, condition) => {
                        let is_so = match condition {
                            EQUAL => a == operand,
                            GREATER => a > operand,
                            NOT_LESS => a >= operand,
                            ANY_BIT => a & operand != 0,
                            _ => return None,
                        };
                        jump(u32::from(if is_so { if_true } else { if_false }));
                    }
                    _ => return None,
                }
            }
        }
    }
}

/// What an arithmetic instruction makes of the accumulator.
fn calculated(operation: u16, a: u32, operand: u32, is_by_x: bool) -> Option<u32> {
    // The kernel refuses constants of that size, and takes what is left of others.
    let is_shift = |operand: u32| is_by_x || operand < u32::BITS;
    Some(match operation {
        ADD => a.wrapping_add(operand),
        SUBTRACT => a.wrapping_sub(operand),
        MULTIPLY => a.wrapping_mul(operand),
        DIVIDE => a.checked_div(operand)?,
        OR => a | operand,
        AND => a & operand,
        EXCLUSIVE_OR => a ^ operand,
        SHIFT_LEFT if is_shift(operand) => a.wrapping_shl(operand),
        SHIFT_RIGHT if is_shift(operand) => a.wrapping_shr(operand),
        NEGATE if !is_by_x => a.wrapping_neg(),
        _ => return None,
    })
}

// `linux/bpf_common.h`: those that the kernel takes in a filter of system calls.
const CLASS: u16 = 0x07;
const BY_X: u16 = 0x08;
const LOAD_DATA: u16 = 0x20;
const LOAD_LENGTH: u16 = 0x80;
const LOAD_X_LENGTH: u16 = 0x81;
const LOAD: u16 = 0x00;
const LOAD_X: u16 = 0x01;
const LOAD_MEMORY: u16 = 0x60;
const LOAD_X_MEMORY: u16 = 0x61;
const STORE: u16 = 0x02;
const STORE_X: u16 = 0x03;
const TO_X: u16 = 0x07;
const FROM_X: u16 = 0x87;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;
const JUMP: u16 = 0x05;
const CALCULATE: u16 = 0x04;
const ADD: u16 = 0x00;
const SUBTRACT: u16 = 0x10;
const MULTIPLY: u16 = 0x20;
const DIVIDE: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const SHIFT_LEFT: u16 = 0x60;
const SHIFT_RIGHT: u16 = 0x70;
const NEGATE: u16 = 0x80;
const EXCLUSIVE_OR: u16 = 0xa0;
const BRANCH: u16 = 0x05;
const EQUAL: u16 = 0x10;
const GREATER: u16 = 0x20;
const NOT_LESS: u16 = 0x30;
const ANY_BIT: u16 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u16, if_true: u8, if_false: u8, k: u32) -> AtomicU64 {
        let jumps = u64::from(if_true) << 16 | u64::from(if_false) << 24;
        AtomicU64::new(u64::from(code) | jumps | u64::from(k) << 32)
    }

    #[test]
    fn what_is_not_known_or_no_program_has_no_answer() {
        let plain = |code, k| instruction(code, 0, 0, k);
        let call = SystemCall::any(1);
        let end = || plain(RETURN, ALLOW);
        let of = |first| answer(&[first, end()], &call);
        assert_eq!(of(plain(LOAD_DATA, 0)), Some(ALLOW));
        // Where the instruction is; an argument; between two words; behind them.
        for offset in [8, 12, 16, 60, 2, 64, u32::MAX - 3] {
            assert_eq!(of(plain(LOAD_DATA, offset)), None, "{offset}");
        }
        // A byte; a remainder; memory that is not there; a shift of all bits; none at all.
        for (code, k) in [
            (0x30, 0),
            (0x94, 1),
            (LOAD_MEMORY, 16),
            (0x64, 32),
            (0xff, 0),
        ] {
            assert_eq!(of(plain(code, k)), None, "{code:#x}");
        }
        assert_eq!(of(plain(JUMP, 1)), None);
        assert_eq!(of(plain(JUMP, u32::MAX)), None);
        assert_eq!(of(plain(0x3c, 0)), Some(0), "divided by zero in x");
        assert_eq!(answer(&[], &call), None);
        let known = SystemCall::with(1, &[0, 0, 0, 0, 0, 7 << 32]);
        let last = [plain(LOAD_DATA, 60), plain(RETURN_A, 0)];
        assert_eq!(answer(&last, &known), Some(7));
    }

    #[test]
    fn only_what_is_allowed_without_a_word_is() {
        // Allowed with a word in the log, refused, handed to another process, killed for.
        let call = SystemCall::any(1);
        for answer in [0x7ffc_0000, 0x0005_0001, 0x7fc0_0000, 0, 0x8000_0000] {
            assert!(!allows(&[instruction(RETURN, 0, 0, answer)], &call));
        }
        assert!(allows(&[instruction(RETURN, 0, 0, ALLOW | 9)], &call));
    }
}
