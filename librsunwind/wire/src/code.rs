//! Code that no file has the names of: code objects of interpreters, and what a JIT made. Described
//! once by number, before the first sample that has a frame in it, so that a killed process loses
//! no names.

mod python_lines;

use super::WireError;
use super::codec::{Decoder, Encoder};

/// The name of code whose name could not be read at that moment.
pub const UNREADABLE: &str = "(unreadable)";
/// Longest name and file, and part of a line table that one record has, bytes.
pub const LONGEST_NAME: usize = 1024;
/// See there.
pub const LONGEST_FILE: usize = 4096;
/// See there.
pub const LONGEST_LINES: usize = 8192;
/// Longest line table, with what other records ([`MoreLines`]) have of it.
pub const LONGEST_TABLE: usize = 32 * LONGEST_LINES;

/// From here on are the numbers of code objects that were described from outside of their process.
pub const FROM_OUTSIDE: u64 = 1 << 40;

/// How positions in code become lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum LineFormat {
    /// There is no table, and no line known but the function's first.
    #[default]
    None = 0,
    /// Pairs of numbers, by position: what is added to the position before, from 0, and to the line
    /// before, zigzag, from the first line.
    Steps = 1,
    /// Positions are lines.
    Direct = 2,
    /// The line table of a code object of CPython 3.10, as it is there.
    Python310 = 3,
    /// Likewise of 3.11 and later, with columns.
    Python311 = 4,
    /// Likewise of 3.9 and earlier.
    Python39 = 5,
}

impl LineFormat {
    /// The format of that number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Steps,
            2 => Self::Direct,
            3 => Self::Python310,
            4 => Self::Python311,
            5 => Self::Python39,
            _ => return None,
        })
    }
}

/// A code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Code<'a> {
    /// Its number in the process: [`super::sample::Frame::pc`] of its frames. Never 0, and never
    /// used for another.
    pub number: u64,
    /// When it was described (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// First runtime address and size in bytes, of code that a JIT made; 0 and 0 for code that is
    /// interpreted.
    pub start: u64,
    /// See there.
    pub size: u64,
    /// The language's name.
    pub language: &'a [u8],
    /// As its programmers call it, qualified where the language knows how.
    pub name: &'a [u8],
    /// The source file; empty if unknown.
    pub file: &'a [u8],
    /// The first line; 0 if unknown.
    pub first_line: u32,
    /// What [`Code::lines`] is.
    pub format: LineFormat,
    /// The line table.
    pub lines: &'a [u8],
}

impl<'a> Code<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.number);
        out.number(self.time_ns);
        out.number(self.start);
        out.number(self.size);
        out.bytes(self.language);
        out.bytes(self.name);
        out.bytes(self.file);
        out.number(u64::from(self.first_line));
        out.byte(self.format as u8);
        out.bytes(self.lines);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        let number = from.number()?;
        let time_ns = from.number()?;
        let start = from.number()?;
        let size = from.number()?;
        start
            .checked_add(size)
            .ok_or(WireError::BadValue("size of code", size))?;
        let language = from.bytes()?;
        let name = from.bytes()?;
        let file = from.bytes()?;
        let first_line = from.small("first line")?;
        let format = from.byte()?;
        let format = LineFormat::from_number(format).ok_or(WireError::BadValue(
            "form of a line table",
            u64::from(format),
        ))?;
        Ok(Self {
            number,
            time_ns,
            start,
            size,
            language,
            name,
            file,
            first_line,
            format,
            lines: from.bytes()?,
        })
    }

    /// With as much of the line table as one record has, and what other records have of it.
    pub fn parts(self) -> (Self, impl Iterator<Item = MoreLines<'a>>) {
        let number = self.number;
        let offsets = (0..).step_by(LONGEST_LINES);
        let mut parts = offsets.zip(self.lines.chunks(LONGEST_LINES));
        let lines = parts.next().map_or(&[][..], |(_, lines)| lines);
        let more = parts.map(move |(offset, lines)| MoreLines {
            number,
            offset,
            lines,
        });
        (Self { lines, ..self }, more)
    }

    /// The line of a position; 0 if unknown.
    #[must_use]
    pub fn line(&self, position: u32) -> u32 {
        match self.format {
            LineFormat::None => 0,
            LineFormat::Direct => position,
            LineFormat::Steps => steps(self.lines, self.first_line, position),
            LineFormat::Python39 => python_lines::of_3_9(self.lines, self.first_line, position),
            LineFormat::Python310 => python_lines::of_3_10(self.lines, self.first_line, position),
            LineFormat::Python311 => python_lines::of_3_11(self.lines, self.first_line, position),
        }
    }
}

