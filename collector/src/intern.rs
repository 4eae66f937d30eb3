//! Distinct things, each held once in a list, and known by its place there.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash};

/// Maps of what is in a recording: hashed fast, and differently in each run.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
/// Sets likewise.
pub(crate) type HashSet<T> = std::collections::HashSet<T, RandomState>;

/// A place in a list.
pub(crate) trait Index: Copy {
    /// The next one of a list of that length.
    fn next_of(length: usize) -> Self;

    /// As an index.
    fn index(self) -> usize;
}

/// Makes an index type, so that none is mistaken for another. `None` takes no room of its own.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::num::NonZeroU32);

        impl $name {
            /// Of that number, from 0 on. The last one that there is stands for any beyond it.
            #[must_use]
            pub const fn new(number: u32) -> Self {
                Self(std::num::NonZeroU32::MIN.saturating_add(number))
            }

            /// As a number.
            #[must_use]
            pub const fn number(self) -> u32 {
                self.0.get() - 1
            }

            /// As an index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.number() as usize
            }

            /// The next one of a list of that length.
            #[must_use]
            pub fn next_of(length: usize) -> Self {
                Self::new(u32::try_from(length).unwrap_or(u32::MAX))
            }
        }

        impl crate::intern::Index for $name {
            fn next_of(length: usize) -> Self {
                Self::next_of(length)
            }

            fn index(self) -> usize {
                self.index()
            }
        }
    };
}
pub(crate) use index;

/// Finds the places of things in a list that it fills. It holds none of them itself.
#[derive(Debug)]
pub(crate) struct Interner<I> {
    /// With half of the hash, so that growing does not touch the things.
    places: HashTable<(u32, I)>,
    hasher: RandomState,
}

