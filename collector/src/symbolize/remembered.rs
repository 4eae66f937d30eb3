//! Functions of binaries that are remembered from one use to the next, in which no file is read for
//! them any more: those that were met, all others that symbol tables have, and the stubs through
//! which a binary calls others.
//!
//! Not here: how they are found ([`super::by_symbols`], [`super::plt`]).

use super::by_symbols::{functions, is_function, named};
use super::elf::Met;
use super::plt::Stubs;
use super::{Image, Named, entry, nameless, plt};
use crate::binary;
use crate::intern::HashMap;
use crate::recording::names::Group;
use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// Of one that has no functions of Go's, once that is known: from where to where those are of
    /// which nothing but unwind tables tells, sorted.
    nameless: Option<Vec<Range<u64>>>,
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
            let last = list.functions.last();
            let is_new = last.is_none_or(|last| last.0 < found.start);
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
        let before = at.checked_sub(1);
        let name = before.map_or(0, |before| self.functions[before].2);
        let name = self.names.get(name as usize..name_end as usize)?;
        (address < end).then_some((start, end, name))
    }
}

impl Build {
    /// The function without a name at an address.
    fn nameless(&self, address: u64) -> Option<Range<u64>> {
        let all = self.nameless.as_ref()?;
        let behind = all.partition_point(|range| range.start <= address);
        let range = all.get(behind.checked_sub(1)?)?;
        range.contains(&address).then(|| range.clone())
    }
}

impl Functions {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        // Nothing is left half done by who panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function at an address of a binary of which some are known, if it is remembered.
    pub(super) fn find(&self, image: &Image, address: u64, known: &Group) -> Option<Named> {
        let mut remembered = self.lock();
        let build = remembered.builds.get(&image.build_id)?;
        if let Some(stub) = build.stubs.as_ref().and_then(|it| it.find(address)) {
            return Some(stub);
        }
        let last = build.met.range(..=address).next_back();
        if let Some((_, (end, named))) = last
            && address < *end
        {
            return Some(named.clone());
        }
        let Some((start, end, symbol)) = build.list.as_ref()?.find(address) else {
            let range = build.nameless(address)?;
            let named = Named {
                start: Some(range.start),
                ..Named::only(nameless(image.name(), range.start))
            };
            remembered.add(image, &range, &named);
            return Some(named);
        };
        let outermost = known.places.iter().filter_map(|place| place.1.last());
        let known = outermost.rev().find(|named| named.start == Some(start));
        let named = named(known, symbol, start, &mut Met::default());
        remembered.add(image, &(start..end), &named);
        Some(named)
    }

    /// Forgets those that were met: from now on they may have other names.
    pub(super) fn forget(&self) {
        let mut remembered = self.lock();
        remembered.forget();
        let builds = remembered.builds.values_mut();
        let gone = builds.filter_map(|build| build.nameless.take());
        let gone: usize = gone.map(|nameless| nameless.len()).sum();
        remembered.listed -= gone;
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

    /// Remembers one.
    pub(super) fn add(&self, image: &Image, range: &Range<u64>, named: &Named) {
        self.lock().add(image, range, named);
    }

    /// Lists the functions of a binary, if that was not done and there is room.
    pub(super) fn list<'e>(&self, image: &Image, elf: &impl Object<'e>) {
        if image.build_id.is_empty() || !self.lock().wants_list(image) {
            return;
        }
        // Files are read without the lock.
        let list = List::of(elf);
        let mut remembered = self.lock();
        remembered.listed += list.functions.len();
        remembered.names += list.names.len();
        let build = remembered.builds.entry(image.build_id.clone());
        build.or_default().list = Some(list);
    }

    /// Whether it is not known of a binary that it has no functions of Go's.
    pub(super) fn may_have_go(&self, image: &Image) -> bool {
        let remembered = self.lock();
        let build = remembered.builds.get(&image.build_id);
        build.is_none_or(|it| it.nameless.is_none())
    }

    /// Lists those functions of a binary without functions of Go's in which no symbol begins, if
    /// there is room. Where symbols may have no size they may reach into others, and none is
    /// listed: in symbol tables, and where those are in another file (not `has_all`).
    pub(super) fn list_nameless<'e>(&self, image: &Image, elf: &impl Object<'e>, has_all: bool) {
        if image.build_id.is_empty() {
            return;
        }
        let is_stripped = has_all && elf.symbols().next().is_none();
        let has_room = is_stripped && !self.lock().is_full();
        let listed = has_room.then(|| entry::called(elf, MOST_OF_BINARY));
        let mut nameless = listed.flatten().unwrap_or_default();
        // Stubs have names of their own, and unwind tables.
        let stubs = plt::sections(elf);
        nameless.retain(|range| {
            let mut stubs = stubs.iter().map(|(_, range, _)| range);
            !stubs.any(|stubs| stubs.start < range.end && range.start < stubs.end)
        });
        let mut starts: Vec<u64> = elf.dynamic_symbols().map(|it| it.address()).collect();
        starts.sort_unstable();
        nameless.retain(|range| {
            let next = starts.partition_point(|start| *start < range.start);
            starts.get(next).is_none_or(|start| range.end <= *start)
        });
        let mut remembered = self.lock();
        remembered.listed += nameless.len();
        let build = remembered.builds.entry(image.build_id.clone());
        build.or_default().nameless = Some(nameless);
    }

    /// The stubs of a binary; `read` reads those that are asked for, or all, which are remembered.
    pub(super) fn stubs(
        &self,
        image: &Image,
        read: impl FnOnce(bool) -> Option<Arc<Stubs>>,
    ) -> Option<Arc<Stubs>> {
        if image.build_id.is_empty() {
            return read(false);
        }
        let known = self
            .lock()
            .builds
            .get(&image.build_id)
            .and_then(|it| it.stubs.clone());
        known.or_else(|| {
            let stubs = read(true)?;
            let mut remembered = self.lock();
            remembered.names += stubs.size();
            let build = remembered.builds.entry(image.build_id.clone());
            build.or_default().stubs = Some(stubs.clone());
            Some(stubs)
        })
    }
}

impl Remembered {
    /// Whether a binary's functions are to be listed.
    fn wants_list(&self, image: &Image) -> bool {
        let build = self.builds.get(&image.build_id);
        !self.is_full() && build.is_none_or(|it| it.list.is_none())
    }

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

#[cfg(test)]
mod tests {
    use super::super::by_symbols::names;
    use super::*;
    use crate::binary::Binary;

    impl Functions {
        /// From where to where the function is that was met there.
        pub(in super::super) fn met(&self, image: &Image, address: u64) -> Option<(u64, u64)> {
            let remembered = self.lock();
            let met = &remembered.builds.get(&image.build_id)?.met;
            let (start, (end, _)) = met.range(..=address).next_back()?;
            (address < *end).then_some((*start, *end))
        }
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
