//! Names as they are stored in a recording: what was seen at each address, so that it reads the
//! same when the programs are rebuilt or gone.
//!
//! ```text
//! records of kind Names ─ joined ─► compressed (zlib) ─►  version, strings, groups of addresses
//! ```
//!
//! The wire contract has only the parts ([`engine::wire::names`]); all numbers here are encoded as
//! there. An older collector passes them over.
//!
//! Not here: looking names up (`symbolize`).

use engine::wire::WireError;
use engine::wire::codec::{Decoder, Encoder};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;

/// The version this code writes, and the newest it reads.
const VERSION: u64 = 1;
/// Nothing honest gets this many times longer by being decompressed.
const LARGEST_RATIO: u64 = 64;
/// Bytes that anything may have when decompressed.
const ALWAYS: u64 = 1 << 20;
/// Bytes of memory that decoded names may always take, and for each compressed byte.
const ROOM: u64 = 64 << 20;
const ROOM_RATIO: u64 = 256;
/// Functions at one address: no compiler inlines as deep.
const MOST_FUNCTIONS: u64 = 4096;

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// Its name, demangled.
    pub function: Arc<str>,
    /// The same without template arguments and parameters, if it has any.
    pub short: Option<Arc<str>>,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line in it; 0 if unknown.
    pub line: u32,
    /// The line that the function begins at, as its language says; 0 if unknown.
    pub begins: u32,
    /// Inlined into the next one of the list.
    pub inlined: bool,
    /// Where the function begins in its module.
    pub start: Option<u64>,
}

/// Whose addresses they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A binary's own, by its build-id.
    Build(Vec<u8>),
    /// A binary's own, by its path, for want of a build-id.
    Path(String),
    /// The kernel's.
    Kernel,
    /// A process's, in code of no binary; by its pid and key.
    Process(u32, u64),
}

impl Owner {
    /// Whether an address of it has the same name at another time. Code of JITs is another one
    /// soon, and a binary without a build-id may be.
    #[must_use]
    pub const fn lasts(&self) -> bool {
        matches!(self, Self::Build(_) | Self::Kernel)
    }
}

/// The names of one owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Whether they are from debug information: then they have files, lines and inlined functions,
    /// as far as there are any.
    pub debug: bool,
    /// By address: the functions there, innermost first.
    pub places: Vec<(u64, Vec<Named>)>,
}

impl Group {
    /// The functions at an address, if any were stored.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&[Named]> {
        let found = self.places.binary_search_by_key(&address, |place| place.0);
        Some(&self.places[found.ok()?].1)
    }
}

/// All names of a recording.
pub type StoredNames = HashMap<Owner, Group>;

/// Adds the names of another file. What is already said of an owner stays; but of a kernel, and of
/// a binary without a build-id, there may have been another one under the same name: where they
/// differ nobody knows whose is meant, and the address has none.
pub(super) fn merge(all: &mut StoredNames, names: StoredNames) {
    for (owner, group) in names {
        let is_sure = matches!(owner, Owner::Build(_) | Owner::Process(..));
        let known = all.entry(owner).or_default();
        known.debug |= group.debug;
        known.places.extend(group.places);
        known.places.sort_by_key(|place| place.0); // which keeps the order of equals
        known.places.dedup_by(|other, first| {
            let same = other.0 == first.0;
            if same && !is_sure && outermost(&other.1) != outermost(&first.1) {
                first.1.clear();
            }
            same
        });
    }
}

/// The function that an address lies in, whatever was inlined there.
fn outermost(functions: &[Named]) -> Option<&str> {
    functions.last().map(|named| &*named.function)
}

