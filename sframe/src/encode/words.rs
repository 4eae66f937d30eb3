//! From rules to data words: the inverse of `recovery.rs` (specification 3), and the rows and
//! attribute around them (2.3.2, 2.4).

use alloc::vec::Vec;

use super::{EncodeError, FunctionRows, Writer};
use crate::{Abi, Base, Cfa, PacKey, Register, Row, Rule, Version};

/// What the rows of a section have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conventions {
    pub(super) version: Version,
    pub(super) abi: Abi,
}

/// The rows of a function as bytes; in version 3 behind their attribute.
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) info: u8,
}

/// A data word before its width is known.
#[derive(Clone, Copy)]
enum Word {
    Signed(i32),
    Unsigned(u32),
}

/// Which rule has no words.
enum Inexpressible {
    Cfa,
    ReturnAddress,
    FramePointer,
}

impl Inexpressible {
    const fn at(self, start: u32) -> EncodeError {
        match self {
            Self::Cfa => EncodeError::Cfa { start },
            Self::ReturnAddress => EncodeError::ReturnAddress { start },
            Self::FramePointer => EncodeError::FramePointer { start },
        }
    }
}

impl Conventions {
    pub(super) const fn fixed_ra(self) -> i8 {
        self.abi.fixed_return_address_offset()
    }

    /// Encodes the rows: all in the DEFAULT way if that can express them, else, in version 3, all
    /// in the FLEX way.
    pub(super) fn encode(self, function: &FunctionRows) -> Result<Block, EncodeError> {
        check_order(&function.rows)?;
        if self.version == Version::V2 && function.signal_frame {
            return Err(EncodeError::SignalFrame);
        }
        if self.version == Version::V2 && function.rows.is_empty() {
            return Err(EncodeError::NoRows);
        }
        let (is_flexible, words) = match self.words(function, Self::default_words) {
            Err(_) if self.version == Version::V3 => {
                (true, self.words(function, Self::flex_words)?)
            }
            words => (false, words?),
        };
        let width = start_width(&function.rows);
        let mask = if function.rep_size.is_some() { 0x10 } else { 0 };
        let is_aarch64 = matches!(self.abi, Abi::Aarch64Big | Abi::Aarch64Little);
        let key = if is_aarch64 && function.pac_key == PacKey::B {
            0x20
        } else {
            0
        };
        let signal = if function.signal_frame { 0x80 } else { 0 };
        let info = width | mask | key | signal;
        let mut out = Writer {
            order: self.abi.byte_order(),
            bytes: Vec::new(),
        };
        if self.version == Version::V3 {
            out.u16(u16::try_from(function.rows.len()).map_err(|_| EncodeError::TooManyRows)?);
            out.u8(info);
            out.u8(is_flexible.into());
            out.u8(function.rep_size.map_or(0, core::num::NonZeroU8::get));
        }
        for ((start, row), words) in function.rows.iter().zip(&words) {
            out.number(*start, width);
            write_row(&mut out, row, words, is_flexible);
        }
        Ok(Block {
            bytes: out.bytes,
            info,
        })
    }

    fn words(
        self,
        function: &FunctionRows,
        encode: fn(Self, &Row) -> Result<Vec<Word>, Inexpressible>,
    ) -> Result<Vec<Vec<Word>>, EncodeError> {
        let words = |(start, row): &(u32, Row)| match row.is_outermost() {
            true => Ok(Vec::new()),
            false => encode(self, row).map_err(|rule| rule.at(*start)),
        };
        function.rows.iter().map(words).collect()
    }

    /// 3.1. A missing return address is written as 0 on s390x if a frame pointer follows; elsewhere
    /// readers do not expect that.
    fn default_words(self, row: &Row) -> Result<Vec<Word>, Inexpressible> {
        let Cfa {
            base: Base::StackPointer | Base::FramePointer,
            offset,
            deref: false,
        } = row.cfa
        else {
            return Err(Inexpressible::Cfa);
        };
        let mut words = Vec::from([Word::Signed(self.scale(offset)?)]);
        let fp = self
            .default_word(row.fp)
            .ok_or(Inexpressible::FramePointer)?;
        if self.fixed_ra() == 0 {
            match self
                .default_word(row.ra)
                .ok_or(Inexpressible::ReturnAddress)?
            {
                Some(word) => words.push(Word::Signed(word)),
                None if fp.is_none() => {}
                None if self.abi == Abi::S390x => words.push(Word::Signed(0)),
                None => return Err(Inexpressible::FramePointer),
            }
        } else if row.ra != Rule::AtCfa(self.fixed_ra().into()) {
            return Err(Inexpressible::ReturnAddress);
        }
        words.extend(fp.map(Word::Signed));
        Ok(words)
    }

