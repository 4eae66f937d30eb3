//! The registers of a thread at a system call, x86-64.
//!
//! The `syscall` instruction leaves the address of the next one in rcx and the flags in r11, and
//! the kernel brings both back: a thread whose r11 equals its flags and whose rcx equals its pc
//! stands right behind the instruction, with the result in rax and the arguments where they were.
//! Where the kernel makes the call again it has put the number back into rax and the pc on the
//! instruction, and rcx is the pc plus two.
//!
//! # Safety
//! Reads and writes the kernel's `struct ucontext`, and reads the code in front of an instruction
//! that has just run.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::mem::transmute;
use engine::memory::{can_probe, is_readable};
use engine::registers::{CONTEXT_PC, CONTEXT_REGISTERS};

/// Bytes of the instruction.
pub(crate) const LENGTH: u64 = 2;
const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// `mov eax, imm32`, which most of glibc has right in front of the instruction; bytes, and its
/// first one.
const MOVE: u64 = 5;
const MOVE_EAX: u8 = 0xb8;
/// `xor eax, eax` in its place, for `read`.
const CLEAR_EAX: [u8; 2] = [0x31, 0xc0];
/// `mov eax, REGISTER` in its place, where a compiler uses the number again (liburing).
const MOVE_FROM_REGISTER: u8 = 0x89;
/// The byte behind it: which bits say that it is eax, and what they are then; three others say
/// from which register, a fourth is in the prefix.
const TO_EAX: (u8, u8) = (0xc7, 0xc0);
const SOURCE: u8 = 3;
/// Prefixes of an instruction (REX), and their bits for another source and another destination.
const PREFIXES: core::ops::RangeInclusive<u8> = 0x40..=0x4f;
const OTHER_SOURCE: u8 = 4;
const OTHER_DESTINATION: u8 = 1;
/// Prefixes with which an instruction on eax is one on r8 (the bits W, R, X, B of REX).
const OTHER_REGISTER: [u8; 6] = [0x41, 0x44, 0x45, 0x49, 0x4c, 0x4d];
/// More than any number of a system call.
const NUMBERS: u32 = 1024;
const PAGE: u64 = 4096;

/// See the module. Words only, in the order of [`OFFSETS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct CallRegisters {
    /// rax: the number in front of the instruction, the result behind it.
    pub value: u64,
    /// rdi, rsi, rdx, r10, r8, r9.
    pub arguments: [u64; 6],
    /// rcx: where the instruction goes on.
    pub next: u64,
    /// r11: the flags, as the instruction found them.
    pub kept_flags: u64,
    pub flags: u64,
    pub sp: u64,
    pub pc: u64,
    /// rbx, rbp, r12 to r15: kept for the program, of interest where they hold the number.
    pub others: [u64; 6],
}

/// Words of [`CallRegisters`].
const WORDS: usize = size_of::<CallRegisters>() / size_of::<u64>();

/// Offsets in a `struct ucontext`, in the order of the fields above.
const OFFSETS: [u64; WORDS] = {
    let [
        rax,
        rdx,
        rcx,
        rbx,
        rsi,
        rdi,
        rbp,
        rsp,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
    ] = CONTEXT_REGISTERS;
    [
        rax,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        rcx,
        r11,
        CONTEXT_PC + 8,
        rsp,
        CONTEXT_PC,
        rbx,
        rbp,
        r12,
        r13,
        r14,
        r15,
    ]
};

impl CallRegisters {
    /// Those of an interrupted thread.
    ///
    /// # Safety
    /// The context is the kernel's.
    pub unsafe fn of(context: *const c_void) -> Self {
        // SAFETY: general registers of the kernel's structure.
        let load = |offset: u64| unsafe { context.byte_add(offset as usize).cast::<u64>().read() };
        // SAFETY: as many words, one for each field.
        unsafe { transmute::<[u64; WORDS], Self>(OFFSETS.map(load)) }
    }

