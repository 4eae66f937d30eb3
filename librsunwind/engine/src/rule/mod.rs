//! One step up the stack, whatever table it came from: a word that fits a cache entry, and what it
//! stands for.
//!
//! ```text
//!        higher addresses
//!   CFA -> +------------------+   the caller's stack pointer after the return
//!          | return address   |   CFA - 8
//!          | saved register   |   slot 1: CFA - 16 … slot 31: CFA - 256
//!          | locals           |
//!   sp  -> +------------------+
//!
//!   bits    0..4    kind
//!           4..7    method
//!           7       CFA from the frame pointer
//!           8..38   six slots of five bits, 0 is "not saved"
//!           38      drops unsaved registers
//!           39..44  another CFA register
//!           44..64  CFA offset in words, signed, or an index
//! ```
//!
//! Rows that the word does not hold go to the [`wide`] table and leave their index here. Not here:
//! reading tables ([`crate::table`]), keeping rules ([`crate::rule_cache`]), the fast loop over
//! plain rules ([`crate::walk`]).

pub mod wide;

use crate::cursor::Cursor;
use crate::memory::StackMemory;
use crate::registers::{
    COUNT, FP, RETURN_ADDRESS, RETURN_ADDRESS_ON_STACK, Register, SLOTS, SP, strip,
};
use crate::wire::sample::{Method, StopReason};
use wide::{Cfa, Row, Saved};

/// What kind of step a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// No rule: an empty cache entry.
    Absent = 0,
    /// CFA from sp or fp; saved registers near the CFA.
    Plain = 1,
    /// As plain, with the CFA from another register.
    Based = 2,
    /// Along the frame pointer, with doubts.
    FramePointer = 3,
    /// A signal trampoline: registers from the context that the kernel saved.
    Signal = 4,
    /// There is no caller.
    Root = 5,
    /// A row of the wide table.
    Wide = 6,
    /// Expressions that are evaluated anew at every step.
    Evaluate = 7,
    /// From C back to the Go code that called it, on another stack.
    GoSwitch = 8,
    /// Code that a language answers for ([`crate::language`]).
    Language = 9,
}

const KIND: u64 = 0xf;
const METHOD_SHIFT: u32 = 4;
const METHOD_MASK: u64 = 7;
const FROM_FP: u64 = 1 << 7;
const SLOT_SHIFT: u32 = 8;
const SLOT_BITS: u32 = 5;
const SLOT_MASK: u64 = 0x1f;
const DROPS: u64 = 1 << 38;
const BASE_SHIFT: u32 = 39;
const OFFSET_SHIFT: u32 = 44;
/// How far below the CFA a plain rule's loads reach, bytes.
pub const REACH: u64 = 256;

/// One step up the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct UnwindRule(u64);

impl UnwindRule {
    const fn new(kind: Kind, method: Method) -> Self {
        // Only `Language` does not fit, which no rule finds a caller by.
        Self(kind as u64 | (method as u64 & METHOD_MASK) << METHOD_SHIFT)
    }

    /// There is no caller.
    #[must_use]
    pub const fn root(method: Method) -> Self {
        Self::new(Kind::Root, method)
    }

    /// A signal trampoline.
    #[must_use]
    pub const fn signal() -> Self {
        Self::new(Kind::Signal, Method::SignalFrame)
    }

    /// Along the frame pointer, for want of a table; `without` is why the walk ends if that leads
    /// nowhere.
    #[must_use]
    pub const fn frame_pointer(without: StopReason) -> Self {
        let rule = Self::new(Kind::FramePointer, Method::FramePointer);
        Self(rule.0 | (without as u64) << OFFSET_SHIFT)
    }

    /// To the stack of the Go code that called C: where on C's stack the goroutine and the depth
    /// were saved, bytes ([`crate::table::go_switch`]).
    #[must_use]
    pub(crate) fn go_switch(goroutine: u8, depth: u8) -> Self {
        let rule = Self::new(Kind::GoSwitch, Method::FramePointer);
        let distances = u64::from(u16::from_le_bytes([goroutine, depth]));
        Self(rule.0 | distances << OFFSET_SHIFT)
    }

