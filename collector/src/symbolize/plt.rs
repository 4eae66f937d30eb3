//! Names of the stubs through which a binary calls functions of others: `memcmp@plt`. They have no
//! symbols. Each jumps to where a slot of the global offset table points to, and a relocation of
//! that slot names the function.
//!
//! ```text
//! [endbr64]  ff 25 <distance>       jmp *distance(%rip)
//! ```

use super::Named;
use crate::binary;
use crate::intern::{HashMap, HashSet};
use object::{
    Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SymbolIndex,
};
use std::ops::Range;
use std::sync::Arc;

/// The sections that they are in, and how many bytes each takes.
const SECTIONS: [(&str, usize); 3] = [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)];
/// An indirect jump, relative to what comes behind it.
const JUMP: [u8; 2] = [0xff, 0x25];
/// Bytes of it.
const JUMP_LENGTH: usize = 6;
/// Bytes before it, at most: endbr64, and a prefix.
const MOST_BEFORE: usize = 5;

/// The stubs of a binary.
#[derive(Debug)]
pub(super) struct Stubs {
    /// First address of each section, one past the last, and bytes of a stub.
    sections: Vec<(u64, u64, u64)>,
    names: HashMap<u64, Arc<str>>,
}

/// The sections that stubs are in, from where to where each is, and how many bytes each stub takes.
pub(super) fn sections<'a, 'e: 'a, O: Object<'e>>(
    elf: &'a O,
) -> Vec<(O::Section<'a>, Range<u64>, usize)> {
    let found = SECTIONS.iter().filter_map(|(name, size)| {
        let section = elf.section_by_name(name)?;
        let range = section.address()..section.address().checked_add(section.size())?;
        Some((section, range, *size))
    });
    found.collect()
}

impl Stubs {
    /// Those of a binary that addresses are in, or all; none if it is of another architecture than
    /// x86-64, or none of the addresses is in one.
    pub(super) fn of<'e>(elf: &impl Object<'e>, addresses: &[u64], all: bool) -> Option<Self> {
        if elf.architecture() != object::Architecture::X86_64 {
            return None;
        }
        let is_asked_for = |from: u64, to: u64| addresses.iter().any(|at| (from..to).contains(at));
        let found = sections(elf);
        if !(found.iter()).any(|(_, range, _)| is_asked_for(range.start, range.end)) {
            return None;
        }
        if all {
            binary::hold_names(elf);
        }
        let (mut sections, mut jumps) = (Vec::new(), Vec::new());
        for (section, Range { start, end }, size) in found {
            if !(all || is_asked_for(start, end)) {
                continue;
            }
            // Of older linkers those of 16 bytes are in the section of others, too.
            let size = match usize::try_from(section.align()) {
                Ok(16) => 16,
                _ => size,
            };
            let stubs = section.data().unwrap_or_default().chunks_exact(size);
            let stubs = stubs.zip((start..).step_by(size));
            let is_meant =
                |place: u64| all || is_asked_for(place, place.saturating_add(size as u64));
            let stubs = stubs.filter(|(_, place)| is_meant(*place));
            jumps.extend(stubs.filter_map(|(stub, place)| Some((slot(stub, place)?, place))));
            sections.push((start, end, size as u64));
        }
        let wanted = jumps.iter().map(|(slot, _)| *slot).collect();
        let mut slots = slots_of_calls(elf, &wanted);
        // Looking at all relocations takes long in large binaries.
        if slots.len() < wanted.len() {
            slots = all_slots(elf, &wanted);
        }
        let name = |(slot, place)| Some((place, Arc::from(format!("{}@plt", slots.get(&slot)?))));
        let names = jumps.into_iter().filter_map(name).collect();
        Some(Self { sections, names })
    }

    /// About how much memory they take, bytes.
    pub(super) fn size(&self) -> usize {
        let names = self.names.values();
        names.map(|name| name.len() + 4 * size_of::<u64>()).sum()
    }

    /// What is at an address; `None` if that is no stub. The code that they share for binding
    /// functions late has the section's name.
    pub(super) fn find(&self, address: u64) -> Option<Named> {
        let within = |(start, end, _): &&(u64, u64, u64)| (*start..*end).contains(&address);
        let (start, _, size) = self.sections.iter().find(within)?;
        let place = start + (address - start) / size * size;
        let named = self.names.get(&place);
        let (name, place) =
            named.map_or_else(|| (Arc::from(".plt"), *start), |name| (name.clone(), place));
        Some(Named {
            start: Some(place),
            ..Named::only(name)
        })
    }
}