impl<I> Default for Interner<I> {
    fn default() -> Self {
        Self {
            places: HashTable::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<I: Index> Interner<I> {
    /// For a list that holds something already, each thing once.
    pub(crate) fn of<T: Eq + Hash>(all: &[T]) -> Self {
        let mut made = Self::default();
        for (place, thing) in all.iter().enumerate() {
            let code = made.code(thing);
            made.insert(code, I::next_of(place));
        }
        made
    }

    /// The place of a thing, at the end of the list if it is new. `all` is always the same list.
    pub(crate) fn place<T: Eq + Hash>(&mut self, all: &mut Vec<T>, thing: T) -> I {
        let code = self.code(&thing);
        if let Some(known) = self.find(code, |place| all[place.index()] == thing) {
            return known;
        }
        let place = I::next_of(all.len());
        all.push(thing);
        self.insert(code, place);
        place
    }

    /// What a thing is looked for by.
    pub(crate) fn code(&self, thing: &impl Hash) -> u32 {
        self.hasher.hash_one(thing) as u32
    }

    /// The place of the thing of that code which is the `same`.
    pub(crate) fn find(&self, code: u32, same: impl Fn(I) -> bool) -> Option<I> {
        let found = self.places.find(spread(code), |(known, place)| {
            *known == code && same(*place)
        });
        found.map(|(_, place)| *place)
    }

    /// Notes the place of a thing that was not there.
    pub(crate) fn insert(&mut self, code: u32, place: I) {
        let rehash = |(code, _): &(u32, I)| spread(*code);
        self.places
            .insert_unique(spread(code), (code, place), rehash);
    }
}

index!(
    /// Of [`Strings`].
    StringId
);

/// Distinct strings, the first of which is empty.
#[derive(Debug)]
pub(crate) struct Strings {
    all: Vec<String>,
    known: Interner<StringId>,
}

impl Default for Strings {
    fn default() -> Self {
        let all = vec![String::new()];
        let known = Interner::of(&all);
        Self { all, known }
    }
}

impl Strings {
    /// Where a string is, at the end if it is new.
    pub(crate) fn place(&mut self, text: &str) -> u32 {
        let code = self.known.code(&text);
        let same = |id: StringId| self.all[id.index()] == text;
        let found = self.known.find(code, same).unwrap_or_else(|| {
            let id = StringId::next_of(self.all.len());
            self.all.push(text.to_owned());
            self.known.insert(code, id);
            id
        });
        found.number()
    }

    /// The string there; an empty one where none is.
    #[cfg_attr(not(feature = "agent"), expect(dead_code))]
    pub(crate) fn at(&self, place: impl TryInto<usize>) -> &str {
        let place = place.try_into().ok();
        let found = place.and_then(|place| self.all.get(place));
        found.map_or("", String::as_str)
    }

    /// All of them, by their places.
    pub(crate) fn list(self) -> Vec<String> {
        self.all
    }
}

/// A caller and what it calls, by number: what trees are made of.
pub(crate) trait Pair: Copy {
    /// As one number.
    fn both(self) -> u64;
}

/// Puts two numbers together.
pub(crate) fn both<I: Index>(parent: Option<I>, what: impl Index) -> u64 {
    let number = |index: usize| u64::from(u32::try_from(index).unwrap_or(u32::MAX));
    number(parent.map_or(usize::MAX, I::index)) << 32 | number(what.index())
}

/// Finds the places of pairs in a list that it fills. It holds them itself: lists are long, and
/// each look at one is a wait for memory.
#[derive(Debug)]
pub(crate) struct Pairs<I> {
    places: HashTable<(u32, u32, I)>,
    hasher: RandomState,
}

impl<I> Default for Pairs<I> {
    fn default() -> Self {
        Self {
            places: HashTable::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<I: Index> Pairs<I> {
    /// For a list that will hold about so many.
    pub(crate) fn with_room(count: usize) -> Self {
        Self {
            places: HashTable::with_capacity(count),
            hasher: RandomState::default(),
        }
    }

    /// For a list that holds some already, each once.
    pub(crate) fn of<T: Pair>(all: &[T]) -> Self {
        let mut made = Self::default();
        let mut list = Vec::new();
        all.iter().for_each(|pair| _ = made.add(&mut list, *pair));
        made
    }

    /// The place of a pair, at the end of the list if it is new. `all` is always the same list.
    pub(crate) fn place<T: Pair>(&mut self, all: &mut Vec<T>, pair: T) -> I {
        let both = pair.both();
        let same = |known: &(u32, u32, I)| join(known) == both;
        if let Some((.., place)) = self.places.find(self.hasher.hash_one(both), same) {
            return *place;
        }
        self.add(all, pair)
    }

    /// The place of a pair that is not in the list yet.
    pub(crate) fn add<T: Pair>(&mut self, all: &mut Vec<T>, pair: T) -> I {
        let (both, place) = (pair.both(), I::next_of(all.len()));
        let hash = |both: u64| self.hasher.hash_one(both);
        let entry = ((both >> 32) as u32, both as u32, place);
        self.places
            .insert_unique(hash(both), entry, |known| hash(join(known)));
        all.push(pair);
        place
    }
}

fn join<I>((high, low, _): &(u32, u32, I)) -> u64 {
    u64::from(*high) << 32 | u64::from(*low)
}

/// Tables look at both ends of a hash.
const fn spread(code: u32) -> u64 {
    (code as u64) << 32 | code as u64
}

#[cfg(test)]
mod tests {
    use super::{Interner, Strings};
    use crate::recording::FrameId;

    #[test]
    fn each_thing_is_held_once() {
        let mut all = vec!["a", "b"];
        let mut interner = Interner::<FrameId>::of(&all);
        let mut place = |thing| interner.place(&mut all, thing).index();
        assert_eq!(["b", "c", "a", "c"].map(&mut place), [1, 2, 0, 2]);
        assert_eq!(all, ["a", "b", "c"]);
    }

    #[test]
    fn each_string_is_held_once_and_the_first_is_empty() {
        let mut strings = Strings::default();
        let mut place = |text| strings.place(text);
        assert_eq!(["a", "", "b", "a"].map(&mut place), [1, 0, 2, 1]);
        assert_eq!(strings.list(), ["", "a", "b"]);
    }
}
