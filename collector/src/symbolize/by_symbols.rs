//! Functions by the symbol table alone, for further addresses of a binary of which others were
//! looked up before: that takes a hundredth of what debug information does. What is known of a
//! function already, such as its name there, holds for all of its addresses. Functions are
//! remembered, those that were met and all others of the binary: for their addresses no file is
//! read any more.
//!
//! Not here: lines, and functions that were inlined.

use super::elf::Met;
use super::plt::Stubs;
use super::{Image, Named};
use crate::binary;
use crate::intern::HashMap;
use crate::recording::names::Group;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// So many functions that were met are remembered.
const MOST: usize = 1 << 13;
/// So many are listed of a binary, and of all, with so many bytes of names.
const MOST_OF_BINARY: usize = 1 << 15;
const MOST_LISTED: usize = 1 << 16;
const MOST_NAMES: usize = 4 << 20;

/// The functions that were found so far, kept from one use to the next.
#[derive(Clone, Debug, Default)]
pub struct Functions(Arc<Mutex<Remembered>>);

#[derive(Debug, Default)]
struct Remembered {
    /// How many were met, how many are listed, and bytes of their names.
    met: usize,
    listed: usize,
    names: usize,
    builds: HashMap<Vec<u8>, Build>,
}

/// Those of a binary.
#[derive(Debug, Default)]
struct Build {
    /// By where they begin: where they end.
    met: BTreeMap<u64, (u64, Named)>,
    /// All that the symbol tables have, once it was made.
    list: Option<List>,
    /// Likewise the stubs through which it calls others.
    stubs: Option<Arc<Stubs>>,
}

/// Functions as symbol tables have them, in little room.
#[derive(Debug, Default)]
struct List {
    /// From where to where each is, and where in `names` its own ends.
    functions: Vec<(u64, u64, u32)>,
    names: String,
}

impl List {
    /// All functions of a binary of which it is sure where they end; none of a large one.
    fn of<'e>(elf: &impl Object<'e>) -> Self {
        let symbols = elf.symbols().chain(elf.dynamic_symbols());
        let starts = symbols.filter(is_function).map(|it| it.address());
        let mut starts: Vec<u64> = starts.take(MOST_OF_BINARY + 1).collect();
        let mut list = Self::default();
        if starts.len() > MOST_OF_BINARY {
            return list;
        }
        starts.sort_unstable();
        starts.dedup();
        binary::hold_names(elf);
        for found in functions(elf, &starts).into_iter().flatten() {
            let is_new = list
                .functions
                .last()
                .is_none_or(|last| last.0 < found.start);
            if let Some(end) = found.end.filter(|_| is_new) {
                list.names.push_str(found.symbol);
                let name = u32::try_from(list.names.len()).unwrap_or(u32::MAX);
                list.functions.push((found.start, end, name));
            }
        }
        list
    }

    /// The function at an address: where it begins and ends, and its symbol.
    fn find(&self, address: u64) -> Option<(u64, u64, &str)> {
        let behind = self.functions.partition_point(|one| one.0 <= address);
        let at = behind.checked_sub(1)?;
        let (start, end, name_end) = self.functions[at];
        let name = at
            .checked_sub(1)
            .map_or(0, |before| self.functions[before].2);
        let name = self.names.get(name as usize..name_end as usize)?;
        (address < end).then_some((start, end, name))
    }
}

impl Functions {
    /// The function at an address of a binary of which some are known, if it is remembered.
    pub(super) fn find(&self, image: &Image, address: u64, known: &Group) -> Option<Named> {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let build = remembered.builds.get(&image.build_id)?;
        let last = build.met.range(..=address).next_back();
        if let Some((_, (end, named))) = last
            && address < *end
        {
            return Some(named.clone());
        }
        let (start, end, symbol) = build.list.as_ref()?.find(address)?;
        let outermost = known.places.iter().filter_map(|place| place.1.last());
        let known = outermost.rev().find(|named| named.start == Some(start));
        let named = named(known, symbol, start, &mut Met::default());
        remembered.add(image, &(start..end), &named);
        Some(named)
    }

    /// Forgets those that were met: from now on they may have other names.
    pub(super) fn forget(&self) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.forget();
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
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            found.retain(|(range, _)| !range.contains(&symbol.address()));
        }
        for (range, named) in &found {
            self.add(image, range, named);
        }
    }

    fn add(&self, image: &Image, range: &Range<u64>, named: &Named) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.add(image, range, named);
    }

    /// Lists the functions of a binary, if that was not done and there is room.
    fn list<'e>(&self, image: &Image, elf: &impl Object<'e>) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let build = remembered.builds.get(&image.build_id);
        let is_full = remembered.is_full();
        if image.build_id.is_empty() || is_full || build.is_some_and(|it| it.list.is_some()) {
            return;
        }
        let list = List::of(elf);
        remembered.listed += list.functions.len();
        remembered.names += list.names.len();
        let build = remembered.builds.entry(image.build_id.clone());
        build.or_default().list = Some(list);
    }
}

