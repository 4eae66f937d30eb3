//! [`IndexedSection`]: a section and, in memory the caller provides, hints where in it to begin. Made once where there is
//! time; then a look-up reads a few cache lines instead of the dozen or more that a binary search over a large section
//! does.

use crate::{Address, Error, Function, Row, Section};

/// A [`Section`] with hints, for look-ups that find the processor's caches cold.
///
/// The code is divided into pieces of equal size, a power of two, and for each piece the hints have the position of the
/// function at its beginning. A look-up searches from there to the function at the beginning of the next piece.
#[derive(Clone, Copy, Debug)]
pub struct IndexedSection<'a, 'm> {
    section: Section<'a>,
    /// For each piece, the last function that begins at or before it. Empty if there are none.
    hints: &'m [u32],
    /// Where the first piece begins, in bytes from the beginning of the section.
    origin: i64,
    /// The logarithm of the size of a piece.
    shift: u32,
}

impl<'a, 'm> IndexedSection<'a, 'm> {
    /// How many hints serve a section well: one for every two functions, a tenth of the size of their entries.
    #[must_use]
    pub const fn recommended_len(section: &Section<'_>) -> usize {
        (section.function_count() / 2).saturating_add(2)
    }

    /// Fills `memory` with as many hints as the size of the pieces, a power of two, makes useful. It reads the starts of
    /// all functions.
    ///
    /// Of a section that is not sorted there are no hints; look-ups are then those of the section itself.
    ///
    /// # Signal safety
    /// Reads the section's bytes and writes `memory`, nothing else; in a time proportional to the number of functions.
    #[must_use]
    pub fn new(section: Section<'a>, memory: &'m mut [u32]) -> Self {
        let mut indexed = Self {
            section,
            hints: &[],
            origin: 0,
            shift: 0,
        };
        let index = &section.index;
        let last = index.len().saturating_sub(1);
        let (Some(first_entry), Some(last_entry), true) =
            (index.entry(0), index.entry(last), index.is_sorted())
        else {
            return indexed;
        };
        let span = last_entry
            .start
            .wrapping_sub(first_entry.start)
            .max(0)
            .cast_unsigned();
        // The last piece's hint is also the end of the piece before it.
        let Some(room) = (memory.len() as u64)
            .checked_sub(2)
            .filter(|room| *room > 0)
        else {
            return indexed;
        };
        let pieces = |shift: u32| span.checked_shr(shift).unwrap_or(0);
        let shift = (0..u64::BITS)
            .find(|shift| pieces(*shift) < room)
            .unwrap_or(0);
        let count = usize::try_from(pieces(shift))
            .unwrap_or(0)
            .saturating_add(2);
        let Some(hints) = memory.get_mut(..count) else {
            return indexed;
        };
        (indexed.origin, indexed.shift) = (first_entry.start, shift);
        indexed.fill(hints);
        indexed.hints = hints;
        indexed
    }

    fn fill(&self, hints: &mut [u32]) {
        let index = &self.section.index;
        let mut pieces = hints.iter_mut().zip(0_u64..).peekable();
        for position in 0..index.len() {
            let Some(entry) = index.entry(position) else {
                return;
            };
            let distance = entry.start.wrapping_sub(self.origin);
            // This function begins behind the beginning of these pieces, the one before it did not.
            while let Some((hint, _)) =
                pieces.next_if(|(_, piece)| self.start_of(*piece) < distance)
            {
                *hint = u32::try_from(position)
                    .unwrap_or(u32::MAX)
                    .saturating_sub(1);
            }
        }
        for (hint, _) in pieces {
            *hint = u32::try_from(index.len())
                .unwrap_or(u32::MAX)
                .saturating_sub(1);
        }
    }

    fn start_of(&self, piece: u64) -> i64 {
        piece
            .checked_shl(self.shift)
            .map_or(i64::MAX, |start| i64::try_from(start).unwrap_or(i64::MAX))
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
    /// Reads the section's bytes and the hints, nothing else. Never panics, and takes a bounded time on any bytes.
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
            Some(position) => self.section.function(position).transpose(),
            None => Ok(None),
        }
    }

    /// The position of the function that contains `pc`.
    #[inline]
    fn find(&self, pc: Address) -> Option<usize> {
        let target = pc.distance_from(self.section.address());
        if self.hints.is_empty() {
            return self.section.index.find(target);
        }
        let distance = u64::try_from(target.wrapping_sub(self.origin)).ok()?;
        let piece =
            usize::try_from(distance.checked_shr(self.shift).unwrap_or(0)).unwrap_or(usize::MAX);
        let (first, last) = match self.hints.get(piece..) {
            Some([first, last, ..]) => (*first, *last),
            // Behind the beginning of the last function.
            _ => (self.hints.last().copied()?, u32::MAX),
        };
        self.section
            .index
            .find_between(first as usize, last as usize, target)
    }
}
