//! The scopes of functions that were inlined: namespaces, classes and functions around their
//! declarations, from DWARF. A function that other files cannot see has only its last name there (a
//! lambda is `operator()`); what it stands in is a matter of the tree.
//!
//! ```text
//! DW_TAG_namespace ns
//!   DW_TAG_structure_type Map
//!     DW_TAG_subprogram each           <- declared here: ns::Map::each
//! DW_TAG_subprogram                    main
//!   DW_TAG_inlined_subroutine          DW_AT_abstract_origin, DW_AT_specification: the declaration
//! ```
//!
//! Only the units are gone through in which there is such a function at one of the addresses.
//!
//! Not here: which functions are at an address, and their lines (`elf`).

use super::demangle;
use crate::binary::{self, Binary};
use crate::intern::HashMap;
use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry as Entry, Dwarf, DwarfSections,
    EndianSlice, LittleEndian, SectionId, Unit, UnitHeader, UnitOffset, UnitRef,
};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::path::Path;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// How many declarations refer to one another, and stand in one another, at most.
const DEEPEST: usize = 64;
/// Larger debug information is left alone, bytes: it would have to be read whole.
const LARGEST: u64 = 1 << 30;

/// A type without a name; if it can be called, it is a lambda's.
const UNNAMED: &str = "{unnamed type}";

/// The names, with scopes, of the functions at each address, innermost first; `None` for those
/// whose declaration cannot be found. Addresses are sorted. Those in units without such information
/// are missing.
pub(super) fn names(file: &Path, addresses: &[u64]) -> HashMap<u64, Vec<Option<String>>> {
    let mut found = HashMap::default();
    // What can be read of it is better than nothing.
    let _ = look(file, addresses, &mut found);
    found
}

fn look(
    file: &Path,
    addresses: &[u64],
    found: &mut HashMap<u64, Vec<Option<String>>>,
) -> Option<()> {
    if addresses.is_empty() {
        return None;
    }
    let data = Binary::open(file).ok()?;
    let elf = object::File::parse(&data).ok()?;
    let size = elf.section_by_name(".debug_info")?.size();
    if size > LARGEST || !elf.is_little_endian() {
        return None;
    }
    let sections = DwarfSections::load(|id| -> Result<Cow<'_, [u8]>, gimli::Error> {
        let section = elf.section_by_name(id.name()).filter(|_| is_needed(id));
        let bytes = section.and_then(|section| binary::content(&section));
        Ok(bytes.unwrap_or_default())
    });
    let sections = sections.ok()?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut tree = Tree::new(&dwarf);
    for unit in 0..tree.headers.len() {
        for (address, functions) in tree.functions_at(unit, addresses).unwrap_or_default() {
            let functions = functions.into_iter().rev();
            let names = functions.map(|offset| tree.name(unit, offset, DEEPEST));
            let names: Vec<_> = names.collect();
            found.insert(address, names);
        }
    }
    Some(())
}

/// Whether scopes are looked for in a section: not in those that say where variables are.
const fn is_needed(section: SectionId) -> bool {
    use SectionId::{DebugAranges, DebugLoc, DebugLocLists, DebugMacinfo, DebugMacro};
    !matches!(
        section,
        DebugAranges | DebugLoc | DebugLocLists | DebugMacinfo | DebugMacro
    )
}

/// All units.
struct Tree<'a> {
    dwarf: &'a Dwarf<Bytes<'a>>,
    /// By offset.
    headers: Vec<(usize, UnitHeader<Bytes<'a>>)>,
    open: HashMap<usize, Option<Open<'a>>>,
}

/// A unit that is looked into.
struct Open<'a> {
    unit: Unit<Bytes<'a>>,
    /// For each entry that functions can stand in, and each function, the one around it; by offset.
    parents: Vec<(usize, Option<usize>)>,
}

impl<'a> Tree<'a> {
    fn new(dwarf: &'a Dwarf<Bytes<'a>>) -> Self {
        let (mut headers, mut units) = (Vec::new(), dwarf.units());
        while let Ok(Some(header)) = units.next() {
            if let Some(DebugInfoOffset(offset)) = header.offset().to_debug_info_offset(&header) {
                headers.push((offset, header));
            }
        }
        Self {
            dwarf,
            headers,
            open: HashMap::default(),
        }
    }

