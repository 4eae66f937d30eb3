//! Reads the names of a batch of addresses from one ELF file, with blazesym: symbol table, DWARF,
//! inlined functions, debug links.
//!
//! Not here: which file it is (`images`).

use super::{Named, demangle, scope, short};
use crate::intern::HashMap;
use crate::visible::Shown;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A reader for one thread of ours.
pub(super) fn symbolizer(debug_directories: &[PathBuf]) -> Symbolizer {
    Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_demangling(false)
        .set_debug_dirs(Some(debug_directories))
        .build()
}

/// Names and paths that were met in a file, each held once.
#[derive(Debug, Default)]
pub(super) struct Met {
    /// Whether it has debug information.
    debug: bool,
    names: HashMap<String, (Arc<str>, Option<Arc<str>>)>,
    files: HashMap<PathBuf, Arc<str>>,
}

/// The functions at each address, innermost first; none if it has no symbol. Addresses are the
/// file's own.
///
/// # Errors
/// A sentence, if the file cannot be read at all.
pub(super) fn names(
    symbolizer: &Symbolizer,
    file: &Path,
    addresses: &[u64],
    met: &mut Met,
) -> Result<Vec<Vec<Named>>, String> {
    let read = |debug_syms| {
        let mut elf = Elf::new(file);
        elf.debug_syms = debug_syms;
        symbolizer.symbolize(&Source::Elf(elf), Input::VirtOffset(addresses))
    };
    let failed = |error| format!("{}: {error}", file.shown());
    let symbols = read(false).map_err(failed)?;
    // Damaged or unknown DWARF must not hide the symbol table.
    let found = met.debug.then(|| read(true).ok()).flatten();
    let Some(found) = found else {
        return Ok(symbols
            .iter()
            .map(|found| met.functions(found, None))
            .collect());
    };
    let both = found.iter().zip(&symbols);
    let mut all: Vec<Vec<Named>> = both
        .map(|(found, symbol)| met.functions(found, symbol.as_sym()))
        .collect();
    let scopes = scopes(file, addresses, &found, &symbols);
    for (address, named) in addresses.iter().zip(&mut all) {
        if let Some(scopes) = scopes.get(address) {
            met.qualify(named, scopes);
        }
    }
    Ok(all)
}

/// Where functions have only their last name, the whole ones, as far as they are known.
fn scopes(
    file: &Path,
    addresses: &[u64],
    found: &[Symbolized<'_>],
    symbols: &[Symbolized<'_>],
) -> HashMap<u64, Vec<Option<String>>> {
    let lacks = |(symbol, whole): (&Sym<'_>, Option<&Sym<'_>>)| {
        let outer = whole.is_none().then_some(&symbol.name);
        let mut names = symbol
            .inlined
            .iter()
            .map(|inlined| &inlined.name)
            .chain(outer);
        names.any(|name| !demangle::is_mangled(name))
    };
    let of_symbols = found.iter().zip(symbols);
    let symbols = of_symbols.map(|(symbol, whole)| Some((symbol.as_sym()?, whole.as_sym())));
    let lacking = symbols
        .zip(addresses)
        .filter(|(symbol, _)| symbol.is_some_and(lacks));
    let mut addresses: Vec<u64> = lacking.map(|(_, address)| *address).collect();
    addresses.sort_unstable();
    scope::names(file, &addresses)
}

impl Met {
    pub(super) fn of(debug: bool) -> Self {
        Self {
            debug,
            ..Self::default()
        }
    }

    /// The functions that were found; `symbol`: what the symbol table has there.
    fn functions(&mut self, found: &Symbolized<'_>, symbol: Option<&Sym<'_>>) -> Vec<Named> {
        let Symbolized::Sym(debug) = found else {
            return Vec::new();
        };
        let mut made = Vec::with_capacity(debug.inlined.len() + 1);
        for inlined in debug.inlined.iter().rev() {
            let named = self.named(&inlined.name, inlined.code_info.as_ref());
            made.push(Named {
                inlined: true,
                ..named
            });
        }
        let whole = symbol.filter(|symbol| says_more(symbol, debug));
        let outer = whole.unwrap_or(debug);
        let named = self.named(&outer.name, debug.code_info.as_deref());
        made.push(Named {
            start: Some(outer.addr),
            ..named
        });
        made
    }

    fn named(&mut self, symbol: &str, place: Option<&CodeInfo<'_>>) -> Named {
        let (function, short) = self.name(symbol);
        let mut named = Named {
            short,
            ..Named::only(function)
        };
        if let Some(place) = place {
            let path = place.to_path();
            let known = self.files.get(&*path).cloned();
            let file = known.unwrap_or_else(|| {
                let file: Arc<str> = Arc::from(path.to_string_lossy());
                self.files.insert(path.into_owned(), file.clone());
                file
            });
            (named.file, named.line) = (Some(file), place.line.unwrap_or(0));
        }
        named
    }

    /// A function of which only the symbol is known, and where it begins.
    pub(super) fn by_symbol(&mut self, symbol: &str, start: u64) -> Named {
        Named {
            start: Some(start),
            ..self.named(symbol, None)
        }
    }

    fn name(&mut self, symbol: &str) -> (Arc<str>, Option<Arc<str>>) {
        if let Some(known) = self.names.get(symbol) {
            return known.clone();
        }
        let name = demangle::name(symbol);
        // Debug information has names with template arguments, too.
        let has_more = demangle::is_mangled(symbol) || symbol.contains('<');
        let short = if has_more { short::short(&name) } else { None };
        self.names
            .insert(symbol.to_owned(), (name.clone(), short.clone()));
        (name, short)
    }

    /// Gives functions the scopes of their declarations, if these are of the same name.
    fn qualify(&mut self, named: &mut [Named], scopes: &[Option<String>]) {
        if named.len() != scopes.len() {
            return;
        }
        for (named, whole) in named.iter_mut().zip(scopes) {
            let ends_alike = |whole: &&String| {
                whole
                    .strip_suffix(&*named.function)
                    .is_some_and(|scope| scope.ends_with("::"))
            };
            if let Some(whole) = whole.as_ref().filter(ends_alike) {
                (named.function, named.short) = self.name(whole);
            }
        }
    }
}

/// Whether a symbol has more of a function's name than debug information, which may have its last
/// part only, and has one name for all of the function's parts.
fn says_more(symbol: &Sym<'_>, debug: &Sym<'_>) -> bool {
    let is_part = || {
        let rest = symbol.name.strip_prefix(&*debug.name);
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    symbol.size.is_some() && (demangle::is_mangled(&symbol.name) || is_part())
}
