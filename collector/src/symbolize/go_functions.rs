//! Names the functions of Go programs that were stripped of their symbols, by the table of Go's own
//! runtime ([`super::go_table`]).

use super::Named;
use super::go_table::{BEGINNING, GoTable};
use crate::binary;
use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::sync::Arc;

/// Where the table is: in a section of its own, or, where the address of a program that has C in it
/// is not fixed, within one that the C linker has made of several.
const SECTIONS: [&str; 3] = [".gopclntab", ".data.rel.ro.gopclntab", ".data.rel.ro"];
/// What the table's address is a multiple of.
const ALIGNMENT: usize = 8;

/// Names `unnamed`, addresses without a symbol, as far as they are in functions of Go. Gives
/// whether the binary has any.
pub(super) fn name<'a, 'e>(
    elf: &impl Object<'e>,
    unnamed: impl Iterator<Item = (&'a u64, &'a mut Vec<Named>)>,
) -> bool {
    let section = SECTIONS.iter().find_map(|name| elf.section_by_name(name));
    let Some(bytes) = section.and_then(|section| binary::content(&section)) else {
        return false;
    };
    let Some(table) = anywhere(&bytes).or_else(|| without_text(elf, &bytes)) else {
        return false;
    };
    let mut known: HashMap<u64, Arc<str>> = HashMap::new();
    for (address, names) in unnamed {
        let Some(function) = table.find(*address) else {
            continue;
        };
        let name = known.entry(function.start);
        *names = vec![Named {
            start: Some(function.start),
            ..Named::only(name.or_insert_with(|| function.name.into()).clone())
        }];
    }
    true
}

/// The first table in a section. Most have none, and are large: what a table cannot begin with is
/// passed over.
fn anywhere(bytes: &[u8]) -> Option<GoTable<'_>> {
    let words = bytes.chunks_exact(ALIGNMENT).enumerate();
    let may_begin = words.filter(|(_, word)| word[1..6] == BEGINNING);
    let mut tables = may_begin.filter_map(|(number, _)| bytes.get(number * ALIGNMENT..));
    tables.find_map(|rest| GoTable::parse(rest, None))
}

/// A table that does not say where Go's code begins. It is the beginning of all code, if Go's
/// linker has made the program: then a function of Go's begins where the program is entered.
fn without_text<'a, 'e>(elf: &impl Object<'e>, bytes: &'a [u8]) -> Option<GoTable<'a>> {
    let text = elf.section_by_name(".text")?.address();
    let table = GoTable::parse(bytes, Some(text))?;
    let entered = table.find(elf.entry())?;
    (entered.start == elf.entry()).then_some(table)
}
