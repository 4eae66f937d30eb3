//! Code objects of languages: which were described to the recording, under which number, and the
//! record that does it.
//!
//! The table forgets: an object whose place is taken by another is described again when it is met
//! again, under a new number. An entry is two words that are stored one after the other; a reader
//! takes both, and believes the number only if they give the key it looks for.
//!
//! # Safety
//! The table is mapped once and stays; a fork child, whose recording is another one, finds it
//! wiped. Descriptions are the caller's.
#![allow(unsafe_code)]

use super::layout::{Code, Line};
use crate::error::Error;
use crate::process::PROCESS;
use crate::thread::ThreadState;
use crate::{clock, sys};
use core::ptr;
use core::slice;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU64};
use engine::mix::mix;
use engine::wire::code::{self, LONGEST_FILE, LONGEST_LINES, LONGEST_NAME, LineFormat};
use engine::wire::codec::Encoder;
use engine::wire::record::RecordKind;

/// Entries of the table, and how many of them a key may be in.
const ENTRIES: usize = 65_536;
const WAYS: usize = 8;
type Entry = [AtomicU64; 2];
type Table = [Entry; ENTRIES];

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Makes the table, unless it is there.
pub(super) fn prepare() -> Result<(), Error> {
    if !TABLE.load(Acquire).is_null() {
        return Ok(());
    }
    let length = size_of::<Table>();
    let memory = sys::map_anonymous(length).map_err(|_| Error::Memory)?;
    sys::advise(memory, length, libc::MADV_WIPEONFORK);
    let made = TABLE.compare_exchange(ptr::null_mut(), memory.cast(), AcqRel, Acquire);
    if made.is_err() {
        // SAFETY: nobody has seen it.
        unsafe { sys::unmap(memory, length) };
    }
    Ok(())
}

fn table() -> Option<&'static Table> {
    // SAFETY: null, or zeroed memory of that size, which is an empty table; it stays.
    unsafe { TABLE.load(Acquire).as_ref() }
}

/// A number for a code object: never 0, and never given again.
pub(super) fn new_number() -> u64 {
    NEXT.fetch_add(1, Relaxed)
}

/// What stands for a code object in the table; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    /// Of the object that a language knows by `id`; `check` is another when another object has
    /// taken over that id.
    pub fn new(language: usize, id: u64, check: u64) -> Self {
        let mixed = mix(mix(id ^ (language as u64 + 1) << 56) ^ check);
        Self(mixed.max(1))
    }

    fn ways(self) -> impl Iterator<Item = &'static Entry> {
        let first = self.0 as usize % ENTRIES / WAYS * WAYS;
        let line = table().and_then(|table| table.get(first..first.wrapping_add(WAYS)));
        line.unwrap_or_default().iter()
    }
}

/// The number under which an object was described.
///
/// # Signal safety
/// Loads only.
pub(super) fn find(key: Key) -> Option<u64> {
    key.ways().find_map(|[number, check]| {
        let number = number.load(Relaxed);
        (number != 0 && mix(number) ^ check.load(Relaxed) == key.0).then_some(number)
    })
}

fn insert(key: Key, number: u64) {
    let free = key.ways().find(|[found, _]| found.load(Relaxed) == 0);
    let entry = free.or_else(|| key.ways().nth(number as usize % WAYS));
    if let Some([found, check]) = entry {
        found.store(number, Relaxed);
        check.store(mix(number) ^ key.0, Relaxed);
    }
}

/// A description that was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described<'a> {
    pub name: &'a [u8],
    pub file: &'a [u8],
    pub lines: &'a [Line],
    pub first_line: u32,
    pub is_direct: bool,
}

/// # Safety
/// What the description points at can be read.
pub(super) unsafe fn look_at<'a>(code: *const Code) -> Result<Described<'a>, Error> {
    // SAFETY: null or the caller's.
    let code = unsafe { code.as_ref() }.ok_or(Error::Null)?;
    let is_wrong = (code.name.is_null() && code.name_length != 0)
        || (code.file.is_null() && code.file_length != 0)
        || (code.lines.is_null() && code.line_count != 0);
    if code.size != size_of::<Code>() || is_wrong {
        return Err(Error::Null);
    }
    Ok(Described {
        // SAFETY: the caller's promise, for all three.
        name: unsafe { part(code.name.cast(), code.name_length, LONGEST_NAME) },
        // SAFETY: as above.
        file: unsafe { part(code.file.cast(), code.file_length, LONGEST_FILE) },
        // SAFETY: as above.
        lines: unsafe { part(code.lines, code.line_count, LONGEST_LINES) },
        first_line: code.first_line,
        is_direct: code.direct != 0,
    })
}

