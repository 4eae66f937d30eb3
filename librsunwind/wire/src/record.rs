//! Framing a record: length, kind, check. What is inside a payload is in the files beside this one.

use super::WireError;

/// Bytes before the payload.
pub const HEADER_SIZE: usize = 8;
/// Where its check is.
const CHECK: core::ops::Range<usize> = 4..8;

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
    let computed = check(words, kind, payload);
    if computed != stored {
        return Err(WireError::BadCheck { stored, computed });
    }
    Ok(RawRecord {
        kind,
        payload,
        length,
    })
}

/// Leaves the check out of the record that `bytes` begin with, if it is right: of no other bytes
/// can be said less shortly what they are. Gives the record's length.
pub fn leave_out_check(bytes: &mut [u8]) -> Option<usize> {
    let length = parse(bytes).ok()?.length;
    bytes.get_mut(CHECK)?.fill(0);
    Some(length)
}

/// Puts the check back into the record that `bytes` begin with, if it was left out. Gives the
/// record's length; `None` if it does not end in them.
pub fn put_check(bytes: &mut [u8]) -> Option<usize> {
    let (header, _) = bytes.split_first_chunk::<HEADER_SIZE>()?;
    let header = u64::from_le_bytes(*header);
    let words = header as u16;
    let length = usize::from(words).wrapping_shl(3);
    let check = check(words, (header >> 16) as u8, bytes.get(HEADER_SIZE..length)?);
    let place = bytes.get_mut(CHECK)?;
    if place.iter().all(|byte| *byte == 0) {
        place.copy_from_slice(&check.to_le_bytes());
    }
    Some(length)
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
    fn a_check_that_was_left_out_is_put_back_and_no_other() {
        let mut record = [0xaa; 32];
        let length = seal(&mut record, RecordKind::Event, 13).unwrap();
        let mut short = record;
        assert_eq!(leave_out_check(&mut short), Some(length));
        assert_eq!(short[4..8], [0; 4]);
        assert!(parse(&short).is_err());
        assert_eq!(put_check(&mut short[..23]), None);
        assert_eq!(put_check(&mut short), Some(length));
        assert_eq!(short, record);
        let mut wrong = record;
        wrong[9] ^= 1;
        let before = wrong;
        assert_eq!(leave_out_check(&mut wrong), None);
        assert_eq!(put_check(&mut wrong), Some(length));
        assert_eq!(wrong, before);
        assert_eq!(put_check(&mut [0; 16]), None);
    }

    #[test]
    fn a_payload_without_room_for_its_padding_is_refused() {
        let mut buffer = [0; 21];
        assert_eq!(seal(&mut buffer, RecordKind::Event, 13), None);
    }
}