/// Why stored names cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// Not all parts are there.
    #[error("they are cut short")]
    Cut,
    /// The collector that wrote them is newer.
    #[error("they have version {0}, and this rsunwind reads up to version {VERSION}")]
    Newer(u64),
    /// They do not decompress.
    #[error("they do not decompress: {0}")]
    Compressed(#[from] std::io::Error),
    /// They are far longer than what they are made of.
    #[error("they would take more than {} MB of memory", .0 >> 20)]
    Large(u64),
    /// They are not what they should be.
    #[error("{0}")]
    Wire(#[from] WireError),
}

/// Compressed bytes of names.
#[must_use]
pub fn encode(names: &StoredNames) -> Vec<u8> {
    compressed(&plain(names))
}

fn plain(names: &StoredNames) -> Vec<u8> {
    let mut groups: Vec<_> = names.iter().collect();
    groups.sort_by_cached_key(|(owner, _)| format!("{owner:?}")); // the same each time
    let mut strings = Strings::default();
    let mut bytes = Vec::new();
    for (owner, group) in &groups {
        put(&mut bytes, |out| {
            owner_to(out, owner);
            out.byte(u8::from(group.debug));
            out.number(group.places.len() as u64);
        });
        let mut before = 0;
        for (address, functions) in &group.places {
            let numbers: Vec<_> = functions.iter().map(|it| strings.numbers(it)).collect();
            put(&mut bytes, |out| {
                out.difference(before, *address);
                out.number(functions.len() as u64);
                for (named, [function, short, file]) in functions.iter().zip(&numbers) {
                    for number in [function, short, file] {
                        out.number(*number);
                    }
                    out.number(u64::from(named.line));
                    let flags = u8::from(named.inlined) | u8::from(named.start.is_some()) << 1;
                    out.byte(flags);
                    if let Some(start) = named.start {
                        out.difference(*address, start);
                    }
                }
            });
            before = *address;
        }
    }
    let mut all = Vec::new();
    put(&mut all, |out| {
        out.number(VERSION);
        out.number(strings.list.len() as u64);
    });
    for string in &strings.list {
        put(&mut all, |out| out.bytes(string.as_bytes()));
    }
    put(&mut all, |out| out.number(groups.len() as u64));
    all.extend(bytes);
    all
}

/// Reads what [`encode`] gave, from bytes that may be anything.
///
/// # Errors
/// [`NamesError`].
pub fn decode(compressed: &[u8]) -> Result<StoredNames, NamesError> {
    let most = ALWAYS + LARGEST_RATIO * compressed.len() as u64;
    let mut bytes = Vec::new();
    let mut reader = flate2::read::ZlibDecoder::new(compressed).take(most);
    reader.read_to_end(&mut bytes)?;
    let mut from = Decoder::new(&bytes);
    let version = from.number()?;
    if version > VERSION {
        return Err(NamesError::Newer(version));
    }
    let mut room = Room::for_names(compressed.len());
    let mut strings = Vec::new();
    for _ in 0..from.number()? {
        let string = String::from_utf8_lossy(from.bytes()?);
        room.take(OF_STRING + string.len())?;
        strings.push(Arc::from(string));
    }
    let mut names = StoredNames::default();
    for _ in 0..from.number()? {
        let owner = owner_from(&mut from)?;
        room.take(size_of::<(Owner, Group)>())?;
        let group = names.entry(owner).or_default();
        group.debug |= from.byte()? != 0;
        let mut address = 0;
        for _ in 0..from.number()? {
            address = from.difference(address)?;
            room.take(size_of::<(u64, Vec<Named>)>())?;
            let mut functions = Vec::new();
            let count = from.number()?;
            if count > MOST_FUNCTIONS {
                return Err(WireError::BadValue("functions at one address", count).into());
            }
            for _ in 0..count {
                room.take(size_of::<Named>())?;
                functions.push(named(&mut from, &strings, address)?);
            }
            group.places.push((address, functions));
        }
        group.places.sort_by_key(|place| place.0);
        group.places.dedup_by_key(|place| place.0);
    }
    Ok(names)
}

/// What a string takes beside its bytes.
const OF_STRING: usize = size_of::<Arc<str>>() + 32;

/// How much memory names may still take: a byte of them can stand for a hundred.
struct Room {
    whole: u64,
    left: u64,
}

impl Room {
    fn for_names(compressed: usize) -> Self {
        let whole = ROOM.saturating_add(ROOM_RATIO.saturating_mul(compressed as u64));
        Self { whole, left: whole }
    }

    fn take(&mut self, bytes: usize) -> Result<(), NamesError> {
        let left = self.left.checked_sub(bytes as u64);
        self.left = left.ok_or(NamesError::Large(self.whole))?;
        Ok(())
    }
}

/// The parts of one file, as they come.
#[derive(Debug, Default)]
pub(super) struct Parts {
    bytes: Vec<u8>,
    next: u64,
    parts: u64,
    /// Where the first is in the file.
    pub(super) offset: u64,
}

impl Parts {
    /// There are some at that offset of the file, whether they can be read or not.
    pub(super) fn begin(&mut self, offset: u64) {
        if self.parts == 0 {
            (self.parts, self.offset) = (1, offset);
        }
    }

    /// Takes the next one; a first one begins anew.
    pub(super) fn push(&mut self, part: &engine::wire::names::NamesPart<'_>) {
        if part.part == 0 {
            (self.next, self.bytes) = (0, Vec::new());
        }
        self.parts = part.parts.max(1);
        // Behind a missing one nothing fits any more.
        if part.part == self.next {
            self.next += 1;
            self.bytes.extend_from_slice(part.bytes);
        }
    }

    /// The names, if there are any.
    pub(super) fn names(&self) -> Result<StoredNames, NamesError> {
        match self.parts {
            0 => Ok(StoredNames::default()),
            parts if parts != self.next => Err(NamesError::Cut),
            _ => decode(&self.bytes),
        }
    }
}

/// Strings, each once, and one more than their numbers.
#[derive(Default)]
struct Strings {
    numbers: HashMap<Arc<str>, u64>,
    list: Vec<Arc<str>>,
}

impl Strings {
    fn numbers(&mut self, named: &Named) -> [u64; 3] {
        let mut number = |string: Option<&Arc<str>>| {
            let Some(string) = string else { return 0 };
            *self.numbers.entry(string.clone()).or_insert_with(|| {
                self.list.push(string.clone());
                self.list.len() as u64
            })
        };
        [
            number(Some(&named.function)),
            number(named.short.as_ref()),
            number(named.file.as_ref()),
        ]
    }
}

fn named(from: &mut Decoder<'_>, strings: &[Arc<str>], address: u64) -> Result<Named, WireError> {
    let mut string = || {
        let number = from.number()?;
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        match index.checked_sub(1) {
            None => Ok(None),
            Some(index) => match strings.get(index) {
                Some(string) => Ok(Some(string.clone())),
                None => Err(WireError::BadValue("a string's number", number)),
            },
        }
    };
    let [function, short, file] = [string()?, string()?, string()?];
    let function = function.ok_or(WireError::BadValue("a function's name", 0))?;
    let line = from.number()?;
    let flags = from.byte()?;
    Ok(Named {
        function,
        short,
        file,
        line: u32::try_from(line).map_err(|_| WireError::BadValue("a line", line))?,
        begins: 0, // of languages, which describe their functions themselves
        inlined: flags & 1 != 0,
        start: match flags & 2 {
            0 => None,
            _ => Some(from.difference(address)?),
        },
    })
}

fn owner_to(out: &mut Encoder<'_>, owner: &Owner) {
    match owner {
        Owner::Build(id) => {
            out.byte(0);
            out.bytes(id);
        }
        Owner::Path(path) => {
            out.byte(1);
            out.bytes(path.as_bytes());
        }
        Owner::Kernel => out.byte(2),
        Owner::Process(pid, key) => {
            out.byte(3);
            out.number(u64::from(*pid));
            out.number(*key);
        }
    }
}

fn owner_from(from: &mut Decoder<'_>) -> Result<Owner, WireError> {
    Ok(match from.byte()? {
        0 => Owner::Build(from.bytes()?.to_vec()),
        1 => Owner::Path(String::from_utf8_lossy(from.bytes()?).into_owned()),
        2 => Owner::Kernel,
        3 => {
            let pid = from.number()?;
            let bad = |_| WireError::BadValue("a pid", pid);
            Owner::Process(u32::try_from(pid).map_err(bad)?, from.number()?)
        }
        other => return Err(WireError::BadValue("an owner of names", u64::from(other))),
    })
}

/// Appends what is encoded, in as much room as it takes.
fn put(bytes: &mut Vec<u8>, encode: impl Fn(&mut Encoder<'_>)) {
    let (start, mut room) = (bytes.len(), 256);
    loop {
        bytes.resize(start + room, 0);
        let mut out = Encoder::new(&mut bytes[start..]);
        encode(&mut out);
        if let Some(length) = out.finish() {
            bytes.truncate(start + length);
            return;
        }
        room *= 4;
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    // Into memory nothing can fail.
    let _ = out.write_all(bytes);
    out.finish().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Some of everything.
    pub(crate) fn example() -> StoredNames {
        let named = |function: &str, line| Named {
            function: function.into(),
            short: (line > 10).then(|| "short".into()),
            file: (line > 0).then(|| "/src/a.c".into()),
            line,
            begins: 0,
            inlined: line > 20,
            start: (line < 30).then_some(0x1000),
        };
        let group = |debug, places: &[(u64, u32)]| Group {
            debug,
            places: places
                .iter()
                .map(|(address, line)| (*address, vec![named("inner", *line), named("f<T>()", 1)]))
                .collect(),
        };
        [
            (
                Owner::Build(vec![1, 2, 3]),
                group(true, &[(0x1010, 25), (0x1020, 0), (0x2000, 40)]),
            ),
            (Owner::Path("/bin/x".into()), group(false, &[(7, 11)])),
            (Owner::Kernel, group(false, &[(u64::MAX - 3, 0)])),
            (Owner::Process(42, 42_000), group(false, &[])),
        ]
        .into()
    }

    #[test]
    fn names_round_trip_and_every_cut_is_an_error() {
        let bytes = encode(&example());
        assert_eq!(decode(&bytes).unwrap(), example());
        assert_eq!(bytes, encode(&example()), "the same each time");
        for length in 0..bytes.len() - 4 {
            assert!(decode(&bytes[..length]).is_err(), "{length}");
        }
        let found = example();
        let build = &found[&Owner::Build(vec![1, 2, 3])];
        assert_eq!(build.find(0x1020).unwrap().len(), 2);
        assert_eq!(build.find(0x1021), None);
    }

    #[test]
    fn the_seed_of_the_fuzzer_is_of_today() {
        crate::seeds::check("names", "some_of_all", &plain(&example()));
    }

    #[test]
    fn a_newer_version_and_endless_zeros_are_told() {
        assert!(matches!(
            decode(&compressed(&[9])),
            Err(NamesError::Newer(9))
        ));
        let mut endless = vec![1, 0xff, 0xff, 0xff, 0xff, 0x7f];
        endless.resize(100 << 20, 0);
        let error = decode(&compressed(&endless)).unwrap_err();
        assert!(matches!(error, NamesError::Large(_)), "{error}");
    }

    #[test]
    fn where_two_files_differ_only_what_is_surely_the_same_binary_has_names() {
        let named = |name: &str| vec![Named::only(name)];
        let of = |places: &[(u64, &str)]| -> StoredNames {
            let places: Vec<_> = places.iter().map(|(at, it)| (*at, named(it))).collect();
            let group = Group {
                debug: false,
                places,
            };
            let owners = [
                Owner::Build(vec![1]),
                Owner::Path("/x".into()),
                Owner::Kernel,
            ];
            owners.map(|owner| (owner, group.clone())).into()
        };
        let mut all = StoredNames::default();
        merge(&mut all, of(&[(1, "a"), (2, "b")]));
        merge(&mut all, of(&[(2, "c"), (3, "d")]));
        merge(&mut all, of(&[(1, "a"), (2, "b")])); // it does not come back
        for owner in [Owner::Path("/x".into()), Owner::Kernel] {
            let expected = vec![(1, named("a")), (2, vec![]), (3, named("d"))];
            assert_eq!(all[&owner].places, expected);
        }
        assert_eq!(all[&Owner::Build(vec![1])].find(2), Some(&*named("b")));
    }

    #[test]
    fn short_bytes_that_stand_for_much_memory_are_refused() {
        // The ratio of decompressed bytes is kept by some that do not compress.
        let noise =
            |length: u32| (0..length).map(|it| (it.wrapping_mul(2_654_435_761) >> 24) as u8);
        let plain = |head: &[u8], repeated: &[u8], times: usize| {
            let mut bytes = head.to_vec();
            bytes.extend(repeated.repeat(times));
            bytes.extend(noise(200_000));
            decode(&compressed(&bytes)).unwrap_err()
        };
        let number = |number: u64| {
            let mut bytes = Vec::new();
            put(&mut bytes, |out| out.number(number));
            bytes
        };
        let strings = [number(VERSION), number(3_000_000)].concat();
        let error = plain(&strings, &[0], 3_000_000);
        assert!(matches!(error, NamesError::Large(_)), "{error}");
        // One string, the kernel's group with one place, and too many functions at it.
        let place = [
            number(VERSION),
            vec![1, 1, b'f', 1, 2, 0, 1, 0],
            number(4097),
        ]
        .concat();
        let error = plain(&place, &[1, 0, 0, 0, 0], 4097);
        let bad = matches!(error, NamesError::Wire(WireError::BadValue(_, 4097)));
        assert!(bad, "{error}");
    }
}