impl Functions {
    /// The stubs of a binary, if they were read.
    pub(super) fn stubs(&self, image: &Image) -> Option<Arc<Stubs>> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.builds.get(&image.build_id)?.stubs.clone()
    }

    /// Remembers them; all there are.
    pub(super) fn add_stubs(&self, image: &Image, stubs: Arc<Stubs>) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if image.build_id.is_empty() {
            return;
        }
        remembered.names += stubs.size();
        let build = remembered.builds.entry(image.build_id.clone());
        build.or_default().stubs = Some(stubs);
    }
}

impl Remembered {
    /// Whether nothing more is listed.
    const fn is_full(&self) -> bool {
        self.listed >= MOST_LISTED || self.names >= MOST_NAMES
    }

    /// Forgets those that were met. If there is no room any more others may have been listed than
    /// are needed by now.
    fn forget(&mut self) {
        if self.is_full() {
            *self = Self::default();
        }
        self.met = 0;
        self.builds.values_mut().for_each(|build| build.met.clear());
    }

    /// Remembers one; not of a binary that has no build-id, which may be another one soon.
    fn add(&mut self, image: &Image, range: &Range<u64>, named: &Named) {
        if image.build_id.is_empty() {
            return;
        }
        if self.met >= MOST {
            self.forget();
        }
        let build = self.builds.entry(image.build_id.clone()).or_default();
        let before = build.met.insert(range.start, (range.end, named.clone()));
        self.met += usize::from(before.is_none());
    }
}

/// A function of that symbol, which is called as it is known.
fn named(known: Option<&Named>, symbol: &str, start: u64, met: &mut Met) -> Named {
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

fn is_function<'e>(symbol: &impl ObjectSymbol<'e>) -> bool {
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
            let functions = &remembered.0.lock().unwrap().builds[&image.build_id].met;
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
            if let Some(named) = remembered.find(&image, *address, &nothing) {
                assert_eq!(read, [named], "{address:#x}");
                found += 1;
            }
        }
        assert!(found > 100, "{found} of {}", more.len());
        remembered.forget();
        assert!(
            remembered.0.lock().unwrap().builds[&image.build_id]
                .met
                .is_empty()
        );
        let quick = names((&elf, &image), &addresses, &group, &mut met, &remembered);
        let last = &quick.last().unwrap()[0];
        assert_eq!((&last.function, last.line), (&Arc::from("known"), 0));
        assert_eq!((&last.file, last.start), (&known.file, known.start));
    }

    /// The C library has no symbols here but those that others may use.
    #[test]
    fn a_list_has_all_functions_of_a_binary() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let paths = maps.lines().filter_map(|line| line.split(' ').next_back());
        let libc = { paths }.find(|path| path.contains("/libc.so")).unwrap();
        let data = Binary::open(libc.as_ref()).unwrap();
        let elf = object::File::parse(&data).unwrap();
        let image = Image {
            path: String::new(),
            build_id: vec![1],
        };
        let symbols = elf.symbols().chain(elf.dynamic_symbols());
        let starts = symbols.filter(is_function).map(|it| it.address());
        let mut addresses: Vec<u64> = starts
            .flat_map(|at| [at.saturating_sub(1), at, at + 5])
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        let (mut met, nothing) = (Met::of(false), Group::default());
        let unused = Functions::default();
        let read = names((&elf, &image), &addresses, &nothing, &mut met, &unused);
        let listed = Functions::default();
        listed.list(&image, &elf);
        let named = (addresses.iter()).map(|at| listed.find(&image, *at, &nothing));
        let mut found = 0;
        for ((address, read), listed) in addresses.iter().zip(&read).zip(named) {
            if let Some(listed) = listed {
                assert_eq!(read, &[listed], "{address:#x}");
                found += 1;
            }
        }
        assert!(found > 1000, "{found} of {}", addresses.len());
        // A name that it is known by stays.
        let mut known = read.iter().flatten().next().unwrap().clone();
        known.function = "known".into();
        let start = known.start.unwrap();
        let group = Group {
            debug: false,
            places: vec![(start, vec![known.clone()])],
        };
        let listed = Functions::default();
        listed.list(&image, &elf);
        assert_eq!(listed.find(&image, start, &group), Some(known));
        let other = Image {
            build_id: vec![2],
            ..image
        };
        assert_eq!(listed.find(&other, start, &group), None);
    }
}