    /// Code that the language of that number answers for.
    #[must_use]
    pub const fn language(number: u32) -> Self {
        Self(Self::new(Kind::Language, Method::Told).0 | (number as u64) << OFFSET_SHIFT)
    }

    /// The number of the language that answers for the code, if one does.
    #[must_use]
    pub fn language_of(self) -> Option<u32> {
        (self.kind() == Kind::Language).then(|| self.index())
    }

    /// Of a frame-pointer rule, why the walk ends if the frame pointer leads nowhere.
    #[must_use]
    pub fn reason(self) -> StopReason {
        let number = u8::try_from(self.index()).ok();
        let reason = number.and_then(StopReason::from_number);
        reason.unwrap_or(StopReason::NoRow)
    }

    /// Along a frame pointer that was found to hold a frame.
    pub(crate) const fn chain() -> Self {
        let rule = Self::new(Kind::Plain, Method::FramePointer);
        Self(rule.0 | FROM_FP | 1 << SLOT_SHIFT | 2 << OFFSET_SHIFT)
    }

    /// To be evaluated at every step.
    #[must_use]
    pub const fn evaluate(method: Method) -> Self {
        Self::new(Kind::Evaluate, method)
    }

    /// A row in the wide table.
    #[must_use]
    pub const fn wide(method: Method, index: u32) -> Self {
        Self(Self::new(Kind::Wide, method).0 | (index as u64) << OFFSET_SHIFT)
    }

    /// The rule for a row, if the word holds it.
    #[must_use]
    pub fn from_row(row: &Row, method: Method) -> Option<Self> {
        let Cfa::Offset { register, offset } = row.cfa else {
            return None;
        };
        if row.stack_pointer != Saved::Same || row.return_address == Saved::Undefined {
            return None;
        }
        if RETURN_ADDRESS_ON_STACK && row.return_address != Saved::At(-8) {
            return None;
        }
        let mut slots = 0;
        for (slot, saved) in (0u32..).zip(row.saved) {
            slots |= match saved {
                Saved::Same => 0,
                Saved::At(offset) => slot_bits(slot, i64::from(offset))?,
                _ => return None,
            };
        }
        let rule = Self::from_parts(method, register, i64::from(offset), slots)?;
        Some(Self(if row.drops { rule.0 | DROPS } else { rule.0 }))
    }

    /// The rule with a CFA at `offset` from `register` and slots made by [`slot_bits`], if the word
    /// holds it.
    pub(crate) fn from_parts(
        method: Method,
        register: Register,
        offset: i64,
        slots: u64,
    ) -> Option<Self> {
        let base = match register {
            SP => Self::new(Kind::Plain, method).0,
            FP => Self::new(Kind::Plain, method).0 | FROM_FP,
            other if other.0 < 32 => {
                Self::new(Kind::Based, method).0 | u64::from(other.0) << BASE_SHIFT
            }
            _ => return None,
        };
        Some(Self(base | slots | words_of(offset)? << OFFSET_SHIFT))
    }