    /// Of those addresses that are in a unit the functions, outermost first.
    fn functions_at(
        &self,
        unit: usize,
        addresses: &[u64],
    ) -> Option<HashMap<u64, Vec<UnitOffset>>> {
        let unit = self.dwarf.unit(self.headers[unit].1).ok()?;
        let unit = UnitRef::new(self.dwarf, &unit);
        let mut within = false;
        let mut ranges = unit.unit_ranges().ok()?;
        while let Ok(Some(range)) = ranges.next() {
            within |= !between(addresses, range).is_empty();
        }
        if !within || !has_scopes(&unit) {
            return None;
        }
        let mut found: HashMap<u64, Vec<UnitOffset>> = HashMap::default();
        let mut entries = unit.entries();
        // Nothing below that depth has an address that is looked for.
        let mut barren = isize::MAX;
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.depth() <= barren {
                barren = isize::MAX;
            }
            let is_function = entry.tag() == gimli::DW_TAG_subprogram;
            if barren != isize::MAX
                || !is_function && entry.tag() != gimli::DW_TAG_inlined_subroutine
            {
                continue;
            }
            let mut any = false;
            let mut ranges = unit.die_ranges(entry).ok()?;
            while let Ok(Some(range)) = ranges.next() {
                for address in between(addresses, range) {
                    any = true;
                    found.entry(*address).or_default().push(entry.offset());
                }
            }
            if !any && has_code(entry) {
                barren = entry.depth();
            }
        }
        Some(found)
    }

    fn open(&mut self, unit: usize) -> Option<&Open<'a>> {
        let (dwarf, headers) = (self.dwarf, &self.headers);
        let open = self.open.entry(unit).or_insert_with(|| {
            let unit = dwarf.unit(headers[unit].1).ok()?;
            let parents = parents(&unit);
            Some(Open { unit, parents })
        });
        open.as_ref()
    }

    /// The name of what an entry declares or refers to, with its scope.
    fn name(&mut self, unit: usize, offset: UnitOffset, depth: usize) -> Option<String> {
        let dwarf = self.dwarf;
        let open = self.open(unit)?;
        let entry = open.unit.entry(offset).ok()?;
        let place = open
            .parents
            .binary_search_by_key(&offset.0, |(offset, _)| *offset);
        let parent = place.ok().and_then(|place| open.parents[place].1);
        let text = |attribute| {
            let value = entry.attr_value(attribute)?;
            let text = dwarf.attr_string(&open.unit, value).ok()?;
            Some(text.to_string_lossy().into_owned())
        };
        let linkage =
            text(gimli::DW_AT_linkage_name).or_else(|| text(gimli::DW_AT_MIPS_linkage_name));
        if let Some(linkage) = linkage {
            return Some(demangle::name(&linkage).to_string());
        }
        let own = text(gimli::DW_AT_name);
        let other = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification];
        let other = other
            .into_iter()
            .find_map(|attribute| entry.attr_value(attribute));
        let tag = entry.tag();
        let depth = depth.checked_sub(1)?;
        if let Some(other) = other {
            let (unit, offset) = self.referred(unit, other)?;
            return self.name(unit, offset, depth);
        }
        let own = match tag {
            gimli::DW_TAG_namespace => own.unwrap_or_else(|| "(anonymous namespace)".to_owned()),
            gimli::DW_TAG_subprogram => own?,
            // gcc's name of a lambda's type is `<lambda(int)>`.
            _ => match own.as_deref().map(|own| (own.strip_prefix('<'), own)) {
                Some((Some(lambda), _)) => {
                    format!("{{{}}}", lambda.strip_suffix('>').unwrap_or(lambda))
                }
                Some((None, own)) => own.to_owned(),
                None => UNNAMED.to_owned(),
            },
        };
        match parent.and_then(|parent| self.name(unit, UnitOffset(parent), depth)) {
            Some(scope) => match scope.strip_suffix(UNNAMED).filter(|_| own == "operator()") {
                Some(around) => Some(format!("{around}{{lambda}}::{own}")),
                None => Some(format!("{scope}::{own}")),
            },
            None => Some(own),
        }
    }

    fn referred(
        &self,
        unit: usize,
        value: AttributeValue<Bytes<'a>>,
    ) -> Option<(usize, UnitOffset)> {
        match value {
            AttributeValue::UnitRef(offset) => Some((unit, offset)),
            AttributeValue::DebugInfoRef(offset) => {
                let behind = self
                    .headers
                    .partition_point(|(start, _)| *start <= offset.0);
                let unit = behind.checked_sub(1)?;
                Some((unit, offset.to_unit_offset(&self.headers[unit].1)?))
            }
            _ => None,
        }
    }
}

/// Whether a unit's language has scopes.
fn has_scopes(unit: &Unit<Bytes<'_>>) -> bool {
    let mut entries = unit.entries();
    let root = entries.next_dfs().ok().flatten();
    let language = root.and_then(|root| root.attr_value(gimli::DW_AT_language));
    let flat = [
        gimli::DW_LANG_C,
        gimli::DW_LANG_C89,
        gimli::DW_LANG_C99,
        gimli::DW_LANG_C11,
        gimli::DW_LANG_C17,
        gimli::DW_LANG_Mips_Assembler,
        gimli::DW_LANG_Go,
    ];
    !matches!(language, Some(AttributeValue::Language(language)) if flat.contains(&language))
}

/// Whether it is not just a declaration.
fn has_code(entry: &Entry<Bytes<'_>>) -> bool {
    let attributes = [gimli::DW_AT_low_pc, gimli::DW_AT_ranges];
    attributes
        .iter()
        .any(|attribute| entry.attr(*attribute).is_some())
}

fn parents(unit: &Unit<Bytes<'_>>) -> Vec<(usize, Option<usize>)> {
    let (mut parents, mut around) = (Vec::new(), Vec::<(isize, usize)>::new());
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        let is_scope = matches!(
            entry.tag(),
            gimli::DW_TAG_namespace
                | gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_enumeration_type
                | gimli::DW_TAG_interface_type
                | gimli::DW_TAG_subprogram
        );
        if !is_scope {
            continue;
        }
        let depth = entry.depth();
        while around.last().is_some_and(|(above, _)| *above >= depth) {
            around.pop();
        }
        let offset = entry.offset().0;
        parents.push((offset, around.last().map(|(_, offset)| *offset)));
        around.push((depth, offset));
    }
    parents
}

/// The addresses in a range.
fn between(addresses: &[u64], range: gimli::Range) -> &[u64] {
    let first = addresses.partition_point(|address| *address < range.begin);
    let behind = addresses.partition_point(|address| *address < range.end);
    addresses.get(first..behind).unwrap_or_default()
}
