//! [`IndexedSection`]: a section and, in memory the caller provides, hints where in it to begin.
//! Made once where there is time; then a look-up reads a few cache lines instead of the dozen or
//! more that a binary search over a large section does.

use crate::index::Found;
use crate::{Address, Error, Function, Row, Section};

/// A [`Section`] with hints, for look-ups that find the processor's caches cold.
///
/// The code is divided into pieces of equal size, and for each piece the hints have the position of
/// the function that reaches into it. A look-up searches from there to that of the next piece.
#[derive(Clone, Copy, Debug)]
pub struct IndexedSection<'a, 'm> {
    section: Section<'a>,
    /// For each piece, the last function that begins in one before it, or the first function. Empty
    /// if there are none.
    hints: &'m [u32],
    /// Where the first piece begins, in bytes from the beginning of the section.
    origin: i64,
    /// Pieces per byte, in units of 2^-64.
    scale: u64,
}

impl<'a, 'm> IndexedSection<'a, 'm> {
    /// How many hints serve a section well: one for each function, a quarter of the size of their
    /// entries.
    #[must_use]
    pub const fn recommended_len(section: &Section<'_>) -> usize {
        section.function_count().saturating_add(2)
    }

    /// Fills `memory` with hints. It reads the starts of all functions.
    ///
    /// Of a section that is not sorted there are no hints; look-ups are then those of the section
    /// itself.
    ///
    /// # Signal safety
    /// Reads the section's bytes and writes `memory`, nothing else; in a time proportional to the
    /// number of functions.
    #[must_use]
    pub fn new(section: Section<'a>, memory: &'m mut [u32]) -> Self {
        let mut indexed = Self {
            section,
            hints: &[],
            origin: 0,
            scale: 0,
        };
        let index = &section.index;
        let last = index.len().saturating_sub(1);
        let (Some(first_entry), Some(last_entry), true) =
            (index.entry(0), index.entry(last), index.is_sorted())
        else {
            return indexed;
        };
        indexed.origin = first_entry.start;
        let Some(span) = indexed.distance(last_entry.start) else {
            return indexed;
        };
        // The last piece's hint is also the end of the piece before it.
        let Some(pieces) = memory.len().checked_sub(1).filter(|pieces| *pieces > 0) else {
            return indexed;
        };
        // With this, the last function begins in the last piece.
        let scale = (pieces as u128) << 64;
        let scale = scale
            .checked_div(u128::from(span).saturating_add(1))
            .unwrap_or(0);
        indexed.scale = u64::try_from(scale).unwrap_or(u64::MAX);
        indexed.fill(memory);
        indexed.hints = memory;
        indexed
    }

    fn fill(&self, hints: &mut [u32]) {
        let index = &self.section.index;
        let mut next = 0_u32;
        for (hint, piece) in hints.iter_mut().zip(0_usize..) {
            let begins_before = |position: u32| {
                let entry = index.entry(position as usize);
                // In an index that is sorted no function begins before the first.
                entry.is_some_and(|entry| {
                    self.piece(self.distance(entry.start).unwrap_or(0)) < piece
                })
            };
            while begins_before(next) {
                next = next.saturating_add(1);
            }
            *hint = next.saturating_sub(1);
        }
    }

    /// Bytes from the beginning of the first piece; none before it.
    #[inline]
    fn distance(&self, target: i64) -> Option<u64> {
        let distance = target.wrapping_sub(self.origin).cast_unsigned();
        (self.origin <= target).then_some(distance)
    }

    /// The piece that is this many bytes behind the beginning of the first. Never less for more
    /// bytes.
    #[inline]
    fn piece(&self, distance: u64) -> usize {
        let piece = u128::from(distance).wrapping_mul(self.scale.into()) >> 64;
        usize::try_from(piece).unwrap_or(usize::MAX)
    }

    /// The section.
    #[inline]
    #[must_use]
    pub const fn section(&self) -> &Section<'a> {
        &self.section
    }

    /// [`Section::lookup`], with the same result.
    ///
    /// # Errors
    /// Those of [`Section::lookup`].
    ///
    /// # Signal safety
    /// Reads the section's bytes and the hints, nothing else. Never panics, and takes a bounded
    /// time on any bytes.
    #[inline]
    pub fn lookup(&self, pc: Address) -> Result<Option<Row>, Error> {
        self.section
            .row(self.find(pc), pc.distance_from(self.section.address()))
    }

    /// [`Section::function_at`], with the same result.
    ///
    /// # Errors
    /// Those of [`Section::function_at`].
    ///
    /// # Signal safety
    /// Reads the section's bytes and the hints, nothing else.
    #[inline]
    pub fn function_at(&self, pc: Address) -> Result<Option<Function<'a>>, Error> {
        match self.find(pc) {
            Some((position, entry)) => self.section.decode(position, entry).map(Some),
            None => Ok(None),
        }
    }

    /// The function that contains `pc`.
    #[inline]
    fn find(&self, pc: Address) -> Option<Found> {
        let target = pc.distance_from(self.section.address());
        if self.hints.is_empty() {
            return self.section.index.find(target);
        }
        let distance = self.distance(target)?;
        let (first, last) = match self.hints.get(self.piece(distance)..) {
            Some([first, last, ..]) => (*first, *last),
            // Behind the beginning of the last function.
            _ => (self.hints.last().copied()?, u32::MAX),
        };
        self.section
            .index
            .find_between(first as usize, last as usize, target)
    }
}
