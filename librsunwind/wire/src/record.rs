//! Framing a record: length, kind, check. What is inside a payload is in the files beside this one.

use super::WireError;

/// Bytes before the payload.
pub const HEADER_SIZE: usize = 8;

/// What a payload is. Numbers are part of the format and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// [`super::process::Process`]: a program run begins.
    Process = 1,
    /// [`super::event::Event`]: something that happened to a process.
    Event = 2,
    /// [`super::module::Module`]: code was mapped.
    Module = 3,
    /// [`super::module::ModuleGone`]: code was unmapped.
    ModuleGone = 4,
    /// [`super::thread::Thread`]: a thread was armed.
    Thread = 5,
    /// [`super::thread::ThreadEnd`]: a thread ended, or was looked at for the last time.
    ThreadEnd = 6,
    /// [`super::sample`]: one stack.
    Sample = 7,
    /// [`super::session::Session`]: the collector's own account, last in its recording.
    Session = 8,
    /// [`super::session::PerfMap`]: a JIT's symbol file, taken along by the collector.
    PerfMap = 9,
    /// [`super::session::SegmentTotals`]: the counters of a segment's file header, kept by the
    /// collector.
    SegmentTotals = 10,
    /// [`super::kernel`]: the kernel's half of a sample.
    Kernel = 11,
    /// [`super::source::Source`]: an event that was asked for beside CPU time.
    Source = 12,
    /// [`super::code::Code`]: a code object of a language, or code that a JIT made.
    Code = 13,
    /// [`super::code::CodeGone`]: code of a JIT was taken away.
    CodeGone = 14,
    /// [`super::label::LabelSet`]: labels of the regions that a thread was in.
    Labels = 15,
    /// [`super::thread::ThreadName`]: what the program itself calls a thread.
    ThreadName = 16,
    /// [`super::code::MoreLines`]: more of the line table of a code object.
    MoreLines = 17,
    /// [`super::clocks::Clocks`]: the collector's clocks at one moment.
    Clocks = 20,
    /// [`super::charge::ProcessEnd`]: what a process and the children that it waited for had used
    /// when it was looked at for the last time.
    ProcessEnd = 21,
    /// [`super::charge::ChildEnd`]: what the kernel charged a child until its end.
    ChildEnd = 22,
    /// [`super::thread::ThreadAccount`]: a thread that was never sampled, said at its end.
    ThreadAccount = 24,
    /// [`super::names::NamesPart`]: names of functions, appended when all else is written.
    Names = 30,
}

impl RecordKind {
    /// The kind of that number, if this version knows it.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Process,
            2 => Self::Event,
            3 => Self::Module,
            4 => Self::ModuleGone,
            5 => Self::Thread,
            6 => Self::ThreadEnd,
            7 => Self::Sample,
            8 => Self::Session,
            9 => Self::PerfMap,
            10 => Self::SegmentTotals,
            11 => Self::Kernel,
            12 => Self::Source,
            13 => Self::Code,
            14 => Self::CodeGone,
            15 => Self::Labels,
            16 => Self::ThreadName,
            17 => Self::MoreLines,
            20 => Self::Clocks,
            21 => Self::ProcessEnd,
            22 => Self::ChildEnd,
            24 => Self::ThreadAccount,
            30 => Self::Names,
            _ => return None,
        })
    }

    /// Whether only the collector writes such records: in a segment they are not true.
    #[must_use]
    pub const fn is_of_the_collector(self) -> bool {
        matches!(
            self,
            Self::Session
                | Self::PerfMap
                | Self::SegmentTotals
                | Self::Source
                | Self::Clocks
                | Self::Names
        )
    }
}

