//! `.eh_frame`: the table that compilers emit for exceptions, found through the sorted index in
//! `.eh_frame_hdr`.
//!
//! Used when the rule cache has no answer. Formats: Linux Standard Base Core 5.0, chapter 10.6;
//! DWARF 5, section 6.4. The bytes may be damaged: whatever they say ends in a rule or an error,
//! after bounded work. There is no linear scan at a look-up: for a module without the index one is
//! made when it is found ([`super::index`]).

use super::expression::{Bytes, Machine, Value};
use super::frame_program::{Base, Column, Place, Program, State};
use super::missing::Missing;
use super::{epilogue, usual};
use crate::cursor::Cursor;
use crate::memory::StackMemory;
use crate::registers::{RETURN_ADDRESS_ON_STACK, SLOTS, strip};
use crate::rule::wide::{Cfa, Row, Saved, WideRows};
use crate::rule::{Recovered, UnwindRule, base_of, check_advance};
use crate::wire::sample::{Method, StopReason};
use core::hint::select_unpredictable;
use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, FrameDescriptionEntry, LittleEndian,
    UnwindSection,
};

/// The encodings of an index as every linker writes it: pointer pc-relative, count plain, table
/// relative to the index, all 4 bytes.
pub(super) const USUAL: &[u8] = &[1, 0x1b, 0x03, 0x3b];

/// The unwind table of one module.
#[derive(Clone, Copy, Debug)]
pub struct EhFrameTable<'a> {
    /// The readable bytes that hold both sections.
    segment: &'a [u8],
    /// Where they are mapped.
    segment_address: u64,
    /// From the beginning of the index on.
    index: &'a [u8],
    /// What the index counts its pairs from: where it is mapped, if the linker wrote it.
    index_address: u64,
}

/// A row, not lowered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    state: State,
    /// Whether the row is that of a signal trampoline, whose caller's pc is exact.
    pub is_signal_frame: bool,
}

impl<'a> EhFrameTable<'a> {
    /// The table whose index is at `hdr_address`, both inside the bytes mapped at
    /// `segment_address`.
    #[inline]
    #[must_use]
    pub fn new(segment: &'a [u8], segment_address: u64, hdr_address: u64) -> Option<Self> {
        let hdr = usize::try_from(hdr_address.checked_sub(segment_address)?).ok()?;
        let index = segment.get(hdr..).filter(|index| !index.is_empty())?;
        Some(Self {
            segment,
            segment_address,
            index,
            index_address: hdr_address,
        })
    }

    /// The table mapped at `segment_address` with an index that [`super::index::fill`] made of it.
    #[inline]
    #[must_use]
    pub const fn with_index(segment: &'a [u8], segment_address: u64, index: &'a [u8]) -> Self {
        Self {
            segment,
            segment_address,
            index,
            index_address: segment_address,
        }
    }

    /// The row of a pc, by gimli.
    ///
    /// # Errors
    /// [`Missing`].
    ///
    /// # Signal safety
    /// Reads the table; one or two microseconds.
    pub fn find(&self, pc: u64) -> Result<Found, Missing> {
        self.read(self.search(pc)?, pc)
    }

    /// Whether an entry begins at a pc.
    ///
    /// # Signal safety
    /// Reads the table; one or two microseconds.
    #[must_use]
    pub fn begins_at(&self, pc: u64) -> bool {
        let parse = |offset| {
            let cie = EhFrame::cie_from_offset;
            let section = self.section();
            section.fde_from_offset(&self.bases(), EhFrameOffset(offset), cie)
        };
        let entry = self.search(pc).ok().and_then(|offset| parse(offset).ok());
        entry.is_some_and(|entry| entry.initial_address() == pc)
    }

    /// The rule of a pc by the quick way, if its entry is usual: what lowering the row of
    /// [`EhFrameTable::find`] gives.
    ///
    /// # Signal safety
    /// Reads the table; a few hundred nanoseconds.
    #[must_use]
    pub fn usual_rule(&self, pc: u64) -> Option<Result<UnwindRule, Missing>> {
        usual::rule(
            self.segment,
            self.segment_address,
            self.search(pc).ok()?,
            pc,
        )
    }

