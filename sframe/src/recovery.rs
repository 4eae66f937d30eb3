//! From the data words of a row to its rules (specification 3). The only place that knows what
//! words mean; `encode` holds the inverse.

use crate::bytes::Words;
use crate::fre::{self, RawRow};
use crate::{Abi, Base, Cfa, Error, Header, PacKey, Register, Row, Rule, Version};

/// The two kinds of function (2.3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Default,
    Flex,
}

/// What the rows of a function have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conventions {
    pub(crate) version: Version,
    pub(crate) abi: Abi,
    pub(crate) fixed_ra: i8,
    pub(crate) fixed_fp: i8,
    pub(crate) kind: Kind,
    pub(crate) pac_key: PacKey,
    pub(crate) signal_frame: bool,
}

impl Conventions {
    #[inline]
    pub(crate) const fn new(header: &Header, kind: Kind, info: u8) -> Self {
        let is_aarch64 = matches!(header.abi, Abi::Aarch64Big | Abi::Aarch64Little);
        Self {
            version: header.version,
            abi: header.abi,
            fixed_ra: header.fixed_ra_offset,
            fixed_fp: header.fixed_fp_offset,
            kind,
            pac_key: if is_aarch64 && info & 0x20 != 0 {
                PacKey::B
            } else {
                PacKey::A
            },
            signal_frame: matches!(header.version, Version::V3) && info & 0x80 != 0,
        }
    }

    /// The row of a function that has no rows, where that says it is outermost.
    pub(crate) const fn outermost(&self) -> Row {
        self.with_function_facts(Row::outermost())
    }

    /// Interprets one row. There always is one: as an option, it goes to the caller's caller
    /// without being moved.
    #[inline]
    pub(crate) fn interpret(&self, raw: &RawRow<'_>) -> Result<Option<Row>, Error> {
        match (raw.word_count(), self.kind) {
            (0, _) => self.no_words(raw),
            (_, Kind::Default) => self.default(raw),
            (_, Kind::Flex) => self.flex(raw),
        }
    }

    /// 2.4.1: there is no return address. In version 1 it has no meaning.
    #[cold]
    fn no_words(&self, raw: &RawRow<'_>) -> Result<Option<Row>, Error> {
        if self.version == Version::V1 {
            return Err(bad_count(raw));
        }
        let mut row = self.with_function_facts(Row::outermost());
        row.mangled_ra = self.is_mangled(raw.info);
        Ok(Some(row))
    }

    #[inline]
    const fn with_function_facts(&self, mut row: Row) -> Row {
        row.pac_key = self.pac_key;
        row.signal_frame = self.signal_frame;
        row
    }

    #[inline]
    const fn is_mangled(&self, info: u8) -> bool {
        fre::has_mangled_ra(info) && matches!(self.abi, Abi::Aarch64Big | Abi::Aarch64Little)
    }

    /// 3.1: the CFA's offset, then the return address's unless it is fixed, then the frame
    /// pointer's unless it is fixed.
    #[inline]
    fn default(&self, raw: &RawRow<'_>) -> Result<Option<Row>, Error> {
        if raw.word_count() > self.most_words() {
            return Err(bad_count(raw));
        }
        let mut words = raw.words;
        let first = words.signed().ok_or_else(|| bad_count(raw))?;
        let words = [
            self.unscale(first, raw)?,
            words.signed().unwrap_or(0),
            words.signed().unwrap_or(0),
        ];
        Ok(Some(self.default_row(raw.info, words)))
    }

    /// The number of words a DEFAULT row can have.
    #[inline]
    pub(crate) fn most_words(&self) -> u8 {
        1_u8.wrapping_add((self.fixed_ra == 0).into())
            .wrapping_add((self.fixed_fp == 0).into())
    }

    /// A DEFAULT row from its info byte and its words, zero for those that it does not have.
    #[inline]
    pub(crate) fn default_row(&self, info: u8, [cfa, second, third]: [i32; 3]) -> Row {
        let (ra, fp) = if self.fixed_ra == 0 {
            (self.saved(second), third)
        } else {
            (Rule::AtCfa(self.fixed_ra.into()), second)
        };
        let fp = if self.fixed_fp == 0 {
            self.saved(fp)
        } else {
            Rule::AtCfa(self.fixed_fp.into())
        };
        let base = if fre::is_based_on_stack_pointer(info) {
            Base::StackPointer
        } else {
            Base::FramePointer
        };
        Row {
            cfa: Cfa {
                base,
                offset: cfa,
                deref: false,
            },
            ra,
            fp,
            mangled_ra: self.is_mangled(info),
            pac_key: self.pac_key,
            signal_frame: self.signal_frame,
        }
    }

