//! The function index: fixed-size entries, searched in place without decoding more than the starts (specification 2.3.1).

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
    /// Added to every start, to count it from the beginning of the section: 0, or where the first entry begins.
    origin: i64,
    /// Added to a start once for every entry before it: 0, or the size of an entry.
    step: i64,
}

/// The fields of an entry that every version has in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Bytes from the beginning of the section to the function.
    pub(crate) start: i64,
    pub(crate) size: u32,
    /// Bytes from the beginning of all rows to this function's.
    pub(crate) rows: u32,
}

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
        let (start, size, rows) = match self.entries {
            Entries::V1(entries) => split_narrow(entries.get(position)?, self.order),
            Entries::V2(entries) => split_narrow(entries.get(position)?, self.order),
            Entries::V3(entries) => split_wide(entries.get(position)?, self.order),
        };
        Some(Entry {
            start: self.section_distance(position, start),
            size,
            rows,
        })
    }

    #[inline]
    fn section_distance(&self, position: usize, start: i64) -> i64 {
        start
            .wrapping_add(self.origin)
            .wrapping_add(self.step.wrapping_mul(position as i64))
    }

    /// The position of the function that contains `target`, in bytes from the beginning of the section.
    #[inline]
    pub(crate) fn find(&self, target: i64) -> Option<usize> {
        if !self.sorted {
            return (0..self.len()).find(|position| self.contains(*position, target));
        }
        let last = self.last_in(0, usize::MAX, target)?;
        self.containing(last, target)
    }

    /// Like [`Index::find`] in a sorted index, where the last entry that begins at or before `target` is known to be
    /// from `first` to `last`.
    #[inline]
    pub(crate) fn find_between(&self, first: usize, last: usize, target: i64) -> Option<usize> {
        let last = self.last_in(first, last.saturating_add(1), target)?;
        self.containing(last, target)
    }

    /// The last of the entries from `first` to before `end` that begins at or before `target`.
    #[inline]
    fn last_in(&self, first: usize, end: usize, target: i64) -> Option<usize> {
        let end = end.min(self.len());
        match self.entries {
            Entries::V1(entries) => {
                self.last_at_or_before(entries, narrow_start, first, end, target)
            }
            Entries::V2(entries) => {
                self.last_at_or_before(entries, narrow_start, first, end, target)
            }
            Entries::V3(entries) => self.last_at_or_before(entries, wide_start, first, end, target),
        }
    }

    /// The entry that contains `target`, given the last that begins at or before it.
    #[inline]
    fn containing(&self, last: usize, target: i64) -> Option<usize> {
        if self.contains(last, target) {
            return Some(last);
        }
        // Empty functions begin where the next one does, and may be sorted behind it.
        (0..EMPTY_FUNCTIONS)
            .map_while(|back| last.checked_sub(back))
            .take_while(|position| *position == last || self.is_empty(position.saturating_add(1)))
            .find(|position| self.contains(*position, target))
    }

    /// The binary search. The starts of a sorted index ascend.
    #[inline]
    fn last_at_or_before<const N: usize>(
        &self,
        entries: &[[u8; N]],
        start: impl Fn(&[u8; N], ByteOrder) -> i64,
        mut first: usize,
        end: usize,
        target: i64,
    ) -> Option<usize> {
        let is_at_or_before = |position: usize| {
            let entry = entries.get(position);
            entry.is_some_and(|entry| {
                self.section_distance(position, start(entry, self.order)) <= target
            })
        };
        let mut len = end.saturating_sub(first);
        while len > 1 {
            let half = len / 2;
            let middle = first.wrapping_add(half);
            if is_at_or_before(middle) {
                first = middle;
            }
            len = len.wrapping_sub(half);
        }
        is_at_or_before(first).then_some(first)
    }

    #[inline]
    fn contains(&self, position: usize, target: i64) -> bool {
        self.entry(position).is_some_and(|entry| {
            let offset = target.wrapping_sub(entry.start);
            offset >= 0 && offset < i64::from(entry.size)
        })
    }

    #[inline]
    fn is_empty(&self, position: usize) -> bool {
        self.entry(position).is_some_and(|entry| entry.size == 0)
    }
}

/// How many empty functions in a row are stepped over to find the one that contains an address.
const EMPTY_FUNCTIONS: usize = 16;

#[inline]
fn narrow_start<const N: usize>(entry: &[u8; N], order: ByteOrder) -> i64 {
    entry
        .first_chunk()
        .map_or(0, |start| i64::from(order.i32(*start)))
}

#[inline]
fn wide_start(entry: &[u8; 16], order: ByteOrder) -> i64 {
    entry.first_chunk().map_or(0, |start| order.i64(*start))
}

/// Versions 1 and 2: start i32, size u32, rows u32.
#[inline]
fn split_narrow<const N: usize>(entry: &[u8; N], order: ByteOrder) -> (i64, u32, u32) {
    let (words, _) = entry.as_chunks::<4>();
    match words {
        [start, size, rows, ..] => (
            i64::from(order.i32(*start)),
            order.u32(*size),
            order.u32(*rows),
        ),
        _ => (0, 0, 0),
    }
}

/// Version 3: start i64, size u32, rows u32.
#[inline]
fn split_wide(entry: &[u8; 16], order: ByteOrder) -> (i64, u32, u32) {
    let (words, _) = entry.as_chunks::<4>();
    match words {
        [_, _, size, rows] => (wide_start(entry, order), order.u32(*size), order.u32(*rows)),
        _ => (0, 0, 0),
    }
}
