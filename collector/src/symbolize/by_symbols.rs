//! Functions by the symbol table alone, for further addresses of a binary of which others were
//! looked up before: that takes a hundredth of what debug information does. What is known of a
//! function already, such as its name there, holds for all of its addresses. Where a function ends
//! is remembered: for more of its addresses no file is read.
//!
//! Not here: lines, and functions that were inlined.

use super::elf::Met;
use super::{Image, Named};
use crate::intern::HashMap;
use crate::recording::names::Group;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// So many functions are remembered.
const MOST: usize = 1 << 13;

/// The functions that were found so far, kept from one use to the next.
#[derive(Clone, Debug, Default)]
pub struct Functions(Arc<Mutex<Remembered>>);

#[derive(Debug, Default)]
struct Remembered {
    count: usize,
    /// By build-id and where they begin: where they end.
    builds: HashMap<Vec<u8>, BTreeMap<u64, (u64, Named)>>,
}

impl Functions {
    /// The function at an address of a binary, if it is remembered.
    pub(super) fn find(&self, image: &Image, address: u64) -> Option<Named> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let functions = remembered.builds.get(&image.build_id)?;
        let (_, (end, named)) = functions.range(..=address).next_back()?;
        (address < *end).then(|| named.clone())
    }

    /// Forgets all: from now on they may have other names.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Remembered::default();
    }

    /// Remembers functions in which no symbol begins.
    pub(super) fn add_nameless<'e>(
        &self,
        image: &Image,
        elf: &impl Object<'e>,
        mut found: Vec<(Range<u64>, Named)>,
    ) {
        if found.is_empty() || image.build_id.is_empty() {
            return;
        }
        let symbols = elf.symbols().chain(elf.dynamic_symbols());
        let mut starts: Vec<u64> = symbols.map(|symbol| symbol.address()).collect();
        starts.sort_unstable();
        let before = |end: u64| starts.partition_point(|start| *start < end);
        found.retain(|(range, _)| before(range.start) == before(range.end));
        for (range, named) in &found {
            self.add(image, range, named);
        }
    }

    /// Remembers one; not of a binary that has no build-id, which may be another one soon.
    fn add(&self, image: &Image, range: &Range<u64>, named: &Named) {
        if image.build_id.is_empty() {
            return;
        }
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.count >= MOST {
            *remembered = Remembered::default();
        }
        let of_build = remembered.builds.entry(image.build_id.clone()).or_default();
        let before = of_build.insert(range.start, (range.end, named.clone()));
        remembered.count += usize::from(before.is_none());
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
    let functions = functions(elf, addresses).into_iter();
    let named = functions.map(|found| {
        let named = found.map(|found| {
            let named = match known.get(&found.start) {
                Some(known) => Named {
                    line: 0,
                    ..(*known).clone()
                },
                None => met.by_symbol(found.symbol, found.start),
            };
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
struct Function<'e> {
    start: u64,
    symbol: &'e str,
    /// Up to where all addresses are its own, if that is sure.
    end: Option<u64>,
}

fn functions<'e>(elf: &impl Object<'e>, addresses: &[u64]) -> Vec<Option<Function<'e>>> {
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
        let is_function = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
        if symbol.is_undefined() || !is_function {
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
            let functions = &remembered.0.lock().unwrap().builds[&image.build_id];
            let (start, (end, _)) = functions.range(..=*address).next_back()?;
            (address < end).then_some([*start, end - 1])
        });
        let mut more: Vec<u64> = ends.flatten().chain(others).collect();
        more.sort_unstable();
        more.dedup();
        let unknown = Functions::default();
        let read = names((&elf, &image), &more, &nothing, &mut met, &unknown);
        let mut found = 0;
        for (address, read) in more.iter().zip(read) {
            if let Some(named) = remembered.find(&image, *address) {
                assert_eq!(read, [named], "{address:#x}");
                found += 1;
            }
        }
        assert!(found > 100, "{found} of {}", more.len());
        remembered.forget();
        assert_eq!(remembered.find(&image, *addresses.last().unwrap()), None);
        let quick = names((&elf, &image), &addresses, &group, &mut met, &remembered);
        let last = &quick.last().unwrap()[0];
        assert_eq!((&last.function, last.line), (&Arc::from("known"), 0));
        assert_eq!((&last.file, last.start), (&known.file, known.start));
    }
}