    /// The word for a rule, if it needs one; none at all where there is no such word.
    fn default_word(self, rule: Rule) -> Option<Option<i32>> {
        let has_registers = (self.abi, self.version) == (Abi::S390x, Version::V2);
        match rule {
            Rule::Unchanged => Some(None),
            Rule::AtCfa(offset) if offset != 0 && !(has_registers && offset & 1 != 0) => {
                Some(Some(offset))
            }
            Rule::Register {
                register: Register(number),
                offset: 0,
            } if has_registers => Some(Some(i32::from(number) << 1 | 1)),
            _ => None,
        }
    }

    /// 3.1.3: s390x counts the CFA's offset from 160, in units of 8.
    fn scale(self, offset: i32) -> Result<i32, Inexpressible> {
        if self.abi != Abi::S390x {
            return Ok(offset);
        }
        match offset.checked_sub(160) {
            Some(offset) if offset.rem_euclid(8) == 0 => Ok(offset.div_euclid(8)),
            _ => Err(Inexpressible::Cfa),
        }
    }

    /// 3.2.
    fn flex_words(self, row: &Row) -> Result<Vec<Word>, Inexpressible> {
        let register = match row.cfa.base {
            Base::StackPointer => self.abi.stack_pointer(),
            Base::FramePointer => self.abi.frame_pointer(),
            Base::Register(register) => register,
        };
        let offset = Word::Signed(self.scale(row.cfa.offset)?);
        let mut words = Vec::from([control(Some(register), row.cfa.deref), offset]);
        let usual_ra = match self.fixed_ra() {
            0 => Rule::Unchanged,
            offset => Rule::AtCfa(offset.into()),
        };
        let has_fp = row.fp != Rule::Unchanged;
        if row.ra != usual_ra {
            words.extend(pair(row.ra).ok_or(Inexpressible::ReturnAddress)?);
        } else if has_fp {
            words.push(Word::Unsigned(0));
        }
        if has_fp {
            words.extend(pair(row.fp).ok_or(Inexpressible::FramePointer)?);
        }
        Ok(words)
    }
}

fn control(register: Option<Register>, deref: bool) -> Word {
    let register = register.map_or(0, |register| u32::from(register.0) << 3 | 1);
    Word::Unsigned(register | u32::from(deref) << 1)
}

fn pair(rule: Rule) -> Option<[Word; 2]> {
    match rule {
        Rule::AtCfa(offset) => Some([control(None, true), Word::Signed(offset)]),
        Rule::Register { register, offset } => {
            Some([control(Some(register), false), Word::Signed(offset)])
        }
        Rule::AtRegister { register, offset } => {
            Some([control(Some(register), true), Word::Signed(offset)])
        }
        Rule::Unchanged | Rule::Undefined => None,
    }
}

fn check_order(rows: &[(u32, Row)]) -> Result<(), EncodeError> {
    let mut previous = None;
    for &(start, _) in rows {
        if previous.is_some_and(|previous| previous >= start) {
            return Err(EncodeError::RowOrder { start });
        }
        previous = Some(start);
    }
    Ok(())
}

/// 0, 1 or 2, for the 1, 2 or 4 bytes that the last start, the largest, needs.
fn start_width(rows: &[(u32, Row)]) -> u8 {
    match rows.last() {
        Some((0x100..=0xffff, _)) => 1,
        Some((0x1_0000.., _)) => 2,
        _ => 0,
    }
}

/// 0, 1 or 2, for the 1, 2 or 4 bytes that the widest word needs.
fn word_width(words: &[Word]) -> u8 {
    let width = |word: &Word| match *word {
        Word::Signed(word) if i8::try_from(word).is_ok() => 0,
        Word::Signed(word) if i16::try_from(word).is_ok() => 1,
        Word::Unsigned(..=0xff) => 0,
        Word::Unsigned(..=0xffff) => 1,
        _ => 2,
    };
    words.iter().map(width).max().unwrap_or(0)
}

/// Everything of a row but its start.
fn write_row(out: &mut Writer, row: &Row, words: &[Word], is_flexible: bool) {
    let width = word_width(words);
    let on_stack_pointer =
        !is_flexible && row.cfa.base == Base::StackPointer && !row.is_outermost();
    let mangled = if row.mangled_ra { 0x80 } else { 0 };
    // At most six words, so the count has room in its four bits.
    out.u8(mangled | width << 5 | (words.len() as u8) << 1 | u8::from(on_stack_pointer));
    for word in words {
        out.number(
            match *word {
                Word::Signed(word) => word.cast_unsigned(),
                Word::Unsigned(word) => word,
            },
            width,
        );
    }
}

impl Writer {
    /// The low 1, 2 or 4 bytes, for a width of 0, 1 or 2.
    fn number(&mut self, value: u32, width: u8) {
        match width {
            0 => self.u8(value as u8),
            1 => self.u16(value as u16),
            _ => self.u32(value),
        }
    }
}