    /// Makes them those with which the thread goes on.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn set(&self, context: *mut c_void) {
        // SAFETY: as many words, one for each field.
        let values = unsafe { transmute::<Self, [u64; WORDS]>(*self) };
        for (offset, value) in OFFSETS.into_iter().zip(values) {
            // SAFETY: as above.
            unsafe { context.byte_add(offset as usize).cast::<u64>().write(value) };
        }
    }

    /// Whether the thread stands right behind the instruction.
    pub fn is_behind(&self) -> bool {
        self.kept_flags == self.flags && self.next == self.pc
    }

    /// Whether it stands on the instruction that it last made.
    pub fn is_in_front_again(&self) -> bool {
        self.kept_flags == self.flags && self.next == self.pc.wrapping_add(LENGTH)
    }

    /// Whether the call that it stands behind was ended by a signal.
    pub fn is_interrupted(&self) -> bool {
        self.value == i64::from(-libc::EINTR) as u64 && self.is_behind()
    }

    /// The number of the call that it stands behind, as far as the code tells.
    pub fn number(&self, code: &CodeBefore) -> Option<i64> {
        match code.number? {
            Number::Is(number) => Some(number),
            Number::In(register) => self
                .numbered(register)
                .filter(|number| *number < u64::from(NUMBERS))
                .map(|number| number as i64),
        }
    }

    /// A register by the processor's number of it; none of those that the instruction changes.
    const fn numbered(&self, register: u8) -> Option<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = self.arguments;
        let [rbx, rbp, r12, r13, r14, r15] = self.others;
        Some(match register {
            2 => rdx,
            3 => rbx,
            5 => rbp,
            6 => rsi,
            7 => rdi,
            8 => r8,
            9 => r9,
            10 => r10,
            12 => r12,
            13 => r13,
            14 => r14,
            15 => r15,
            _ => return None,
        })
    }

    /// The argument of that index.
    pub fn argument(&self, index: usize) -> u64 {
        self.arguments.get(index).copied().unwrap_or(0)
    }

    /// Changes it.
    pub fn set_argument(&mut self, index: usize, value: u64) {
        if let Some(argument) = self.arguments.get_mut(index) {
            *argument = value;
        }
    }

    /// Puts the thread that stands behind the instruction back on it.
    pub fn go_back(&mut self, number: i64) {
        self.value = number as u64;
        self.pc = self.pc.wrapping_sub(LENGTH);
    }

    /// The reverse: the call is over, ended by a signal.
    pub fn give_up(&mut self) {
        self.value = i64::from(-libc::EINTR) as u64;
        self.pc = self.pc.wrapping_add(LENGTH);
    }
}

/// Signals of a thread that was interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    /// What it has blocked.
    pub blocked: u64,
    /// The one by which it was.
    pub ours: u64,
}

/// The code in front of a pc.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeBefore {
    /// Whether the instruction is there.
    pub is_call: bool,
    /// The number that the one before loads.
    number: Option<Number>,
}

/// The number of a system call, in the code in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Is(i64),
    /// The register of that number holds it.
    In(u8),
}

/// Looks at the code in front of a pc behind which the registers say that the instruction has run.
///
/// # Signal safety
/// A system call or two, and loads.
pub(crate) fn code_before(pc: u64) -> CodeBefore {
    code_before_by(pc, can_probe())
}

/// The same in front of a handler of the program's. That one may be called for each system call of
/// the thread's (`PR_SET_SYSCALL_USER_DISPATCH`), so none is made where the code lies in one page.
pub(crate) fn code_before_quietly(pc: u64) -> CodeBefore {
    code_before_by(pc, false)
}

fn code_before_by(pc: u64, asks: bool) -> CodeBefore {
    let last_page = pc.wrapping_sub(1) / PAGE;
    let start = pc.wrapping_sub(LENGTH + MOVE + 1);
    // What the processor has just fetched may not be there for loads: code that can only be run,
    // or code under a protection key of the program's, which says nothing in a signal handler.
    let (all_is_there, last_is_there) = match asks {
        true if is_readable(start) => (true, true),
        true => (false, is_readable(pc.wrapping_sub(1) & !7)),
        false => (start / PAGE == last_page || is_readable(start), true),
    };
    let load = |back: u64| {
        let address = pc.wrapping_sub(back);
        if all_is_there || last_is_there && address / PAGE == last_page {
            // SAFETY: found to be readable; where that is not asked, in a page that the processor
            // has just fetched from.
            unsafe { (address as *const u8).read() }
        } else {
            0
        }
    };
    let is_call = [load(2), load(1)] == INSTRUCTION;
    let number = u32::from_le_bytes([load(6), load(5), load(4), load(3)]);
    // A prefix makes the same bytes an instruction on an argument: `mov r8d, imm32`, `xor r8d,
    // r8d`.
    let is_of_eax = |before: u64| !OTHER_REGISTER.contains(&load(before));
    let number = match (load(LENGTH + MOVE), [load(4), load(3)]) {
        (MOVE_EAX, _) if number < NUMBERS && is_of_eax(8) => Some(Number::Is(i64::from(number))),
        (_, CLEAR_EAX) if is_of_eax(5) => Some(Number::Is(libc::SYS_read)),
        (_, [MOVE_FROM_REGISTER, operands]) => source(load(5), operands).map(Number::In),
        _ => None,
    };
    CodeBefore {
        is_call,
        number: number.filter(|_| is_call),
    }
}

