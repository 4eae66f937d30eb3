//! Functions by the symbol table alone, for further addresses of a binary of which others were
//! looked up before: that takes a hundredth of what debug information does. What is known of a
//! function already, such as its name there, holds for all of its addresses.
//!
//! Not here: lines, and functions that were inlined; and those that are remembered, for which no
//! file is read any more ([`super::remembered`]).

use super::elf::Met;
use super::{Functions, Image, Named};
use crate::intern::HashMap;
use crate::recording::names::Group;
use object::{Object, ObjectSymbol, SymbolKind};

/// A function of that symbol, which is called as it is known.
pub(super) fn named(known: Option<&Named>, symbol: &str, start: u64, met: &mut Met) -> Named {
    match known {
        Some(known) => Named {
            line: 0,
            ..known.clone()
        },
        None => met.by_symbol(symbol, start),
    }
}

/// The function at each address; none if it has no symbol. Addresses are the file's own, and
/// sorted.
pub(super) fn names<'e>(
    (elf, image): (&impl Object<'e>, &Image),
    addresses: &[u64],
    known: &Group,
    met: &mut Met,
    remembered: &Functions,
) -> Vec<Vec<Named>> {
    let outermost = known.places.iter().filter_map(|place| place.1.last());
    let known: HashMap<u64, &Named> = outermost
        .filter_map(|named| Some((named.start?, named)))
        .collect();
    remembered.list(image, elf);
    let functions = functions(elf, addresses).into_iter();
    let named = functions.map(|found| {
        let named = found.map(|found| {
            let known = known.get(&found.start).copied();
            let named = named(known, found.symbol, found.start, met);
            if let Some(end) = found.end {
                remembered.add(image, &(found.start..end), &named);
            }
            named
        });
        named.into_iter().collect()
    });
    named.collect()
}

/// A function.
#[derive(Debug)]
pub(super) struct Function<'e> {
    pub(super) start: u64,
    pub(super) symbol: &'e str,
    /// Up to where all addresses are its own, if that is sure.
    pub(super) end: Option<u64>,
}

/// Those at addresses, which are sorted.
pub(super) fn functions<'e>(elf: &impl Object<'e>, addresses: &[u64]) -> Vec<Option<Function<'e>>> {
    let all = nearest(elf.symbols(), addresses, Unsized::ReachesOn);
    let dynamic = nearest(elf.dynamic_symbols(), addresses, Unsized::IsOneByte);
    let is_stripped = elf.symbols().next().is_none();
    // Before and behind an address a symbol of the other table may come first.
    let other = |found| Function { end: None, ..found };
    let dynamic = dynamic
        .into_iter()
        .map(|found| if is_stripped { found } else { found.map(other) });
    let both = all.into_iter().zip(dynamic);
    both.map(|(found, dynamic)| found.or(dynamic)).collect()
}

/// Whether a symbol may be that of a function of the binary's own.
pub(super) fn is_function<'e>(symbol: &impl ObjectSymbol<'e>) -> bool {
    let is_code = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
    is_code && !symbol.is_undefined()
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
    // Of those that begin behind the address before it the last, and where the first begins; the
    // last place is for what is behind all of them.
    let mut nearest: Vec<(Option<S>, u64)> = Vec::new();
    nearest.resize_with(addresses.len() + 1, || (None, u64::MAX));
    let rank = |symbol: &S| (symbol.address(), symbol.size());
    for symbol in symbols {
        if !is_function(&symbol) {
            continue;
        }
        let start = symbol.address();
        let place = addresses.partition_point(|address| *address < start);
        let (last, first) = &mut nearest[place];
        *first = start.min(*first);
        if last.as_ref().is_none_or(|it| rank(it) < rank(&symbol)) {
            *last = Some(symbol);
        }
    }
    let mut next = u64::MAX;
    let mut behind: Vec<u64> = Vec::with_capacity(nearest.len());
    for (_, first) in nearest.iter().rev() {
        behind.push(next);
        next = next.min(*first);
    }
    let behind = behind.into_iter().rev();
    let mut last = None;
    let of_each = nearest.iter().zip(addresses).zip(behind);
    let of_each = of_each.map(|(((symbol, _), address), behind)| {
        last = symbol.as_ref().or(last);
        let symbol = last?;
        let start = symbol.address();
        let within = match symbol.size() {
            0 => without_size == Unsized::ReachesOn || start == *address,
            size => address - start < size,
        };
        let name = symbol.name().ok().filter(|_| within)?;
        let end = start.saturating_add(symbol.size()).min(behind);
        Some(Function {
            start,
            symbol: name,
            end: (symbol.size() > 0).then_some(end),
        })
    });
    of_each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::Binary;
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
        let image = Image {
            path: String::new(),
            build_id: vec![1],
        };
        let remembered = Functions::default();
        let quick = names((&elf, &image), &addresses, &nothing, &mut met, &remembered);
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
        // All that begins anywhere in a function that was met is that function.
        let others: Vec<u64> = elf.symbols().map(|it| it.address()).collect();
        let ends = addresses.iter().filter_map(|address| {
            let (start, end) = remembered.met(&image, *address)?;
            Some([start, end - 1])
        });
        let mut more: Vec<u64> = ends.flatten().chain(others).collect();
        more.sort_unstable();
        more.dedup();
        let unknown = Functions::default();
        let read = names((&elf, &image), &more, &nothing, &mut met, &unknown);
        let mut found = 0;
        for (address, read) in more.iter().zip(read) {
            if let Some(named) = remembered.find(&image, *address, &nothing) {
                assert_eq!(read, [named], "{address:#x}");
                found += 1;
            }
        }
        assert!(found > 100, "{found} of {}", more.len());
        remembered.forget();
        let is_forgotten = |at: &u64| remembered.met(&image, *at).is_none();
        assert!(addresses.iter().all(is_forgotten));
        let quick = names((&elf, &image), &addresses, &group, &mut met, &remembered);
        let last = &quick.last().unwrap()[0];
        assert_eq!((&last.function, last.line), (&Arc::from("known"), 0));
        assert_eq!((&last.file, last.start), (&known.file, known.start));
    }
}