/// Adds a row to a table of [`LineFormat::Steps`]; `before` is the row before.
pub fn put_step(out: &mut Encoder<'_>, before: (u32, u32), (position, line): (u32, u32)) {
    out.number(u64::from(position.wrapping_sub(before.0)));
    out.difference(u64::from(before.1), u64::from(line));
}

fn steps(table: &[u8], first_line: u32, position: u32) -> u32 {
    let mut from = Decoder::new(table);
    let (mut at, mut line, mut found) = (0u64, u64::from(first_line), first_line);
    while !from.is_at_end() {
        let (Ok(step), Ok(next)) = (from.number(), from.difference(line)) else {
            break;
        };
        at = at.saturating_add(step);
        line = next;
        if at > u64::from(position) {
            break;
        }
        found = u32::try_from(line).unwrap_or(0);
    }
    found
}

/// A part of the line table of a code object, behind what its description has; it may come before
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MoreLines<'a> {
    /// [`Code::number`].
    pub number: u64,
    /// Where in the table it begins, bytes.
    pub offset: u32,
    /// The part.
    pub lines: &'a [u8],
}

impl<'a> MoreLines<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.number);
        out.number(u64::from(self.offset));
        out.bytes(self.lines);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            number: from.number()?,
            offset: from.small("offset in a line table")?,
            lines: from.bytes()?,
        })
    }
}

/// Code of a JIT that was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeGone {
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// [`Code::number`] of the code.
    pub number: u64,
}

impl CodeGone {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.time_ns);
        out.number(self.number);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            time_ns: from.number()?,
            number: from.number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_round_trips_and_cut_payloads_are_errors() {
        let code = Code {
            number: 77,
            time_ns: 5,
            start: 0x7f00_0000_1000,
            size: 300,
            language: b"toy",
            name: b"Class.method",
            file: b"a.toy",
            first_line: 12,
            format: LineFormat::Direct,
            lines: &[1, 2],
        };
        let mut buffer = [0; 128];
        let mut out = Encoder::new(&mut buffer);
        code.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Code::decode(&buffer[..length]), Ok(code));
        for cut in 0..length {
            assert!(Code::decode(&buffer[..cut]).is_err(), "cut at {cut}");
        }
        let more = MoreLines {
            number: 77,
            offset: 8192,
            lines: &[3, 4],
        };
        let mut out = Encoder::new(&mut buffer);
        more.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(MoreLines::decode(&buffer[..length]), Ok(more));
        assert!(MoreLines::decode(&buffer[..length - 1]).is_err());
        let gone = CodeGone {
            time_ns: 6,
            number: 77,
        };
        let mut out = Encoder::new(&mut buffer);
        gone.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(CodeGone::decode(&buffer[..length]), Ok(gone));
    }

    #[test]
    fn long_line_tables_are_written_in_parts() {
        let lines: Vec<u8> = (0..LONGEST_LINES * 2 + 5).map(|at| at as u8).collect();
        for length in [0, 1, LONGEST_LINES, LONGEST_LINES + 1, lines.len()] {
            let code = Code {
                number: 7,
                lines: &lines[..length],
                ..Code::default()
            };
            let (first, more) = code.parts();
            let whole = more.fold(first.lines.to_vec(), |before, part| {
                assert_eq!((part.number, part.offset as usize), (7, before.len()));
                [&before, part.lines].concat()
            });
            assert!(first.lines.len() <= LONGEST_LINES && whole == code.lines);
        }
    }

    #[test]
    fn positions_become_lines() {
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        let rows = [(4, 101), (8, 99), (300, 2000)];
        let mut before = (0, 100);
        for row in rows {
            put_step(&mut out, before, row);
            before = row;
        }
        let length = out.finish().unwrap();
        let mut code = Code {
            first_line: 100,
            format: LineFormat::Steps,
            lines: &buffer[..length],
            ..Code::default()
        };
        let lines = [0, 3, 4, 7, 8, 299, 300, u32::MAX].map(|position| code.line(position));
        assert_eq!(lines, [100, 100, 101, 101, 99, 99, 2000, 2000]);
        code.lines = &[0x80; 3];
        assert_eq!(code.line(9), 100, "damaged");
        code.format = LineFormat::Direct;
        assert_eq!(code.line(9), 9);
        code.format = LineFormat::None;
        assert_eq!(code.line(9), 0);
    }
}