/// From which register a move to eax is, with the byte in front of it and its operands.
fn source(before: u8, operands: u8) -> Option<u8> {
    // What looks like a prefix may be the end of another instruction: then a register is looked at
    // that holds no number.
    let prefix = match PREFIXES.contains(&before) {
        true => before,
        false => 0,
    };
    let is_to_eax = operands & TO_EAX.0 == TO_EAX.1 && prefix & OTHER_DESTINATION == 0;
    let low = (operands & !TO_EAX.0) >> SOURCE;
    is_to_eax.then_some(low | (prefix & OTHER_SOURCE) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_cannot_be_loaded_is_not_looked_at() {
        const CODE: [u8; 7] = [0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05];
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let pages = PAGE as usize * 2;
        // SAFETY: two pages of its own, which stay.
        let place = unsafe { libc::mmap(core::ptr::null_mut(), pages, both, flags, -1, 0) };
        assert_ne!(place, libc::MAP_FAILED);
        let second = place as u64 + PAGE;
        for (end, is_call) in [(second, true), (second + 2, true), (second + 64, false)] {
            let code = (end - CODE.len() as u64) as *mut [u8; 7];
            // SAFETY: in those pages.
            unsafe { code.write_unaligned(CODE) };
            assert!(code_before(end).is_call && code_before(end).number.is_some());
            // SAFETY: as above; nothing else is there.
            let hide = |first: u64, prot| unsafe {
                libc::mprotect(first as *mut c_void, PAGE as usize, prot)
            };
            let hidden = if is_call { place as u64 } else { second };
            assert_eq!(hide(hidden, libc::PROT_NONE), 0);
            let seen = code_before(end);
            assert_eq!(hide(hidden, both), 0);
            assert_eq!((seen.is_call, seen.number), (is_call && end > second, None));
        }
    }

    #[test]
    fn the_number_is_where_the_code_has_it() {
        let registers = CallRegisters {
            arguments: [7, 6, 2, 10, 8, 9],
            others: [3, 5, 12, 13, 14, 15],
            ..CallRegisters::default()
        };
        let number = |code: &[u8]| {
            let mut page = [0x90; 16];
            page[16 - code.len()..].copy_from_slice(code);
            registers.number(&code_before(page.as_ptr_range().end as u64))
        };
        let cases: [(&[u8], Option<i64>); 11] = [
            (&[0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05], Some(231)), // mov eax, 231
            (&[0x41, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05], None), // mov r8d, 231
            (&[0xb8, 0, 4, 0, 0, 0x0f, 0x05], None),         // mov eax, 1024
            (&[0x31, 0xc0, 0x0f, 0x05], Some(0)),            // xor eax, eax
            (&[0x89, 0xd0, 0x0f, 0x05], Some(2)),            // mov eax, edx
            (&[0x89, 0xd8, 0x0f, 0x05], Some(3)),            // mov eax, ebx
            (&[0x44, 0x89, 0xf8, 0x0f, 0x05], Some(15)),     // mov eax, r15d
            (&[0x4c, 0x89, 0xe8, 0x0f, 0x05], Some(13)),     // mov rax, r13
            (&[0x89, 0xc8, 0x0f, 0x05], None),               // mov eax, ecx
            (&[0x41, 0x89, 0xd0, 0x0f, 0x05], None),         // mov r8d, edx
            (&[0x89, 0xd7, 0x0f, 0x05], None),               // mov edi, edx
        ];
        for (code, expected) in cases {
            assert_eq!(number(code), expected, "{code:x?}");
        }
        let far = CallRegisters {
            others: [1024; 6],
            ..registers
        };
        let moved = code_before(
            [0x90, 0x90, 0x90, 0x90, 0x89, 0xd8, 0x0f, 0x05]
                .as_ptr_range()
                .end as u64,
        );
        assert_eq!(far.number(&moved), None, "no number of a system call");
    }
}
