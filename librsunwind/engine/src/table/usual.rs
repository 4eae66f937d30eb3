//! The quick way through `.eh_frame`: entries encoded as every compiler for Linux encodes them, and
//! the instructions that they use, executed straight into a rule word.
//!
//! A rule-cache miss happens in a signal handler, once for every distinct pc of a program, and most
//! of its time would go into generality. What is not usual makes this answer `None`, and
//! [`super::frame_program`] executes the entry by gimli instead. Tests compare the rules of both.

use super::missing::Missing;
use crate::registers::{RETURN_ADDRESS, RETURN_ADDRESS_ON_STACK, SLOTS, SP};
use crate::rule::{self, UnwindRule};
use crate::wire::sample::Method;

/// Bytes of instructions that one program may have.
const LONGEST_PROGRAM: usize = 4096;
/// Pointers relative to where they stand, 4 bytes signed.
const PC_RELATIVE_4: u8 = 0x1b;
/// Longer strings are no augmentations.
const LONGEST_AUGMENTATION: usize = 8;
/// What a CIE for C code begins with on this machine, behind its length.
const PLAIN_CIE: &[u8] = if RETURN_ADDRESS_ON_STACK {
    &[0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, PC_RELATIVE_4]
} else {
    &[0, 0, 0, 0, 1, b'z', b'R', 0, 4, 0x78, 30, 1, PC_RELATIVE_4]
};

/// The rule of a pc by the FDE at an offset into a segment, if that is usual.
pub(super) fn rule(
    segment: &[u8],
    segment_address: u64,
    offset: usize,
    pc: u64,
) -> Option<Result<UnwindRule, Missing>> {
    let mut fde = entry(segment, offset)?;
    let distance = u32::from_le_bytes(fde.take()?);
    let cie_offset = offset.checked_add(4)?.checked_sub(distance as usize)?;
    // Behind the length and the pointer to the CIE.
    let place = segment_address.wrapping_add(offset.checked_add(8)? as u64);
    let start = place.wrapping_add_signed(i64::from(i32::from_le_bytes(fde.take()?)));
    let length = u32::from_le_bytes(fde.take()?);
    let augmentation = fde.unsigned()?;
    fde.split(usize::try_from(augmentation).ok()?)?;
    let cie = Cie::parse(segment, cie_offset)?;
    let ahead = pc.wrapping_sub(start);
    if ahead >= u64::from(length) {
        return Some(Err(Missing::NoRow));
    }
    let mut program = Program {
        ahead,
        code_factor: cie.code_factor,
        data_factor: cie.data_factor,
        state: State::default(),
        initial: None,
    };
    program.run(cie.program)?;
    program.initial = Some(program.state);
    program.run(fde)?;
    program.state.rule().map(Ok)
}

/// A cursor over bytes.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*first)
    }

    fn split(&mut self, length: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(first)
    }

    #[inline]
    fn unsigned(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..63u32).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let mut value = 0;
        for shift in (0..56u32).step_by(7) {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f).wrapping_shl(shift);
            if byte < 0x80 {
                let unused = 57u32.wrapping_sub(shift);
                return Some(value.wrapping_shl(unused).wrapping_shr(unused));
            }
        }
        None
    }
}

/// The bytes of an entry behind its length.
fn entry(segment: &[u8], offset: usize) -> Option<Reader<'_>> {
    let mut reader = Reader {
        bytes: segment.get(offset..)?,
    };
    let length = u32::from_le_bytes(reader.take()?);
    let bytes = reader.split(length as usize)?;
    Some(Reader { bytes })
}

struct Cie<'a> {
    code_factor: u64,
    data_factor: i64,
    program: Reader<'a>,
}

impl<'a> Cie<'a> {
    fn parse(segment: &'a [u8], offset: usize) -> Option<Self> {
        let mut cie = entry(segment, offset)?;
        if let Some(program) = cie.bytes.strip_prefix(PLAIN_CIE) {
            return Some(Self {
                code_factor: if RETURN_ADDRESS_ON_STACK { 1 } else { 4 },
                data_factor: -8,
                program: Reader { bytes: program },
            });
        }
        let (id, version) = (u32::from_le_bytes(cie.take()?), cie.byte()?);
        if id != 0 || version != 1 || cie.byte()? != b'z' {
            return None;
        }
        let mut letters = [0; LONGEST_AUGMENTATION];
        let mut places = letters.iter_mut();
        loop {
            match cie.byte()? {
                0 => break,
                letter => *places.next()? = letter,
            }
        }
        let (code_factor, data_factor) = (cie.unsigned()?, cie.signed()?);
        let _return_address = cie.byte()?;
        let length = cie.unsigned()?;
        let mut data = Reader {
            bytes: cie.split(usize::try_from(length).ok()?)?,
        };
        let mut encoding = 0;
        for letter in letters {
            match letter {
                0 => {}
                b'R' => encoding = data.byte()?,
                b'L' => {
                    data.byte()?;
                }
                // A pointer, of 4 bytes in the encodings in use.
                b'P' if data.byte()? & 0x0f == 0x0b => {
                    data.split(4)?;
                }
                _ => return None,
            }
        }
        (encoding == PC_RELATIVE_4).then_some(Self {
            code_factor,
            data_factor,
            program: cie,
        })
    }
}