/// Frames a record in place: `buffer` holds the payload of `payload_length` bytes behind
/// [`HEADER_SIZE`] bytes of room. Gives the record's whole length, a multiple of 8, or `None` if
/// padding or length field do not hold it.
///
/// # Signal safety
/// Writes into the caller's buffer only.
#[must_use]
pub fn seal(buffer: &mut [u8], kind: RecordKind, payload_length: usize) -> Option<usize> {
    let unpadded = HEADER_SIZE.checked_add(payload_length)?;
    let length = unpadded.checked_next_multiple_of(8)?;
    let words = u16::try_from(length >> 3).ok()?;
    buffer.get_mut(unpadded..length)?.fill(0);
    let payload = buffer.get(HEADER_SIZE..length)?;
    let check = check(words, kind as u8, payload);
    let header = u64::from(words) | u64::from(kind as u8) << 16 | u64::from(check) << 32;
    buffer
        .get_mut(..HEADER_SIZE)?
        .copy_from_slice(&header.to_le_bytes());
    Some(length)
}

/// A record as found: its kind may be unknown to this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Number of the kind; see [`RecordKind::from_number`].
    pub kind: u8,
    /// The payload, with up to seven bytes of padding.
    pub payload: &'a [u8],
    /// Bytes of the whole record.
    pub length: usize,
}

/// Reads the record at the start of `bytes`.
///
/// # Errors
/// [`WireError::Truncated`], [`WireError::BadLength`], [`WireError::BadCheck`].
pub fn parse(bytes: &[u8]) -> Result<RawRecord<'_>, WireError> {
    let (record, stored, computed) = read(bytes)?;
    if computed != stored {
        return Err(WireError::BadCheck { stored, computed });
    }
    Ok(record)
}

/// The record at the start of `bytes`, with the check that is stored in it, and the one of its
/// content.
fn read(bytes: &[u8]) -> Result<(RawRecord<'_>, u32, u32), WireError> {
    let (header, _) = bytes
        .split_first_chunk::<HEADER_SIZE>()
        .ok_or(WireError::Truncated("a record header"))?;
    let header = u64::from_le_bytes(*header);
    let words = header as u16;
    let kind = (header >> 16) as u8;
    let stored = (header >> 32) as u32;
    let length = usize::from(words).wrapping_shl(3);
    let payload = bytes
        .get(HEADER_SIZE..length)
        .ok_or(WireError::BadLength(length as u64))?;
    let record = RawRecord {
        kind,
        payload,
        length,
    };
    Ok((record, stored, check(words, kind, payload)))
}

/// So many records have one check for all of them where checks are merged.
const GROUP: usize = 16;

/// Of records that lie one behind the other, leaves out the checks but one for every 16 (or for
/// fewer at the end), in the last of them: nothing else takes so much room where it is packed. Ends
/// where a check is not right.
pub fn merge_checks(records: &mut [u8]) {
    let mut rest = records;
    while let Some(group) = Group::first_of(rest) {
        let (own, behind) = rest.split_at_mut(group.length);
        let mut are_right = true;
        each(own, |stored, check| {
            are_right &= *stored == check.to_le_bytes()
        });
        if !are_right {
            return;
        }
        each(own, |stored, _| *stored = [0; 4]);
        if let Some(stored) = own.get_mut(group.last..).and_then(stored) {
            *stored = group.check.to_le_bytes();
        }
        rest = behind;
    }
}

/// Puts the checks back that were left out. Records whose common check is not right keep what they
/// have, which is no check of theirs.
pub fn part_checks(records: &mut [u8]) {
    let mut rest = records;
    while let Some(group) = Group::first_of(rest) {
        let (own, behind) = rest.split_at_mut(group.length);
        let common = own.get_mut(group.last..).and_then(stored);
        if common.is_some_and(|common| *common == group.check.to_le_bytes()) {
            each(own, |stored, check| *stored = check.to_le_bytes());
        }
        rest = behind;
    }
}

/// Records that have a check in common.
struct Group {
    length: usize,
    /// Where the last of them begins.
    last: usize,
    check: u32,
}

impl Group {
    fn first_of(records: &[u8]) -> Option<Self> {
        let mut group = Self {
            length: 0,
            last: 0,
            check: 0,
        };
        for _ in 0..GROUP {
            let Ok((record, _, check)) = read(records.get(group.length..).unwrap_or_default())
            else {
                break;
            };
            group.check = (group.check.rotate_left(5) ^ check).wrapping_mul(0x9e37_79b1);
            group.last = group.length;
            group.length = group.length.saturating_add(record.length);
        }
        (group.length > 0).then_some(group)
    }
}

