//! Descriptions of the code objects of languages: how they are looked at, and the record that tells
//! them. Which were told, and under which number, is in [`crate::described`].
//!
//! # Safety
//! Descriptions are the caller's.
#![allow(unsafe_code)]

use super::layout::{Code, Line};
use crate::clock;
use crate::described::{Key, insert};
use crate::error::Error;
use crate::process::PROCESS;
use crate::thread::ThreadState;
use core::slice;
use engine::wire::code::{self, LONGEST_FILE, LONGEST_LINES, LONGEST_NAME, LineFormat};
use engine::wire::codec::Encoder;
use engine::wire::record::RecordKind;

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
    keep(key, number, is_written);
}

/// More of a line table; `false` if it could not be written. The key is that of the object, with
/// the last part.
pub(super) fn write_lines(
    this: &ThreadState,
    key: Option<Key>,
    lines: code::MoreLines<'_>,
) -> bool {
    let is_written = this.write(RecordKind::MoreLines, |out| lines.encode(out));
    keep(key, lines.number, is_written);
    is_written
}

fn keep(key: Option<Key>, number: u64, is_written: bool) {
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