    /// s390x stores the CFA's offset less 160, in units of 8 (3.1.3); in FLEX rows too, which the
    /// text leaves open but binutils does.
    #[inline]
    fn unscale(&self, word: i32, raw: &RawRow<'_>) -> Result<i32, Error> {
        if !matches!(self.abi, Abi::S390x) {
            return Ok(word);
        }
        let overflow = || Error::OffsetOverflow {
            offset: raw.info_offset,
            word,
        };
        word.checked_mul(8)
            .and_then(|offset| offset.checked_add(160))
            .ok_or_else(overflow)
    }

    /// The rule a word of a DEFAULT row stands for; zero for none. On s390x in version 2 an odd
    /// word is a register number.
    #[inline]
    fn saved(&self, word: i32) -> Rule {
        if word == 0 {
            return Rule::Unchanged;
        }
        if word & 1 != 0 && matches!((self.abi, self.version), (Abi::S390x, Version::V2)) {
            return Rule::Register {
                register: Register((word >> 1) as u16),
                offset: 0,
            };
        }
        Rule::AtCfa(word)
    }

    /// 3.2: a control word and an offset for the CFA, the return address and the frame pointer; a
    /// control word of zero stands alone and says that the rule is the usual one.
    fn flex(&self, raw: &RawRow<'_>) -> Result<Option<Row>, Error> {
        let mut words = raw.words;
        let cfa = match Pair::take(&mut words, raw)?.ok_or_else(|| bad_count(raw))? {
            Pair {
                register: Some(register),
                deref,
                offset,
                ..
            } => Cfa {
                base: self.base(register),
                offset: self.unscale(offset, raw)?,
                deref,
            },
            Pair { control, .. } => return Err(bad_control(raw, control)),
        };
        let ra = match Pair::take(&mut words, raw)? {
            Some(pair) => pair.rule(raw)?,
            None => unlisted(self.fixed_ra),
        };
        let fp = match Pair::take(&mut words, raw)? {
            Some(pair) => pair.rule(raw)?,
            None => unlisted(self.fixed_fp),
        };
        if !words.is_empty() {
            return Err(bad_count(raw));
        }
        let mut row = self.with_function_facts(Row::new(cfa, ra, fp));
        row.mangled_ra = self.is_mangled(raw.info);
        Ok(Some(row))
    }

    #[inline]
    fn base(&self, register: Register) -> Base {
        if register == self.abi.stack_pointer() {
            Base::StackPointer
        } else if register == self.abi.frame_pointer() {
            Base::FramePointer
        } else {
            Base::Register(register)
        }
    }
}

/// The rule for what has no words: at the header's fixed offset, if there is one.
const fn unlisted(fixed: i8) -> Rule {
    if fixed == 0 {
        Rule::Unchanged
    } else {
        Rule::AtCfa(fixed as i32)
    }
}

#[cold]
fn bad_count(raw: &RawRow<'_>) -> Error {
    Error::BadWordCount {
        offset: raw.info_offset,
        info: raw.info,
    }
}

#[cold]
fn bad_control(raw: &RawRow<'_>, control: u32) -> Error {
    Error::BadControl {
        offset: raw.info_offset,
        control,
    }
}

/// A control word and its offset.
struct Pair {
    control: u32,
    register: Option<Register>,
    deref: bool,
    offset: i32,
}

impl Pair {
    /// None where there is no word left or the control word is zero.
    fn take(words: &mut Words<'_>, raw: &RawRow<'_>) -> Result<Option<Self>, Error> {
        let Some(control) = words.unsigned() else {
            return Ok(None);
        };
        if control == 0 {
            return if words.is_empty() {
                Err(bad_count(raw))
            } else {
                Ok(None)
            };
        }
        let (is_register, deref) = (control & 1 != 0, control & 2 != 0);
        if control & 4 != 0 || !(is_register || deref) {
            return Err(bad_control(raw, control));
        }
        let number = u16::try_from(control >> 3).map_err(|_| bad_control(raw, control))?;
        let register = is_register.then_some(Register(number));
        let offset = words.signed().ok_or_else(|| bad_count(raw))?;
        Ok(Some(Self {
            control,
            register,
            deref,
            offset,
        }))
    }

    fn rule(self, raw: &RawRow<'_>) -> Result<Rule, Error> {
        match (self.register, self.deref) {
            (None, true) => Ok(Rule::AtCfa(self.offset)),
            (Some(register), false) => Ok(Rule::Register {
                register,
                offset: self.offset,
            }),
            (Some(register), true) => Ok(Rule::AtRegister {
                register,
                offset: self.offset,
            }),
            (None, false) => Err(bad_control(raw, self.control)),
        }
    }
}
