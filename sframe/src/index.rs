//! The function index: fixed-size entries, searched in place without decoding more than the starts
//! (specification 2.3.1).

use crate::function::Attribute;
use crate::{ByteOrder, Header, Version};

/// The entries as they lie in the section, in the size of the version.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entries<'a> {
    V1(&'a [[u8; 17]]),
    V2(&'a [[u8; 20]]),
    V3(&'a [[u8; 16]]),
}

/// The entries, and what their starts are counted from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index<'a> {
    pub(crate) entries: Entries<'a>,
    order: ByteOrder,
    sorted: bool,
    /// Added to every start, to count it from the beginning of the section: 0, or where the first
    /// entry begins.
    origin: i64,
    /// Added to a start once for every entry before it: 0, or the size of an entry.
    step: i64,
}

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Bytes from the beginning of the section to the function.
    pub(crate) start: i64,
    pub(crate) size: u32,
    /// Bytes from the beginning of all rows to this function's.
    pub(crate) rows: u32,
    /// In version 3 it is in front of the rows.
    pub(crate) attribute: Option<Attribute>,
}

impl Entry {
    /// A function that reaches around the end of the address space ends there.
    #[inline]
    const fn contains(&self, target: i64) -> bool {
        let offset = target.wrapping_sub(self.start).cast_unsigned();
        self.start <= target && offset < self.size as u64
    }
}

/// An entry and its position.
pub(crate) type Found = (usize, Entry);

impl<'a> Index<'a> {
    /// `bytes` are exactly the entries'.
    pub(crate) fn new(header: &Header, bytes: &'a [u8]) -> Self {
        let entries = match header.version {
            Version::V1 => Entries::V1(bytes.as_chunks().0),
            Version::V2 => Entries::V2(bytes.as_chunks().0),
            Version::V3 => Entries::V3(bytes.as_chunks().0),
        };
        let (origin, step) = if header.starts_are_field_relative() {
            (
                header.functions_start().cast_signed(),
                header.version.fde_len().cast_signed(),
            )
        } else {
            (0, 0)
        };
        Self {
            entries,
            order: header.byte_order,
            sorted: header.is_sorted(),
            origin,
            step,
        }
    }

    #[inline]
    pub(crate) const fn is_sorted(&self) -> bool {
        self.sorted
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        match self.entries {
            Entries::V1(entries) => entries.len(),
            Entries::V2(entries) => entries.len(),
            Entries::V3(entries) => entries.len(),
        }
    }

    /// The entry at `position`.
    #[inline]
    pub(crate) fn entry(&self, position: usize) -> Option<Entry> {
        match self.entries {
            Entries::V1(entries) => self.decode(entries, position),
            Entries::V2(entries) => self.decode(entries, position),
            Entries::V3(entries) => self.decode(entries, position),
        }
    }

    #[inline]
    fn decode<E: Encoded>(&self, entries: &[E], position: usize) -> Option<Entry> {
        let entry = entries.get(position)?.decode(self.order);
        Some(Entry {
            start: self.section_distance(position, entry.start),
            ..entry
        })
    }

    #[inline]
    fn section_distance(&self, position: usize, start: i64) -> i64 {
        start
            .wrapping_add(self.origin)
            .wrapping_add(self.step.wrapping_mul(position as i64))
    }

    /// The function that contains `target`, in bytes from the beginning of the section.
    #[inline]
    pub(crate) fn find(&self, target: i64) -> Option<Found> {
        if !self.sorted {
            let mut all =
                (0..self.len()).filter_map(|position| Some((position, self.entry(position)?)));
            return all.find(|(_, entry)| entry.contains(target));
        }
        match self.entries {
            Entries::V1(entries) => self.search(entries, 0, self.len(), target),
            Entries::V2(entries) => self.search(entries, 0, self.len(), target),
            Entries::V3(entries) => self.search(entries, 0, self.len(), target),
        }
    }

    /// Like [`Index::find`] in a sorted index, where the last entry that begins at or before
    /// `target` is known to be from `first` to `last`, and probably near `first`.
    #[inline]
    pub(crate) fn find_between(&self, first: usize, last: usize, target: i64) -> Option<Found> {
        match self.entries {
            Entries::V1(entries) => self.search_near(entries, first, last, target),
            Entries::V2(entries) => self.search_near(entries, first, last, target),
            Entries::V3(entries) => self.search_near(entries, first, last, target),
        }
    }

    #[inline]
    fn search_near<E: Encoded>(
        &self,
        entries: &[E],
        first: usize,
        last: usize,
        target: i64,
    ) -> Option<Found> {
        match self.count_behind(entries, first, target) {
            Some(count) if count < NEAR => {
                self.containing(entries, first.wrapping_add(count), target)
            }
            _ => self.search(entries, first, last.saturating_add(1), target),
        }
    }

