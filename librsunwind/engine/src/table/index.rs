//! An index for an `.eh_frame` whose linker wrote none (`PT_GNU_EH_FRAME` is missing, as in what
//! `musl-gcc` makes): the pairs that `.eh_frame_hdr` would hold, in its most usual encoding,
//! counted from the beginning of the section.
//!
//! ```text
//!   1b 03 3b after the version   pointer (0)   number of pairs   (function, entry), by function
//! ```
//!
//! Made once, when a module is found; time is linear in the section, which the caller bounds. Not
//! here: memory for it, and where the section is (the runtime).

use super::eh_frame::{USUAL, pair_of};
use super::expression::Bytes;
use core::cell::Cell;
use core::ops::Range;
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};

/// Bytes of an index before its pairs.
const HEAD: usize = 12;
const PAIR: usize = 8;

/// How many bytes an index takes for the functions within `code`; none if the section has no entry
/// for any. `section` is mapped at `address`.
///
/// # Signal safety
/// Reads `section` only; some hundred nanoseconds for each of its entries.
#[must_use]
pub fn size(section: &[u8], address: u64, code: &Range<u64>) -> Option<usize> {
    let mut count = 0usize;
    each(section, address, code, |_| count = count.saturating_add(1));
    let pairs = count.checked_mul(PAIR)?;
    (count > 0).then_some(HEAD.checked_add(pairs)?)
}

/// Writes the index into memory of exactly [`size`] bytes; `false` if it is not of that size.
///
/// # Signal safety
/// As [`size`], and sorts in place.
pub fn fill(section: &[u8], address: u64, code: &Range<u64>, out: &mut [u8]) -> bool {
    let Some((head, pairs)) = out.split_first_chunk_mut::<HEAD>() else {
        return false;
    };
    let (pairs, rest) = pairs.as_chunks_mut::<PAIR>();
    let Ok(count) = u32::try_from(pairs.len()) else {
        return false;
    };
    let mut places = pairs.iter_mut();
    let mut all = rest.is_empty();
    each(section, address, code, |pair| match places.next() {
        Some(place) => *place = pair,
        None => all = false,
    });
    all &= places.next().is_none();
    sort(Cell::from_mut(pairs).as_slice_of_cells());
    let [a, b, c, d, _, _, _, _, count_place @ ..] = head;
    for (place, byte) in [a, b, c, d].into_iter().zip(USUAL) {
        *place = *byte;
    }
    *count_place = count.to_le_bytes();
    all
}

/// Hands over the pair of each function within `code`. An entry that cannot be read ends the
/// section.
fn each(section: &[u8], address: u64, code: &Range<u64>, mut found: impl FnMut([u8; PAIR])) {
    let mut table = EhFrame::from(Bytes::new(section, LittleEndian));
    table.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut entries = table.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let function = fde.initial_address();
        let distance = i32::try_from(function.wrapping_sub(address) as i64);
        let offset = i32::try_from(fde.offset());
        if let (Ok(distance), Ok(offset)) = (distance, offset)
            && code.contains(&function)
            && fde.len() > 0
        {
            let pair =
                u64::from(distance.cast_unsigned()) | u64::from(offset.cast_unsigned()) << 32;
            found(pair.to_le_bytes());
        }
    }
}

/// Sorts by function: a heap sort, because the library's own sort can panic.
fn sort(pairs: &[Cell<[u8; PAIR]>]) {
    for root in (0..pairs.len() / 2).rev() {
        sift_down(pairs, root);
    }
    for end in (1..pairs.len()).rev() {
        let (Some(heap), Some(first), Some(last)) =
            (pairs.get(..end), pairs.first(), pairs.get(end))
        else {
            return;
        };
        last.set(first.replace(last.get()));
        sift_down(heap, 0);
    }
}

/// Lets the pair at `parent` sink to where no child of its own is larger.
fn sift_down(heap: &[Cell<[u8; PAIR]>], mut parent: usize) {
    let function = |place: &&Cell<[u8; PAIR]>| pair_of(&place.get()).0;
    loop {
        let first = parent.saturating_mul(2).saturating_add(1);
        let children = [first, first.saturating_add(1)];
        let largest = children
            .into_iter()
            .filter_map(|child| Some((child, heap.get(child)?)))
            .max_by_key(|(_, place)| function(place));
        let (Some((child, below)), Some(above)) = (largest, heap.get(parent)) else {
            return;
        };
        if function(&below) <= function(&above) {
            return;
        }
        below.set(above.replace(below.get()));
        parent = child;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_sorted_by_function() {
        for count in [0, 1, 2, 3, 10, 1000] {
            // A generator of period 2^32: every order of magnitude, negative ones and equal ones.
            let mut state = 1u32;
            let mut pairs: Vec<[u8; PAIR]> = (0..count)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let function = (state as i32) >> (state % 31);
                    let pair = u64::from(function.cast_unsigned()) | u64::from(state) << 32;
                    pair.to_le_bytes()
                })
                .collect();
            let mut expected: Vec<_> = pairs.iter().map(|pair| pair_of(pair).0).collect();
            expected.sort_unstable();
            sort(Cell::from_mut(&mut pairs[..]).as_slice_of_cells());
            let sorted: Vec<_> = pairs.iter().map(|pair| pair_of(pair).0).collect();
            assert_eq!(sorted, expected);
        }
    }
}