    /// The word.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The rule of a word that came from [`UnwindRule::bits`].
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its kind.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self.0 & KIND {
            1 => Kind::Plain,
            2 => Kind::Based,
            3 => Kind::FramePointer,
            4 => Kind::Signal,
            5 => Kind::Root,
            6 => Kind::Wide,
            7 => Kind::Evaluate,
            8 => Kind::GoSwitch,
            9 => Kind::Language,
            _ => Kind::Absent,
        }
    }

    /// Whether it is [`Kind::Plain`].
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.0 & KIND == Kind::Plain as u64
    }

    /// What found it.
    #[inline]
    #[must_use]
    pub const fn method(self) -> Method {
        // Numbers stay as they are, so that this takes no more than the mask.
        match self.0 >> METHOD_SHIFT & METHOD_MASK {
            0 => Method::Registers,
            1 => Method::Sframe,
            2 => Method::EhFrame,
            3 => Method::FramePointer,
            4 => Method::SignalFrame,
            5 => Method::Leaf,
            6 => Method::Told,
            _ => Method::StackCopy,
        }
    }

    /// Of a wide rule, its index; of others, what they keep there.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        (self.0 >> OFFSET_SHIFT) as u32
    }

    /// Whether the CFA of a plain rule is counted from the frame pointer.
    #[inline]
    #[must_use]
    pub const fn is_from_frame_pointer(self) -> bool {
        self.0 & FROM_FP != 0
    }

    /// Whether registers that the row does not mention are lost.
    #[inline]
    #[must_use]
    pub const fn drops(self) -> bool {
        self.0 & DROPS != 0
    }

    /// From the register to the CFA, bytes.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        (((self.0 as i64) >> OFFSET_SHIFT) << 3) as u64
    }

    /// How many words below the return address a slot's register is saved; 0 if it is not.
    #[inline]
    #[must_use]
    pub const fn slot(self, slot: u32) -> u64 {
        self.0.wrapping_shr(shift_of(slot)) & SLOT_MASK
    }

    /// The register of a based rule's CFA.
    const fn base(self) -> Register {
        match self.kind() {
            Kind::Based => Register((self.0 >> BASE_SHIFT) as u8 & 0x1f),
            _ if self.is_from_frame_pointer() => FP,
            _ => SP,
        }
    }

    /// The row that a plain or based rule stands for.
    #[must_use]
    pub fn row(self) -> Row {
        let mut row = Row::new(Cfa::Offset {
            register: self.base(),
            offset: self.offset() as i32,
        });
        for (slot, place) in (0u32..).zip(row.saved.iter_mut()) {
            *place = match self.slot(slot) as i32 {
                0 => Saved::Same,
                words => Saved::At(words.wrapping_neg().wrapping_mul(8).wrapping_sub(8)),
            };
        }
        row.drops = self.drops();
        if !RETURN_ADDRESS_ON_STACK {
            row.return_address = row.saved.get(1).copied().unwrap_or(Saved::Same);
        }
        row
    }
}

/// A register by its DWARF number, if a cursor has it.
pub(crate) fn base_of(number: u16) -> Option<Register> {
    let register = Register(u8::try_from(number).ok()?);
    (usize::from(register.0) < COUNT || register == SP || register == FP).then_some(register)
}

/// The bits that say "this slot's register is saved at CFA plus `offset`", if a word can.
#[inline]
pub(crate) fn slot_bits(slot: u32, offset: i64) -> Option<u64> {
    let fits = offset & 7 == 0 && (-256..=-16).contains(&offset);
    let words = (offset.wrapping_neg() >> 3).wrapping_sub(1) as u64;
    fits.then_some(words.wrapping_shl(shift_of(slot)))
}

/// All bits of a slot.
#[inline]
pub(crate) const fn slot_mask(slot: u32) -> u64 {
    SLOT_MASK.wrapping_shl(shift_of(slot))
}

#[inline]
const fn shift_of(slot: u32) -> u32 {
    SLOT_SHIFT.wrapping_add(slot.wrapping_mul(SLOT_BITS))
}

/// A byte offset as a 20-bit number of words.
fn words_of(offset: i64) -> Option<u64> {
    let words = offset >> 3;
    let fits = offset & 7 == 0 && (-(1 << 19)..1 << 19).contains(&words);
    fits.then_some(words as u64 & 0xf_ffff)
}

