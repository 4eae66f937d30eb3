//! The quick way through `.eh_frame`: entries encoded as every compiler for Linux encodes them, and the instructions that they use.
//!
//! A rule-cache miss happens in a signal handler, once for every distinct pc of a program, and most of its time would go into
//! generality. What is not usual makes this answer `None`, and [`super::frame_program`] executes the entry by gimli instead.
//! Tests compare both with gimli's own rows.

use super::frame_program::{Base, Column, Place, State, column_of};

/// Instructions that one program may have.
const BUDGET: u32 = 4096;
/// Pointers relative to where they stand, 4 bytes signed.
const PC_RELATIVE_4: u8 = 0x1b;
/// Longer strings are no augmentations.
const LONGEST_AUGMENTATION: usize = 8;

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

/// What an FDE and its CIE say.
pub(super) struct Entry<'a> {
    start: u64,
    length: u64,
    code_factor: u64,
    data_factor: i64,
    pub(super) is_signal_frame: bool,
    cie_program: &'a [u8],
    fde_program: &'a [u8],
    segment: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads the FDE at an offset into the segment.
    pub(super) fn parse(segment: &'a [u8], segment_address: u64, offset: usize) -> Option<Self> {
        let mut fde = entry(segment, offset)?;
        let distance = u32::from_le_bytes(fde.take()?);
        let cie_offset = offset.checked_add(4)?.checked_sub(distance as usize)?;
        let cie = Cie::parse(segment, cie_offset)?;
        // Behind the length and the pointer to the CIE.
        let place = offset.checked_add(8)? as u64;
        let relative = i32::from_le_bytes(fde.take()?);
        let length = u32::from_le_bytes(fde.take()?);
        let augmentation = fde.unsigned()?;
        fde.split(usize::try_from(augmentation).ok()?)?;
        Some(Self {
            start: segment_address
                .wrapping_add(place)
                .wrapping_add_signed(i64::from(relative)),
            length: u64::from(length),
            code_factor: cie.code_factor,
            data_factor: cie.data_factor,
            is_signal_frame: cie.is_signal_frame,
            cie_program: cie.program,
            fde_program: fde.bytes,
            segment,
        })
    }

    /// Whether the FDE covers a pc.
    pub(super) const fn contains(&self, pc: u64) -> bool {
        pc.wrapping_sub(self.start) < self.length
    }

    /// The row of a pc.
    pub(super) fn execute(&self, pc: u64) -> Option<State> {
        let mut program = Program {
            entry: self,
            state: State::BLANK,
            location: self.start,
        };
        program.run(self.cie_program, None, pc)?;
        let initial = program.state;
        program.run(self.fde_program, Some(&initial), pc)?;
        Some(program.state)
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
    is_signal_frame: bool,
    program: &'a [u8],
}

impl<'a> Cie<'a> {
    fn parse(segment: &'a [u8], offset: usize) -> Option<Self> {
        let mut cie = entry(segment, offset)?;
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
        let (mut is_signal_frame, mut encoding) = (false, 0);
        for letter in letters {
            match letter {
                0 => {}
                b'R' => encoding = data.byte()?,
                b'S' => is_signal_frame = true,
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
            is_signal_frame,
            program: cie.bytes,
        })
    }
}

struct Program<'e, 'a> {
    entry: &'e Entry<'a>,
    state: State,
    location: u64,
}

impl Program<'_, '_> {
    /// Executes instructions until the row of the pc is complete.
    fn run(&mut self, program: &[u8], initial: Option<&State>, pc: u64) -> Option<()> {
        let mut rest = Reader { bytes: program };
        let mut remembered = None;
        for _ in 0..BUDGET {
            let Some(opcode) = rest.byte() else {
                return Some(());
            };
            let low = opcode & 0x3f;
            let advance = match (opcode >> 6, low) {
                (1, _) => u64::from(low),
                (2, _) => {
                    let offset = rest.unsigned()?;
                    self.set(u16::from(low), Column::At(self.scaled(offset)?));
                    continue;
                }
                (3, _) => {
                    self.restore(u16::from(low), initial?);
                    continue;
                }
                (_, 0x02) => u64::from(rest.byte()?),
                (_, 0x03) => u64::from(u16::from_le_bytes(rest.take()?)),
                (_, 0x04) => u64::from(u32::from_le_bytes(rest.take()?)),
                (_, 0x0a) => {
                    // Nested ones are not usual.
                    if remembered.replace(self.state).is_some() {
                        return None;
                    }
                    continue;
                }
                (_, 0x0b) => {
                    self.state = remembered.take()?;
                    continue;
                }
                _ => {
                    self.define(low, &mut rest)?;
                    continue;
                }
            };
            let distance = advance.wrapping_mul(self.entry.code_factor);
            self.location = self.location.checked_add(distance)?;
            if self.location > pc {
                return Some(());
            }
        }
        None
    }

    /// The instructions that change the CFA, or a register by an expression.
    fn define(&mut self, opcode: u8, rest: &mut Reader<'_>) -> Option<()> {
        match opcode {
            0x00 => {}
            0x0c => {
                let register = u16::try_from(rest.unsigned()?).ok()?;
                self.state.cfa = Base::Offset(register, rest.unsigned()? as i64);
            }
            0x0d => match &mut self.state.cfa {
                Base::Offset(register, _) => *register = u16::try_from(rest.unsigned()?).ok()?,
                Base::Expression(_) => return None,
            },
            0x0e => match &mut self.state.cfa {
                Base::Offset(_, offset) => *offset = rest.unsigned()? as i64,
                Base::Expression(_) => return None,
            },
            0x07 => {
                let register = u16::try_from(rest.unsigned()?).ok()?;
                self.set(register, Column::Undefined);
            }
            0x0f => self.state.cfa = Base::Expression(self.expression(rest)?),
            0x10 => {
                let register = u16::try_from(rest.unsigned()?).ok()?;
                let expression = self.expression(rest)?;
                self.set(register, Column::Expression(expression));
            }
            // The size of pushed arguments, which is of no use to us.
            0x2e => {
                rest.unsigned()?;
            }
            _ => return None,
        }
        Some(())
    }

    fn expression(&self, rest: &mut Reader<'_>) -> Option<Place> {
        let length = usize::try_from(rest.unsigned()?).ok()?;
        let bytes = rest.split(length)?;
        let offset = bytes
            .as_ptr()
            .addr()
            .wrapping_sub(self.entry.segment.as_ptr().addr());
        Place::new(offset, length)
    }

    #[inline]
    fn set(&mut self, register: u16, column: Column) {
        let index = column_of(register);
        if let Some(place) = index.and_then(|index| self.state.columns.get_mut(index)) {
            *place = column;
        }
    }

    fn restore(&mut self, register: u16, initial: &State) {
        let index = column_of(register);
        if let Some(column) = index.and_then(|index| initial.columns.get(index)) {
            self.set(register, *column);
        }
    }

    #[inline]
    fn scaled(&self, factored: u64) -> Option<i32> {
        i32::try_from((factored as i64).wrapping_mul(self.entry.data_factor)).ok()
    }
}