/// Gives the stored check of each of those records, and the one of its content.
fn each(records: &mut [u8], mut take: impl FnMut(&mut [u8; 4], u32)) {
    let mut rest = records;
    while let Ok((RawRecord { length, .. }, _, check)) = read(rest)
        && let Some((record, behind)) = rest.split_at_mut_checked(length)
    {
        if let Some(stored) = stored(record) {
            take(stored, check);
        }
        rest = behind;
    }
}

/// Where the check of the record is that `bytes` begin with.
fn stored(bytes: &mut [u8]) -> Option<&mut [u8; 4]> {
    bytes.get_mut(4..)?.first_chunk_mut()
}

/// A 32-bit check of a record's content: every step is a bijection of the 64-bit state, so damage
/// to a single word is always carried to the end, where one chance in 2^32 hides it. A few hundred
/// bytes cost some tens of nanoseconds.
fn check(words: u16, kind: u8, payload: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = u64::from(words) << 8 | u64::from(kind);
    let (chunks, _) = payload.as_chunks::<8>();
    for chunk in chunks {
        state = (state ^ u64::from_le_bytes(*chunk)).wrapping_mul(ODD);
        state ^= state >> 29;
    }
    (state.wrapping_mul(ODD) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_round_trips_and_any_flipped_bit_is_noticed() {
        let mut buffer = [0xaa; 64];
        buffer[8..8 + 13].copy_from_slice(b"thirteen byte");
        let length = seal(&mut buffer, RecordKind::Event, 13).unwrap();
        assert_eq!(length, 24);
        let record = parse(&buffer).unwrap();
        assert_eq!(
            (record.kind, record.payload, record.length),
            (2, &b"thirteen byte\0\0\0"[..], 24)
        );
        for bit in 0..length * 8 {
            if (24..32).contains(&bit) {
                continue; // the reserved byte
            }
            let mut damaged = buffer;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn checks_that_were_left_out_are_put_back_unless_something_is_damaged() {
        let record = |number: u8| {
            let mut buffer = [number; 64];
            let length = seal(&mut buffer, RecordKind::Event, usize::from(number)).unwrap();
            buffer[..length].to_vec()
        };
        let records: Vec<_> = (0..40).map(record).collect();
        let whole = records.concat();
        let mut short = whole.clone();
        merge_checks(&mut short);
        assert_eq!(parse_all(&short), 0);
        let part = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            part_checks(&mut bytes);
            bytes
        };
        assert_eq!(part(&short), whole);
        // One of the second group.
        let at = records[..20].concat().len();
        let mut damaged = short.clone();
        damaged[at + 9] ^= 1;
        assert_eq!(
            part(&damaged)[..records[..16].concat().len()],
            whole[..records[..16].concat().len()]
        );
        assert_eq!(parse_all(&part(&damaged)), 16);
        let behind = records[..32].concat().len();
        assert_eq!(part(&damaged)[behind..], whole[behind..]);
        // What is cut has those of the groups that are whole.
        assert_eq!(parse_all(&part(&short[..at])), 16);
        // What was damaged before stays so.
        let mut wrong = whole.clone();
        wrong[at + 9] ^= 1;
        let mut merged = wrong.clone();
        merge_checks(&mut merged);
        assert_eq!(part(&merged), wrong);
        merge_checks(&mut []);
        part_checks(&mut [0; 16]);
    }

    /// How many records are right up to the first that is not.
    fn parse_all(mut bytes: &[u8]) -> usize {
        let mut right = 0;
        while let Ok(record) = parse(bytes) {
            right += 1;
            bytes = &bytes[record.length..];
        }
        right
    }

    #[test]
    fn a_payload_without_room_for_its_padding_is_refused() {
        let mut buffer = [0; 21];
        assert_eq!(seal(&mut buffer, RecordKind::Event, 13), None);
    }
}