impl Row {
    /// Takes the cursor to the caller. On an error the cursor is unchanged.
    ///
    /// # Errors
    /// [`StopReason::MissingRegister`], [`StopReason::UnreadableStack`],
    /// [`StopReason::NotAdvancing`].
    ///
    /// # Signal safety
    /// Loads through `memory` only.
    #[inline]
    pub fn apply(&self, cursor: &mut Cursor, memory: &mut StackMemory) -> Result<(), StopReason> {
        let cfa = self.cfa(cursor, memory)?;
        let mut slots = cursor.slots();
        let mut valid = cursor.valid();
        if self.drops {
            valid = Cursor::forget_all_but_frame(valid);
        }
        let places = slots.iter_mut().zip(SLOTS);
        for ((place, register), saved) in places.zip(self.saved) {
            match saved.value(cfa, cursor, memory)? {
                Recovered::Unchanged => {}
                Recovered::Lost => valid &= !register.bit(),
                Recovered::Value(value) => {
                    *place = value;
                    valid |= register.bit();
                }
            }
        }
        let return_address = match self.return_address.value(cfa, cursor, memory)? {
            Recovered::Value(value) => value,
            Recovered::Unchanged => cursor
                .get(RETURN_ADDRESS)
                .ok_or(StopReason::MissingRegister)?,
            Recovered::Lost => return Err(StopReason::Root),
        };
        let sp = match self.stack_pointer.value(cfa, cursor, memory)? {
            Recovered::Value(sp) => sp,
            Recovered::Unchanged => cfa,
            Recovered::Lost => return Err(StopReason::MissingRegister),
        };
        let is_jump = self.stack_pointer != Saved::Same && cursor.is_exact();
        // A leaf may keep its return address in a register meanwhile, as vfork does, whose stack is
        // the child's too.
        let is_taken_off = matches!(self.return_address, Saved::InRegister(_));
        let may_stay = is_taken_off && cursor.is_exact() && sp == cursor.sp();
        if !is_jump && !may_stay {
            check_advance(cursor, sp)?;
        }
        cursor.become_caller(strip(return_address), sp, &slots, valid);
        Ok(())
    }

    fn cfa(&self, cursor: &Cursor, memory: &mut StackMemory) -> Result<u64, StopReason> {
        match self.cfa {
            Cfa::Offset { register, offset } => {
                let base = cursor.get(register).ok_or(StopReason::MissingRegister)?;
                Ok(base.wrapping_add_signed(i64::from(offset)))
            }
            Cfa::Deref {
                register,
                offset,
                add,
            } => {
                let base = cursor.get(register).ok_or(StopReason::MissingRegister)?;
                let address = base.wrapping_add_signed(i64::from(offset));
                let value = memory.load(address).ok_or(StopReason::UnreadableStack)?;
                Ok(value.wrapping_add_signed(i64::from(add)))
            }
        }
    }
}

/// What a row says about a register, in one frame.
pub(crate) enum Recovered {
    Unchanged,
    Lost,
    Value(u64),
}

impl Saved {
    #[inline]
    pub(crate) fn value(
        self,
        cfa: u64,
        cursor: &Cursor,
        memory: &mut StackMemory,
    ) -> Result<Recovered, StopReason> {
        let address = match self {
            Self::Same => return Ok(Recovered::Unchanged),
            Self::Undefined => return Ok(Recovered::Lost),
            Self::ValueAt(offset) => {
                return Ok(Recovered::Value(cfa.wrapping_add_signed(i64::from(offset))));
            }
            Self::InRegister(register) => {
                return Ok(cursor
                    .get(register)
                    .map_or(Recovered::Lost, Recovered::Value));
            }
            Self::At(offset) => cfa.wrapping_add_signed(i64::from(offset)),
            Self::AtRegister { register, offset } => cursor
                .get(register)
                .ok_or(StopReason::MissingRegister)?
                .wrapping_add_signed(i64::from(offset)),
        };
        let value = memory.load(address).ok_or(StopReason::UnreadableStack)?;
        Ok(Recovered::Value(value))
    }
}

/// The caller's stack pointer must lie above the callee's; a leaf that has pushed nothing yet may
/// share it where calls do not push.
#[inline]
pub(crate) fn check_advance(cursor: &Cursor, cfa: u64) -> Result<(), StopReason> {
    let may_stay = cursor.is_exact() && !RETURN_ADDRESS_ON_STACK;
    if cfa > cursor.sp() || (may_stay && cfa == cursor.sp()) {
        Ok(())
    } else {
        Err(StopReason::NotAdvancing)
    }
}