    /// The rule of a pc: the quick way, else by gimli. `is_trampoline` tells whether the pc stands
    /// in a signal trampoline, and `code` reads the code at the pc, if that is where execution
    /// stands.
    ///
    /// # Errors
    /// [`Missing`].
    pub(crate) fn rule(
        &self,
        pc: u64,
        wide: &WideRows,
        memory: &mut StackMemory,
        is_trampoline: impl FnOnce(&mut StackMemory) -> bool,
        code: impl FnOnce(&mut StackMemory) -> Option<u64>,
    ) -> Result<UnwindRule, Missing> {
        let entry = self.search(pc)?;
        if let Some(rule) = usual::rule(self.segment, self.segment_address, entry, pc) {
            return rule;
        }
        let found = self.read(entry, pc)?;
        if found.is_signal_frame && is_trampoline(memory) {
            return Ok(UnwindRule::signal());
        }
        Ok(self.lower(&found, pc, wide, || code(memory)))
    }

    /// The row of a pc by the FDE at an offset into the segment.
    #[cold]
    fn read(&self, offset: usize, pc: u64) -> Result<Found, Missing> {
        let section = self.section();
        let bases = self.bases();
        let fde = section
            .fde_from_offset(&bases, EhFrameOffset(offset), EhFrame::cie_from_offset)
            .map_err(|_| Missing::BadTable)?;
        if !fde.contains(pc) {
            return Err(Missing::NoRow);
        }
        let state = execute(&section, &bases, &fde, pc)?;
        Ok(Found {
            state,
            is_signal_frame: fde.is_signal_trampoline(),
        })
    }