/// # Safety
/// So many can be read there.
unsafe fn part<'a, T>(start: *const T, count: usize, most: usize) -> &'a [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(start, count.min(most)) }
}

/// Writes a description to the recording, and keeps the number for the key. Nothing is kept if it
/// could not be written: then it is tried again at the next sample.
///
/// # Signal safety
/// As writing a record.
pub(super) fn describe(
    this: &ThreadState,
    key: Key,
    number: u64,
    language: &[u8],
    described: &Described<'_>,
) {
    let mut buffer = [0u8; LONGEST_LINES];
    let (format, lines) = lines_of(described, &mut buffer);
    let code = code::Code {
        language,
        name: described.name,
        file: described.file,
        first_line: described.first_line,
        format,
        lines,
        ..code::Code::default()
    };
    write(this, Some(key), number, code);
}

/// The same of a description as it is written. Its number and time are given here. Without a key
/// the object is described again at the next sample.
pub(super) fn write(this: &ThreadState, key: Option<Key>, number: u64, mut code: code::Code<'_>) {
    code.number = number;
    code.time_ns = clock::monotonic_ns();
    let is_written = this.write(RecordKind::Code, |out| code.encode(out));
    if let Some(key) = key.filter(|_| is_written || !PROCESS.is_active()) {
        insert(key, number);
    }
}

/// The line table as it is written: as many rows as there is room for.
pub(super) fn lines_of<'b>(
    described: &Described<'_>,
    buffer: &'b mut [u8],
) -> (LineFormat, &'b [u8]) {
    if described.is_direct {
        return (LineFormat::Direct, &[]);
    }
    /// Bytes of a row, at most.
    const ROW: usize = 10;
    let mut before = (0, described.first_line);
    let (mut end, room) = (0usize, buffer.len());
    for line in described.lines {
        let row = (line.position, line.line);
        if row.0 < before.0 || end.saturating_add(ROW) > room {
            break;
        }
        let mut out = Encoder::new(buffer.get_mut(end..).unwrap_or_default());
        code::put_step(&mut out, before, row);
        end = end.saturating_add(out.finish().unwrap_or(0));
        before = row;
    }
    match buffer.get(..end) {
        Some(lines) if end > 0 => (LineFormat::Steps, lines),
        _ => (LineFormat::None, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_told_apart_by_language_id_and_check() {
        prepare().unwrap();
        let keys: Vec<Key> = (0..3)
            .flat_map(|n| [(n, 7, 7), (1, n as u64, 9), (1, 9, n as u64)])
            .map(|(language, id, check)| Key::new(language, id, check))
            .collect();
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key));
            assert_eq!(find(*key), None);
            insert(*key, index as u64 + 1);
        }
        for (key, number) in keys.iter().zip(1..) {
            assert_eq!(find(*key), Some(number));
        }
    }

    #[test]
    fn an_object_may_be_forgotten_but_never_mistaken() {
        prepare().unwrap();
        let key = |id: u64| Key::new(5, id, 0);
        for id in 1..=200_000u64 {
            insert(key(id), id);
        }
        let known = (1..=200_000).filter_map(|id| find(key(id)).map(|found| assert_eq!(found, id)));
        assert!(known.count() > 50_000);
    }

    #[test]
    fn line_tables_are_cut_to_what_there_is_room_for() {
        let lines: Vec<Line> = (0..10_000)
            .map(|row| Line {
                position: row * 300,
                line: row * 200,
            })
            .collect();
        let described = Described {
            name: b"",
            file: b"",
            lines: &lines,
            first_line: 4,
            is_direct: false,
        };
        let mut buffer = [0; 100];
        let (format, bytes) = lines_of(&described, &mut buffer);
        assert_eq!(format, LineFormat::Steps);
        let code = code::Code {
            first_line: 4,
            format,
            lines: bytes,
            ..code::Code::default()
        };
        assert_eq!(code.line(299), 0);
        assert_eq!(code.line(900), 600);
    }
}
