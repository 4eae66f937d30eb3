//! Reads the names of a batch of addresses from one ELF file, with blazesym: symbol table, DWARF, inlined functions, debug links.
//!
//! Not here: which file it is (`images`).

use super::Named;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Reason, Sym, Symbolized, Symbolizer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A reader for one thread of ours.
pub(super) fn symbolizer(debug_directories: &[PathBuf]) -> Symbolizer {
    Symbolizer::builder()
        .enable_auto_reload(false)
        .set_debug_dirs(Some(debug_directories))
        .build()
}

/// The functions at each address, innermost first; none if it has no symbol. Addresses are the file's own.
///
/// # Errors
/// A sentence, if the file cannot be read at all.
pub(super) fn names(
    symbolizer: &Symbolizer,
    file: &Path,
    addresses: &[u64],
) -> Result<Vec<Vec<Named>>, String> {
    let read = |debug_syms| {
        let mut elf = Elf::new(file);
        elf.debug_syms = debug_syms;
        symbolizer.symbolize(&Source::Elf(elf), Input::VirtOffset(addresses))
    };
    // Damaged or unknown DWARF must not hide the symbol table.
    let found = read(true).or_else(|_| read(false));
    let found = found.map_err(|error| format!("{}: {error}", file.display()))?;
    let mut all: Vec<Vec<Named>> = found.iter().map(named).collect();
    let unqualified = |named: &Vec<Named>| named.last().is_some_and(is_unqualified);
    let slots: Vec<usize> = (0..all.len())
        .filter(|slot| unqualified(&all[*slot]))
        .collect();
    let addresses: Vec<u64> = slots.iter().map(|slot| addresses[*slot]).collect();
    let mut elf = Elf::new(file);
    elf.debug_syms = false;
    let symbols = symbolizer.symbolize(&Source::Elf(elf), Input::VirtOffset(&addresses));
    for (slot, symbol) in slots.into_iter().zip(symbols.iter().flatten()) {
        if let (Some(outer), Some(symbol)) = (all[slot].last_mut(), symbol.as_sym()) {
            qualify(outer, &symbol.name);
        }
    }
    Ok(all)
}

/// DWARF that has only line tables calls a function by its last name.
fn is_unqualified(outer: &Named) -> bool {
    outer.file.is_some() && !outer.function.contains("::")
}

/// Takes the symbol table's name if it is the same one in full.
fn qualify(outer: &mut Named, symbol: &str) {
    let ending = symbol.strip_suffix(&*outer.function);
    if ending.is_some_and(|path| path.ends_with("::")) {
        outer.function = Arc::from(symbol);
    }
}

fn named(found: &Symbolized<'_>) -> Vec<Named> {
    match found {
        Symbolized::Sym(symbol) => functions(symbol),
        Symbolized::Unknown(Reason::Unmapped | _) => Vec::new(),
    }
}

fn functions(symbol: &Sym<'_>) -> Vec<Named> {
    let location = |info: Option<&blazesym::symbolize::CodeInfo<'_>>| match info {
        Some(info) => (
            Some(Arc::from(info.to_path().to_string_lossy())),
            info.line.unwrap_or(0),
        ),
        None => (None, 0),
    };
    let inlined = symbol.inlined.iter().rev().map(|function| {
        let (file, line) = location(function.code_info.as_ref());
        Named {
            function: Arc::from(&*function.name),
            file,
            line,
            inlined: true,
            start: None,
        }
    });
    let (file, line) = location(symbol.code_info.as_deref());
    let outer = Named {
        function: Arc::from(&*symbol.name),
        file,
        line,
        inlined: false,
        start: Some(symbol.addr),
    };
    inlined.chain([outer]).collect()
}