    /// How many of the [`NEAR`] entries behind `first` begin at or before `target`: all are
    /// compared, which takes less than one wrong guess of where to stop. None where there are not
    /// so many entries.
    #[inline]
    fn count_behind<E: Encoded>(&self, entries: &[E], first: usize, target: i64) -> Option<usize> {
        let behind = first.wrapping_add(1);
        let near = entries.get(behind..)?.first_chunk::<NEAR>()?;
        let begins = |(position, entry): (usize, &E)| {
            usize::from(self.section_distance(position, entry.start(self.order)) <= target)
        };
        let positions = behind..behind.wrapping_add(NEAR);
        Some(positions.zip(near).map(begins).fold(0, usize::wrapping_add))
    }

    /// The binary search among the entries from `first` to before `end`. The starts of a sorted
    /// index ascend.
    #[inline(never)]
    fn search<E: Encoded>(
        &self,
        entries: &[E],
        mut first: usize,
        end: usize,
        target: i64,
    ) -> Option<Found> {
        let is_at_or_before = |position: usize| {
            let entry = entries.get(position);
            entry.is_some_and(|entry| {
                self.section_distance(position, entry.start(self.order)) <= target
            })
        };
        let mut len = end.min(entries.len()).saturating_sub(first);
        while len > 1 {
            let half = len / 2;
            let middle = first.wrapping_add(half);
            if is_at_or_before(middle) {
                first = middle;
            }
            len = len.wrapping_sub(half);
        }
        self.containing(entries, first, target)
    }

    /// The entry that contains `target`, given the last that begins at or before it.
    #[inline]
    fn containing<E: Encoded>(&self, entries: &[E], last: usize, target: i64) -> Option<Found> {
        let entry = self.decode(entries, last)?;
        if entry.contains(target) {
            return Some((last, entry));
        }
        self.behind_empty(entries, last, target)
    }

    /// The same where that one does not contain it. Empty functions begin where the next one does,
    /// and may be sorted behind it.
    #[cold]
    fn behind_empty<E: Encoded>(&self, entries: &[E], last: usize, target: i64) -> Option<Found> {
        for back in 0..EMPTY_FUNCTIONS {
            let position = last.checked_sub(back)?;
            let entry = self.decode(entries, position)?;
            if entry.contains(target) {
                return Some((position, entry));
            }
            if entry.size != 0 {
                return None;
            }
        }
        None
    }
}

/// How many entries behind that of a hint are compared without asking how many there are to
/// compare.
const NEAR: usize = 4;

/// How many empty functions in a row are stepped over to find the one that contains an address.
const EMPTY_FUNCTIONS: usize = 16;

/// An entry as it lies in the section.
trait Encoded {
    /// The start, as it is there.
    fn start(&self, order: ByteOrder) -> i64;

    /// All fields, the start as it is there.
    fn decode(&self, order: ByteOrder) -> Entry;
}

/// Version 1: start i32, size u32, rows u32, count u32, info u8.
impl Encoded for [u8; 17] {
    #[inline]
    fn start(&self, order: ByteOrder) -> i64 {
        let [a, b, c, d, ..] = *self;
        order.i32([a, b, c, d]).into()
    }

    #[inline]
    fn decode(&self, order: ByteOrder) -> Entry {
        let [
            _,
            _,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            r0,
            r1,
            r2,
            r3,
            c0,
            c1,
            c2,
            c3,
            info,
        ] = *self;
        Entry {
            start: self.start(order),
            size: order.u32([s0, s1, s2, s3]),
            rows: order.u32([r0, r1, r2, r3]),
            attribute: Some(Attribute {
                rows: order.u32([c0, c1, c2, c3]),
                info,
                info2: 0,
                // There is no field for it; 16 is that of the only blocks its producers described.
                rep_size: 16,
            }),
        }
    }
}

/// Version 2: start i32, size u32, rows u32, count u32, info u8, size of the repeated block u8, two
/// bytes unused.
impl Encoded for [u8; 20] {
    #[inline]
    fn start(&self, order: ByteOrder) -> i64 {
        let [a, b, c, d, ..] = *self;
        order.i32([a, b, c, d]).into()
    }

    #[inline]
    fn decode(&self, order: ByteOrder) -> Entry {
        let [
            _,
            _,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            r0,
            r1,
            r2,
            r3,
            c0,
            c1,
            c2,
            c3,
            info,
            rep_size,
            _,
            _,
        ] = *self;
        Entry {
            start: self.start(order),
            size: order.u32([s0, s1, s2, s3]),
            rows: order.u32([r0, r1, r2, r3]),
            attribute: Some(Attribute {
                rows: order.u32([c0, c1, c2, c3]),
                info,
                info2: 0,
                rep_size,
            }),
        }
    }
}

/// Version 3: start i64, size u32, rows u32.
impl Encoded for [u8; 16] {
    #[inline]
    fn start(&self, order: ByteOrder) -> i64 {
        let [a, b, c, d, e, f, g, h, ..] = *self;
        order.i64([a, b, c, d, e, f, g, h])
    }

    #[inline]
    fn decode(&self, order: ByteOrder) -> Entry {
        let [_, _, _, _, _, _, _, _, s0, s1, s2, s3, r0, r1, r2, r3] = *self;
        Entry {
            start: self.start(order),
            size: order.u32([s0, s1, s2, s3]),
            rows: order.u32([r0, r1, r2, r3]),
            attribute: None,
        }
    }
}