/// A row that fits a rule word.
#[derive(Clone, Copy, Default)]
struct State {
    /// The register of the CFA and the offset from it.
    register: u16,
    offset: u64,
    /// Where registers are saved, as bits of the rule.
    slots: u64,
    /// Whether the return address is undefined.
    is_root: bool,
}

impl State {
    fn rule(&self) -> Option<UnwindRule> {
        if self.is_root {
            return Some(UnwindRule::root(Method::EhFrame));
        }
        let register = rule::base_of(self.register)?;
        UnwindRule::from_parts(Method::EhFrame, register, self.offset as i64, self.slots)
    }
}

/// A program under execution.
struct Program {
    /// From where the program stands to the pc.
    ahead: u64,
    code_factor: u64,
    data_factor: i64,
    state: State,
    initial: Option<State>,
}

impl Program {
    /// Executes instructions until the row of the pc is complete.
    fn run(&mut self, mut rest: Reader<'_>) -> Option<()> {
        let mut remembered = None;
        if rest.bytes.len() > LONGEST_PROGRAM {
            return None;
        }
        while let Some(opcode) = rest.byte() {
            let low = opcode & 0x3f;
            let advance = match opcode {
                0x40..=0x7f => u64::from(low),
                0x80..=0xbf => {
                    let offset = rest.unsigned()?;
                    self.save(u16::from(low), offset)?;
                    continue;
                }
                0xc0..=0xff => {
                    self.restore(u16::from(low))?;
                    continue;
                }
                0x02 => u64::from(rest.byte()?),
                0x03 => u64::from(u16::from_le_bytes(rest.take()?)),
                0x04 => u64::from(u32::from_le_bytes(rest.take()?)),
                0x0a => {
                    // Nested ones are not usual.
                    if remembered.replace(self.state).is_some() {
                        return None;
                    }
                    continue;
                }
                0x0b => {
                    self.state = remembered.take()?;
                    continue;
                }
                _ => {
                    self.define(opcode, &mut rest)?;
                    continue;
                }
            };
            let distance = advance.wrapping_mul(self.code_factor);
            match self.ahead.checked_sub(distance) {
                Some(ahead) => self.ahead = ahead,
                // The initial row covers every pc.
                None => return self.initial.map(|_| ()),
            }
        }
        Some(())
    }

    /// The instructions about the CFA and the return address.
    #[inline]
    fn define(&mut self, opcode: u8, rest: &mut Reader<'_>) -> Option<()> {
        let state = &mut self.state;
        match opcode {
            0x00 => {}
            0x0c => {
                state.register = u16::try_from(rest.unsigned()?).ok()?;
                state.offset = rest.unsigned()?;
            }
            0x0d => state.register = u16::try_from(rest.unsigned()?).ok()?,
            0x0e => state.offset = rest.unsigned()?,
            0x07 if rest.unsigned()? == u64::from(RETURN_ADDRESS.0) => state.is_root = true,
            // The size of pushed arguments, which is of no use to us.
            0x2e => {
                rest.unsigned()?;
            }
            // Whether the return address is signed: signatures are stripped from all.
            0x2d if !RETURN_ADDRESS_ON_STACK => {}
            _ => return None,
        }
        Some(())
    }

    /// A register is saved at an offset from the CFA.
    #[inline]
    fn save(&mut self, register: u16, factored: u64) -> Option<()> {
        let offset = (factored as i64).wrapping_mul(self.data_factor);
        match place_of(register) {
            Where::Slot(slot) => {
                let is_link = register == u16::from(RETURN_ADDRESS.0);
                self.state.is_root &= !is_link;
                let bits = rule::slot_bits(slot, offset)?;
                self.state.slots = self.state.slots & !rule::slot_mask(slot) | bits;
            }
            Where::OnStack if offset == -8 => self.state.is_root = false,
            Where::OnStack | Where::StackPointer => return None,
            Where::Nowhere => {}
        }
        Some(())
    }

    /// A register is again where the CIE says.
    #[inline]
    fn restore(&mut self, register: u16) -> Option<()> {
        let initial = self.initial?;
        if register == u16::from(RETURN_ADDRESS.0) {
            self.state.is_root = initial.is_root;
        }
        if let Where::Slot(slot) = place_of(register) {
            let mask = rule::slot_mask(slot);
            self.state.slots = self.state.slots & !mask | initial.slots & mask;
        }
        Some(())
    }
}

/// What becomes of a register's place.
#[derive(Clone, Copy)]
enum Where {
    /// It has a slot.
    Slot(u32),
    /// It is the return address, which calls leave below the CFA.
    OnStack,
    /// It is the stack pointer, which is the CFA in all rules.
    StackPointer,
    /// It is not followed.
    Nowhere,
}

#[inline]
fn place_of(register: u16) -> Where {
    let place = PLACES.get(usize::from(register));
    place.copied().unwrap_or(Where::Nowhere)
}

/// By register number.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated by the compiler"
)]
const PLACES: [Where; 33] = {
    let mut places = [Where::Nowhere; 33];
    places[SP.0 as usize] = Where::StackPointer;
    places[RETURN_ADDRESS.0 as usize] = Where::OnStack;
    let mut slot = 0;
    while slot < SLOTS.len() {
        places[SLOTS[slot].0 as usize] = Where::Slot(slot as u32);
        slot += 1;
    }
    places
};
