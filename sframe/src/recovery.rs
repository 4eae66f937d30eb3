//! From the data words of a row to its rules (specification 3). The only place that knows what words mean; `encode`
//! holds the inverse.

use crate::bytes::Words;
use crate::fre::RawRow;
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

    /// Interprets one row.
    #[inline]
    pub(crate) fn interpret(&self, raw: &RawRow<'_>) -> Result<Row, Error> {
        let mut row = if raw.word_count() == 0 {
            if matches!(self.version, Version::V1) {
                return Err(Error::BadWordCount {
                    offset: raw.info_offset,
                    info: raw.info,
                });
            }
            Row::outermost()
        } else {
            match self.kind {
                Kind::Default => self.default(raw),
                Kind::Flex => self.flex(raw),
            }?
        };
        row.mangled_ra =
            raw.has_mangled_ra() && matches!(self.abi, Abi::Aarch64Big | Abi::Aarch64Little);
        Ok(self.with_function_facts(row))
    }

    #[inline]
    const fn with_function_facts(&self, mut row: Row) -> Row {
        row.pac_key = self.pac_key;
        row.signal_frame = self.signal_frame;
        row
    }

    /// 3.1: the CFA's offset, then the return address's unless it is fixed, then the frame pointer's unless it is fixed.
    #[inline]
    fn default(&self, raw: &RawRow<'_>) -> Result<Row, Error> {
        let bad_count = Error::BadWordCount {
            offset: raw.info_offset,
            info: raw.info,
        };
        let mut words = raw.words;
        let base = if raw.is_based_on_stack_pointer() {
            Base::StackPointer
        } else {
            Base::FramePointer
        };
        let offset = self.unscale(words.signed().ok_or(bad_count)?, raw)?;
        let ra = if self.fixed_ra == 0 {
            self.saved(words.signed())
        } else {
            self.unlisted_ra()
        };
        let fp = if self.fixed_fp == 0 {
            self.saved(words.signed())
        } else {
            self.unlisted_fp()
        };
        if !words.is_empty() {
            return Err(bad_count);
        }
        Ok(Row::new(
            Cfa {
                base,
                offset,
                deref: false,
            },
            ra,
            fp,
        ))
    }

    /// s390x stores the CFA's offset less 160, in units of 8 (3.1.3); in FLEX rows too, which the text leaves open but
    /// binutils does.
    #[inline]
    fn unscale(&self, word: i32, raw: &RawRow<'_>) -> Result<i32, Error> {
        if !matches!(self.abi, Abi::S390x) {
            return Ok(word);
        }
        let overflow = Error::OffsetOverflow {
            offset: raw.info_offset,
            word,
        };
        word.checked_mul(8)
            .and_then(|offset| offset.checked_add(160))
            .ok_or(overflow)
    }

    /// The rule a word of a DEFAULT row stands for. On s390x in version 2 an odd word is a register number.
    #[inline]
    fn saved(&self, word: Option<i32>) -> Rule {
        match word {
            None | Some(0) => Rule::Unchanged,
            Some(word)
                if word & 1 != 0
                    && matches!((self.abi, self.version), (Abi::S390x, Version::V2)) =>
            {
                Rule::Register {
                    register: Register((word >> 1) as u16),
                    offset: 0,
                }
            }
            Some(offset) => Rule::AtCfa(offset),
        }
    }

    /// 3.2: a control word and an offset for the CFA, the return address and the frame pointer; a control word of zero
    /// stands alone and says that the rule is the usual one.
    fn flex(&self, raw: &RawRow<'_>) -> Result<Row, Error> {
        let bad_count = Error::BadWordCount {
            offset: raw.info_offset,
            info: raw.info,
        };
        let mut words = raw.words;
        let cfa = match Pair::take(&mut words, raw)?.ok_or(bad_count)? {
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
            Pair { control, .. } => {
                return Err(Error::BadControl {
                    offset: raw.info_offset,
                    control,
                });
            }
        };
        let ra = match Pair::take(&mut words, raw)? {
            Some(pair) => pair.rule(raw)?,
            None => self.unlisted_ra(),
        };
        let fp = match Pair::take(&mut words, raw)? {
            Some(pair) => pair.rule(raw)?,
            None => self.unlisted_fp(),
        };
        if !words.is_empty() {
            return Err(bad_count);
        }
        Ok(Row::new(cfa, ra, fp))
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

    #[inline]
    fn unlisted_ra(&self) -> Rule {
        if self.fixed_ra == 0 {
            Rule::Unchanged
        } else {
            Rule::AtCfa(i32::from(self.fixed_ra))
        }
    }

    #[inline]
    fn unlisted_fp(&self) -> Rule {
        if self.fixed_fp == 0 {
            Rule::Unchanged
        } else {
            Rule::AtCfa(i32::from(self.fixed_fp))
        }
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
        let missing = Error::BadWordCount {
            offset: raw.info_offset,
            info: raw.info,
        };
        if control == 0 {
            return if words.is_empty() {
                Err(missing)
            } else {
                Ok(None)
            };
        }
        let undefined = Error::BadControl {
            offset: raw.info_offset,
            control,
        };
        let (is_register, deref) = (control & 1 != 0, control & 2 != 0);
        if control & 4 != 0 || !(is_register || deref) {
            return Err(undefined);
        }
        let number = u16::try_from(control >> 3).map_err(|_| undefined)?;
        let register = is_register.then_some(Register(number));
        let offset = words.signed().ok_or(missing)?;
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
            (None, false) => Err(Error::BadControl {
                offset: raw.info_offset,
                control: self.control,
            }),
        }
    }
}