    fn section(&self) -> EhFrame<Bytes<'a>> {
        let mut section = EhFrame::new(self.segment, LittleEndian);
        section.set_address_size(8);
        if cfg!(target_arch = "aarch64") {
            section.set_vendor(gimli::Vendor::AArch64);
        }
        section
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default()
            .set_eh_frame(self.segment_address)
            .set_eh_frame_hdr(self.index_address)
    }

    /// The offset into the segment of the FDE that may cover a pc.
    fn search(&self, pc: u64) -> Result<usize, Missing> {
        let address = if self.index.starts_with(USUAL) {
            self.search_usual(pc)?
        } else {
            self.search_any(pc)?
        };
        let offset = address.checked_sub(self.segment_address);
        offset
            .and_then(|offset| usize::try_from(offset).ok())
            .ok_or(Missing::BadTable)
    }

    /// Search in pairs of 32-bit numbers relative to the index.
    fn search_usual(&self, pc: u64) -> Result<u64, Missing> {
        let hdr = self.index;
        let count = hdr.get(8..12).and_then(<[u8]>::first_chunk);
        let count = u32::from_le_bytes(*count.ok_or(Missing::BadTable)?) as usize;
        let (pairs, _) = hdr.get(12..).ok_or(Missing::BadTable)?.as_chunks::<8>();
        let pairs = pairs.get(..count).ok_or(Missing::BadTable)?;
        let wanted = pc.wrapping_sub(self.index_address) as i64;
        let (_, entry) = pair_of(last_up_to(pairs, wanted).ok_or(Missing::NoRow)?);
        Ok(self.index_address.wrapping_add_signed(i64::from(entry)))
    }

    /// The same for any encoding, by gimli.
    #[cold]
    fn search_any(&self, pc: u64) -> Result<u64, Missing> {
        let hdr = self.index;
        if !holds_its_count(hdr) {
            return Err(Missing::BadTable);
        }
        let bases = self.bases();
        let parsed = EhFrameHdr::new(hdr, LittleEndian)
            .parse(&bases, 8)
            .map_err(|_| Missing::BadTable)?;
        let table = parsed.table().ok_or(Missing::NoRow)?;
        let found = table.lookup(pc, &bases);
        found
            .and_then(gimli::Pointer::direct)
            .map_err(|_| Missing::BadTable)
    }

    /// The rule of a row that [`EhFrameTable::find`] gave for this pc; rows that a word does not
    /// hold go to `wide`. `code` reads the code at the pc, if that is where execution stands.
    ///
    /// # Signal safety
    /// Bounded.
    #[must_use]
    pub fn lower(
        &self,
        found: &Found,
        pc: u64,
        wide: &WideRows,
        code: impl FnOnce() -> Option<u64>,
    ) -> UnwindRule {
        let method = Method::EhFrame;
        if found.state.return_address() == Column::Undefined {
            return UnwindRule::root(method);
        }
        let row = if found.is_signal_frame {
            None
        } else {
            self.row(found, pc)
        };
        let Some(mut row) = row else {
            return UnwindRule::evaluate(method);
        };
        epilogue::mend(&mut row, code);
        UnwindRule::from_row(&row, method)
            .or_else(|| Some(UnwindRule::wide(method, wide.insert(&row)?)))
            .unwrap_or(UnwindRule::evaluate(method))
    }

    /// A row in our own words; none if it has expressions that these do not state.
    #[must_use]
    pub fn row(&self, found: &Found, pc: u64) -> Option<Row> {
        let cfa = match found.state.cfa {
            Base::Offset(register, offset) => Cfa::Offset {
                register: base_of(register)?,
                offset: i32::try_from(offset).ok()?,
            },
            Base::Expression(place) => match self.symbolic(place, pc, None)? {
                Value::Register(register, offset) => Cfa::Offset {
                    register: base_of(register.0.into())?,
                    offset: i32::try_from(offset).ok()?,
                },
                Value::Word(register, offset, add) => Cfa::Deref {
                    register: base_of(register.0.into())?,
                    offset: i32::try_from(offset).ok()?,
                    add: i32::try_from(add).ok()?,
                },
                Value::Number(_) | Value::Cfa => return None,
            },
        };
        let mut row = Row::new(cfa);
        let [slots @ .., stack_pointer, return_address] = found.state.columns;
        row.stack_pointer = self.saved(stack_pointer, pc)?;
        for (place, column) in row.saved.iter_mut().zip(slots) {
            *place = self.saved(column, pc)?;
        }
        row.return_address = match return_address {
            Column::Unspecified if RETURN_ADDRESS_ON_STACK => Saved::At(-8),
            column => self.saved(column, pc)?,
        };
        if !RETURN_ADDRESS_ON_STACK && row.return_address != Saved::Undefined {
            let [_, link, ..] = &mut row.saved;
            *link = row.return_address;
        }
        Some(row)
    }

    fn saved(&self, column: Column, pc: u64) -> Option<Saved> {
        Some(match column {
            Column::Unspecified | Column::Same => Saved::Same,
            Column::Undefined => Saved::Undefined,
            Column::At(offset) => Saved::At(offset),
            Column::ValueAt(offset) => Saved::ValueAt(offset),
            Column::Register(register) => Saved::InRegister(base_of(register)?),
            Column::Expression(place) => match self.symbolic(place, pc, Some(Value::Cfa))? {
                Value::Register(register, offset) => Saved::AtRegister {
                    register: base_of(register.0.into())?,
                    offset: i32::try_from(offset).ok()?,
                },
                _ => return None,
            },
            Column::ValueExpression(_) => return None,
        })
    }

    /// What an expression is, with registers as symbols.
    fn symbolic(&self, place: Place, pc: u64, initial: Option<Value>) -> Option<Value> {
        let bytes = place.bytes(Bytes::new(self.segment, LittleEndian))?;
        let mut machine = Machine { pc, frame: None };
        machine.evaluate(bytes, initial).ok()
    }

    /// Takes the cursor to the caller by a row with expressions that no rule states.
    ///
    /// # Errors
    /// As [`Row::apply`], and [`StopReason::Root`] for an undefined return address.
    ///
    /// # Signal safety
    /// Bounded; loads through `memory` only.
    pub fn step(
        &self,
        found: &Found,
        cursor: &mut Cursor,
        memory: &mut StackMemory,
    ) -> Result<(), StopReason> {
        let cfa = match found.state.cfa {
            Base::Offset(register, offset) => {
                let register = base_of(register).ok_or(StopReason::BadTable)?;
                let base = cursor.get(register).ok_or(StopReason::MissingRegister)?;
                base.wrapping_add_signed(offset)
            }
            Base::Expression(place) => self.number(place, None, cursor, memory)?,
        };
        let mut slots = cursor.slots();
        let mut valid = cursor.valid();
        let [columns @ .., stack_pointer, return_address] = found.state.columns;
        let sp = match self.column(stack_pointer, cfa, cursor, memory)? {
            Recovered::Value(sp) => sp,
            Recovered::Unchanged => cfa,
            Recovered::Lost => return Err(StopReason::MissingRegister),
        };
        for ((place, register), column) in slots.iter_mut().zip(SLOTS).zip(columns) {
            match self.column(column, cfa, cursor, memory)? {
                Recovered::Unchanged => {}
                Recovered::Lost => valid &= !register.bit(),
                Recovered::Value(value) => {
                    *place = value;
                    valid |= register.bit();
                }
            }
        }
        let return_address = match return_address {
            Column::Unspecified if RETURN_ADDRESS_ON_STACK => Column::At(-8),
            column => column,
        };
        match self.column(return_address, cfa, cursor, memory)? {
            Recovered::Value(pc) => {
                if !found.is_signal_frame {
                    check_advance(cursor, sp)?;
                }
                cursor.become_caller(strip(pc), sp, &slots, valid);
                cursor.set_exact(found.is_signal_frame);
                Ok(())
            }
            Recovered::Lost => Err(StopReason::Root),
            Recovered::Unchanged => Err(StopReason::BadTable),
        }
    }

    fn column(
        &self,
        column: Column,
        cfa: u64,
        cursor: &Cursor,
        memory: &mut StackMemory,
    ) -> Result<Recovered, StopReason> {
        match column {
            Column::Expression(place) => {
                let address = self.number(place, Some(cfa), cursor, memory)?;
                let value = memory.load(address).ok_or(StopReason::UnreadableStack)?;
                Ok(Recovered::Value(value))
            }
            Column::ValueExpression(place) => {
                let value = self.number(place, Some(cfa), cursor, memory)?;
                Ok(Recovered::Value(value))
            }
            simple => {
                let saved = self.saved(simple, 0).ok_or(StopReason::BadTable)?;
                saved.value(cfa, cursor, memory)
            }
        }
    }

    fn number(
        &self,
        place: Place,
        initial: Option<u64>,
        cursor: &Cursor,
        memory: &mut StackMemory,
    ) -> Result<u64, StopReason> {
        let bytes = place
            .bytes(Bytes::new(self.segment, LittleEndian))
            .ok_or(StopReason::BadTable)?;
        let mut machine = Machine {
            pc: cursor.pc(),
            frame: Some((cursor, memory)),
        };
        match machine.evaluate(bytes, initial.map(Value::Number))? {
            Value::Number(number) => Ok(number),
            _ => Err(StopReason::BadTable),
        }
    }
}

