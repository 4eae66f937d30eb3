//! Functions by the symbol table alone, for further addresses of a binary of which others were
//! looked up before: that takes a hundredth of what debug information does. What is known of a
//! function already, such as its name there, holds for all of its addresses.
//!
//! Not here: lines, and functions that were inlined.

use super::Named;
use super::elf::Met;
use crate::binary::Binary;
use crate::intern::HashMap;
use crate::recording::names::Group;
use crate::visible::Shown;
use object::{Object, ObjectSymbol, SymbolKind};
use std::path::Path;

/// The function at each address; none if it has no symbol. Addresses are the file's own, and
/// sorted.
///
/// # Errors
/// A sentence, if the file cannot be read at all.
pub(super) fn names(
    file: &Path,
    addresses: &[u64],
    known: &Group,
    met: &mut Met,
) -> Result<Vec<Vec<Named>>, String> {
    let data = Binary::open(file).map_err(|error| format!("{}: {error}", file.shown()))?;
    let elf = object::File::parse(&data).map_err(|error| format!("{}: {error}", file.shown()))?;
    let outermost = known.places.iter().filter_map(|place| place.1.last());
    let known: HashMap<u64, &Named> = outermost
        .filter_map(|named| Some((named.start?, named)))
        .collect();
    let functions = functions(&elf, addresses).into_iter();
    let named = functions.map(|found| {
        let named = found.map(|(start, symbol)| match known.get(&start) {
            Some(known) => Named {
                line: 0,
                ..(*known).clone()
            },
            None => met.by_symbol(symbol, start),
        });
        named.into_iter().collect()
    });
    Ok(named.collect())
}

/// A function: where it begins, and its symbol.
type Function<'e> = (u64, &'e str);

fn functions<'e>(elf: &impl Object<'e>, addresses: &[u64]) -> Vec<Option<Function<'e>>> {
    let all = nearest(elf.symbols(), addresses, Unsized::ReachesOn);
    let dynamic = nearest(elf.dynamic_symbols(), addresses, Unsized::IsOneByte);
    let both = all.into_iter().zip(dynamic);
    both.map(|(found, dynamic)| found.or(dynamic)).collect()
}

/// What a symbol without a size is that of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unsized {
    /// All code up to the next one.
    ReachesOn,
    /// Its own address: of most functions there are no symbols here.
    IsOneByte,
}

/// For each address the symbol that begins last before it, if it reaches so far; the longest of
/// those that begin there.
fn nearest<'e, S: ObjectSymbol<'e>>(
    symbols: impl Iterator<Item = S>,
    addresses: &[u64],
    without_size: Unsized,
) -> Vec<Option<Function<'e>>> {
    // Of those that begin behind the address before it.
    let mut nearest: Vec<Option<S>> = addresses.iter().map(|_| None).collect();
    let rank = |symbol: &S| (symbol.address(), symbol.size());
    for symbol in symbols {
        let is_function = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
        if symbol.is_undefined() || !is_function {
            continue;
        }
        let first = addresses.partition_point(|address| *address < symbol.address());
        if let Some(place) = nearest.get_mut(first)
            && place.as_ref().is_none_or(|it| rank(it) < rank(&symbol))
        {
            *place = Some(symbol);
        }
    }
    let mut last = None;
    let of_each = nearest.iter().zip(addresses).map(|(symbol, address)| {
        last = symbol.as_ref().or(last);
        let symbol = last?;
        let within = match symbol.size() {
            0 => without_size == Unsized::ReachesOn || symbol.address() == *address,
            size => address - symbol.address() < size,
        };
        let name = symbol.name().ok().filter(|_| within)?;
        Some((symbol.address(), name))
    });
    of_each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Our own binary has some thousand functions.
    #[test]
    fn functions_are_those_that_the_symbolizer_finds() {
        let own = std::env::current_exe().unwrap();
        let data = Binary::open(&own).unwrap();
        let elf = object::File::parse(&data).unwrap();
        let code = elf.symbols().filter(|it| it.kind() == SymbolKind::Text);
        let code = code.filter(|it| !it.is_undefined() && it.size() > 0);
        let inside = code.map(|it| it.address() + it.size() / 2);
        let mut addresses: Vec<u64> = inside.step_by(37).collect();
        addresses.push(0);
        addresses.sort_unstable();
        assert!(addresses.len() > 50);
        let symbolizer = super::super::elf::symbolizer(&[]);
        let (mut met, nothing) = (Met::of(false), Group::default());
        let whole = super::super::elf::names(&symbolizer, &own, &addresses, &mut met).unwrap();
        let quick = names(&own, &addresses, &nothing, &mut met).unwrap();
        assert_eq!(quick.len(), whole.len());
        assert!(quick[0].is_empty());
        for (quick, whole) in quick.iter().zip(&whole) {
            let starts = |all: &[Named]| all.first().map(|named| named.start);
            assert_eq!(starts(quick), starts(whole));
        }
        // A name that it is known by stays.
        let mut known = whole.last().unwrap()[0].clone();
        (known.function, known.file, known.line) = ("known".into(), Some("a.rs".into()), 7);
        let group = Group {
            debug: true,
            places: vec![(0, vec![known.clone()])],
        };
        let quick = names(&own, &addresses, &group, &mut met).unwrap();
        let last = &quick.last().unwrap()[0];
        assert_eq!((&last.function, last.line), (&Arc::from("known"), 0));
        assert_eq!((&last.file, last.start), (&known.file, known.start));
    }
}
