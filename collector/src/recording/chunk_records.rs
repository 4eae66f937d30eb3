//! The records of one chunk, in order, stepping over damaged ones.
//!
//! Not here: what the records say. A damaged record is passed over by its own length if a sound
//! record (or the end) follows there, else word by word until a sound record comes.

use super::error::Damages;
use engine::wire::record::{self, RawRecord, RecordKind};

/// Bounds the work spent on looking for sound records behind damage, so that a hostile file cannot
/// make it quadratic.
#[derive(Clone, Debug)]
pub(super) struct Budget(u64);

impl Budget {
    /// For a file of that many bytes.
    pub(super) fn for_file(length: u64) -> Self {
        Self(length.saturating_mul(8).saturating_add(64 << 20))
    }

    fn spend(&mut self, bytes: u64) -> bool {
        let enough = self.0 >= bytes;
        self.0 = self.0.saturating_sub(bytes.max(8));
        enough
    }
}

/// What is found on the way through a chunk.
pub(crate) enum Step<'a> {
    /// A sound record, and where it begins in the file.
    Record(RawRecord<'a>, u64),
    /// Something could not be read here.
    Gap,
}

/// Goes through `bytes`, which begin with the first record of a chunk and at `offset` of the file.
/// Gives the end of the last sound record, in bytes from the start. `open_end`: zeros or unreadable
/// bytes at the end are no damage (the committed length is not known).
pub(super) fn walk<'a>(
    bytes: &'a [u8],
    offset: u64,
    open_end: bool,
    budget: &mut Budget,
    damages: &mut Damages,
    mut visit: impl FnMut(Step<'a>),
) -> usize {
    let mut at = 0;
    let mut sound = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match record::parse(rest) {
            Ok(found) => {
                visit(Step::Record(found, offset + at as u64));
                at += found.length;
                sound = at;
            }
            Err(error) => {
                let claimed = u16::from_le_bytes([rest[0], rest.get(1).copied().unwrap_or(0)]);
                let affordable = budget.spend(u64::from(claimed) * 8);
                let next = affordable.then(|| resynchronise(rest, budget)).flatten();
                if next.is_none() && open_end {
                    break;
                }
                let skipped = next.unwrap_or(rest.len());
                damages.add(offset + at as u64, skipped as u64, error.to_string());
                visit(Step::Gap);
                at += skipped;
                if next.is_none() {
                    break;
                }
            }
        }
    }
    sound
}

/// How far behind a damaged record the next sound one begins, or the end if the record reaches
/// exactly to it.
fn resynchronise(rest: &[u8], budget: &mut Budget) -> Option<usize> {
    let own_length = usize::from(u16::from_le_bytes([*rest.first()?, *rest.get(1)?])) * 8;
    let behind_it = rest.get(own_length..).filter(|_| own_length > 0);
    if behind_it.is_some_and(|rest| sound(rest, budget)) {
        return Some(own_length);
    }
    let mut at = 8;
    while let Some(candidate) = rest.get(at..) {
        if candidate.len() < record::HEADER_SIZE {
            return None;
        }
        if sound(candidate, budget) {
            return Some(at);
        }
        at += 8;
    }
    None
}

fn sound(bytes: &[u8], budget: &mut Budget) -> bool {
    plausible(bytes, bytes.len())
        && budget.spend(u64::from(u16::from_le_bytes([bytes[0], bytes[1]])) * 8)
        && record::parse(bytes).is_ok()
}

/// Whether a record header could begin here, in a chunk with that many bytes left.
pub(super) fn plausible(bytes: &[u8], left: usize) -> bool {
    let Some(&[low, high, kind, zero]) = bytes.first_chunk::<4>() else {
        return false;
    };
    let length = usize::from(u16::from_le_bytes([low, high])) * 8;
    RecordKind::from_number(kind).is_some() && zero == 0 && length >= 8 && length <= left
}