/// The slot that a stub at `place` jumps by.
fn slot(stub: &[u8], place: u64) -> Option<u64> {
    let jumps = stub.windows(JUMP_LENGTH).take(MOST_BEFORE + 1);
    let (before, jump) = jumps
        .enumerate()
        .find(|(_, code)| code.starts_with(&JUMP))?;
    let distance = i32::from_le_bytes(*jump.last_chunk()?);
    let behind = place + (before + JUMP_LENGTH) as u64;
    Some(behind.wrapping_add_signed(i64::from(distance)))
}

/// Whether what a slot is filled with is chosen when the program runs.
fn is_chosen(relocation: &object::Relocation) -> bool {
    let chosen = object::elf::R_X86_64_IRELATIVE;
    matches!(relocation.flags(), object::RelocationFlags::Elf { r_type } if r_type == chosen)
}

/// Bytes of a relocation: where, what, and what is to be added.
const RELOCATION: usize = 24;

/// The names of the functions that slots are filled with when they are called for the first time.
fn slots_of_calls<'e>(elf: &impl Object<'e>, wanted: &HashSet<u64>) -> HashMap<u64, String> {
    let section = elf.section_by_name(".rela.plt");
    let bytes = section.and_then(|section| section.data().ok());
    let relocations = bytes.unwrap_or_default().chunks_exact(RELOCATION);
    let symbols = elf.dynamic_symbol_table();
    let word = |bytes: &[u8]| Some(u64::from_le_bytes(*bytes.first_chunk()?));
    let named = relocations.filter_map(|relocation| {
        let (slot, what) = (word(relocation)?, word(&relocation[8..])?);
        let index = usize::try_from(what >> 32).ok();
        let index = index.filter(|index| *index > 0 && wanted.contains(&slot))?;
        Some((slot, name_of(symbols.as_ref(), SymbolIndex(index))?))
    });
    named.collect()
}

/// What the function of a symbol is called.
fn name_of<'e>(symbols: Option<&impl ObjectSymbolTable<'e>>, index: SymbolIndex) -> Option<String> {
    let symbol = symbols?.symbol_by_index(index).ok()?;
    let name = symbol.name().ok()?;
    Some(super::demangle::name(name).to_string())
}

/// The names of the functions that slots are filled with.
fn all_slots<'e>(elf: &impl Object<'e>, wanted: &HashSet<u64>) -> HashMap<u64, String> {
    let symbols = elf.dynamic_symbol_table();
    let mut named = HashMap::default();
    let mut chosen = Vec::new();
    let relocations = elf.dynamic_relocations().into_iter().flatten();
    for (slot, relocation) in relocations.filter(|(slot, _)| wanted.contains(slot)) {
        match relocation.target() {
            RelocationTarget::Symbol(index) => {
                if let Some(name) = name_of(symbols.as_ref(), index) {
                    named.insert(slot, name);
                }
            }
            // By the binary's own function that chooses one (an ifunc), whose symbol has the name.
            _ if is_chosen(&relocation) => chosen.push((relocation.addend().cast_unsigned(), slot)),
            _ => {}
        }
    }
    chosen.sort_unstable();
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        let first = chosen.partition_point(|(at, _)| *at < symbol.address());
        for (_, slot) in chosen[first..]
            .iter()
            .take_while(|(at, _)| *at == symbol.address())
        {
            if let Ok(name) = symbol.name() {
                named.entry(*slot).or_insert_with(|| name.to_owned());
            }
        }
    }
    named
}