impl State {
    pub(crate) const fn return_address(&self) -> Column {
        let [.., column] = self.columns;
        column
    }
}

fn execute(
    section: &EhFrame<Bytes<'_>>,
    bases: &BaseAddresses,
    fde: &FrameDescriptionEntry<Bytes<'_>>,
    pc: u64,
) -> Result<State, Missing> {
    let cie = fde.cie();
    let program = Program::new(
        fde.initial_address(),
        pc,
        cie.code_alignment_factor(),
        cie.data_alignment_factor(),
    );
    program
        .run(
            cie.instructions(section, bases),
            fde.instructions(section, bases),
        )
        .map_err(|_| Missing::BadTable)
}

/// Whether an index is as long as its number of pairs says: gimli does not look before it
/// multiplies.
fn holds_its_count(hdr: &[u8]) -> bool {
    let [Some(pointer), Some(count), Some(pair)] =
        [1, 2, 3].map(|at| hdr.get(at).and_then(|encoding| size_of_encoding(*encoding)))
    else {
        return false;
    };
    let at = pointer.wrapping_add(4);
    let number = hdr.get(at..).and_then(|rest| match count {
        4 => Some(u64::from(u32::from_le_bytes(*rest.first_chunk()?))),
        8 => Some(u64::from_le_bytes(*rest.first_chunk()?)),
        _ => None,
    });
    let room = hdr.len().saturating_sub(at.wrapping_add(count)) as u64;
    let bytes = number.and_then(|number| number.checked_mul(2)?.checked_mul(pair as u64));
    bytes.is_some_and(|bytes| bytes <= room)
}

/// The bytes of an encoded pointer, if that is a fixed number.
const fn size_of_encoding(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x03 | 0x0b => Some(4),
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        _ => None,
    }
}

/// The last pair whose first number is no greater than `wanted`. Three pairs are read at a time, so
/// that the processor waits for memory half as often as in a binary search.
fn last_up_to(pairs: &[[u8; 8]], wanted: i64) -> Option<&[u8; 8]> {
    let counts = |at: usize| {
        let pair = pairs.get(at);
        usize::from(pair.is_some_and(|pair| i64::from(pair_of(pair).0) <= wanted))
    };
    let (mut first, mut length) = (0usize, pairs.len());
    while length >= 4 {
        let quarter = length >> 2;
        let [one, two, three] = [1, 2, 3].map(|n| first.wrapping_add(quarter.wrapping_mul(n)));
        let quarters = counts(one)
            .wrapping_add(counts(two))
            .wrapping_add(counts(three));
        let skip = quarter.wrapping_mul(quarters);
        first = first.wrapping_add(skip);
        let last = length.wrapping_sub(skip);
        length = select_unpredictable(quarters == 3, last, quarter);
    }
    let [one, two] = [1, 2].map(|n| first.wrapping_add(n));
    let more = match length {
        3 => counts(one).wrapping_add(counts(two)),
        2 => counts(one),
        _ => 0,
    };
    (counts(first) != 0).then_some(())?;
    pairs.get(first.wrapping_add(more))
}

#[inline]
pub(super) fn pair_of(bytes: &[u8; 8]) -> (i32, i32) {
    let word = u64::from_le_bytes(*bytes);
    (word as i32, (word >> 32) as i32)
}
