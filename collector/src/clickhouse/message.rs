//! The rows of a window on their way: a line for each, compressed. A line begins with a letter for
//! its table, and in tables by hash the hash in 16 digits, so that what is there already is left
//! out without looking further.

use super::table::Table;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::io::{self, Read as _, Write as _};

/// Nothing that was packed is longer, bytes: a damaged message must not fill memory.
const LONGEST: u64 = 256 << 20;

const HASH_DIGITS: usize = 16;

/// Rows that are being packed.
#[derive(Debug)]
pub(crate) struct Packer {
    out: GzEncoder<Vec<u8>>,
    /// The last one.
    line: Vec<u8>,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) table: Table,
    /// Its hash, if its table is by that.
    pub(crate) hash: u64,
    /// A JSON object.
    pub(crate) json: &'a str,
}

impl Packer {
    pub(crate) fn new() -> Self {
        Self {
            // Most of it is not sent, and the rest is compressed anew.
            out: GzEncoder::new(Vec::new(), Compression::fast()),
            line: Vec::new(),
        }
    }

    /// Adds a row; its hash counts if its table is by that.
    pub(crate) fn push(&mut self, table: Table, hash: u64, row: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        self.line.push(letter(table));
        if table.is_by_hash() {
            write!(self.line, "{hash:016x}")?;
        }
        serde_json::to_writer(&mut self.line, row)?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        self.out.finish()
    }
}

/// The lines of a message, for [`row`].
///
/// # Errors
/// If it is not as it was packed.
pub(crate) fn lines(message: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    let read = GzDecoder::new(message)
        .take(LONGEST + 1)
        .read_to_string(&mut text)?;
    match read as u64 > LONGEST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

/// The row in a line; `None` if it is none.
pub(crate) fn row(line: &str) -> Option<Row<'_>> {
    let mut letters = line.chars();
    let first = letters.next()?;
    let table = Table::ALL
        .into_iter()
        .find(|table| char::from(letter(*table)) == first)?;
    let rest = letters.as_str();
    let (hash, json) = match table.is_by_hash() {
        true => {
            let (digits, json) = rest.split_at_checked(HASH_DIGITS)?;
            (u64::from_str_radix(digits, 16).ok()?, json)
        }
        false => (0, rest),
    };
    Some(Row { table, hash, json })
}

const fn letter(table: Table) -> u8 {
    match table {
        Table::Frames => b'f',
        Table::Stacks => b'k',
        Table::Windows => b'w',
        Table::Samples => b's',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_and_what_is_none_is_none() {
        let rows = [
            (Table::Frames, u64::MAX),
            (Table::Stacks, 7),
            (Table::Windows, 0),
            (Table::Samples, 0),
        ];
        let rows = rows.map(|(table, hash)| Row {
            table,
            hash,
            json: r#"{"a":"ä\n"}"#,
        });
        let mut packer = Packer::new();
        let object = serde_json::json!({"a": "ä\n"});
        for one in &rows {
            packer.push(one.table, one.hash, &object).unwrap();
        }
        let text = lines(&packer.finish().unwrap()).unwrap();
        let read: Vec<_> = text.lines().map(|line| row(line).unwrap()).collect();
        assert_eq!(read, rows);
        for damaged in [
            "",
            "x{}",
            "f123",
            "kzzzzzzzzzzzzzzzz{}",
            "fäääääääääääääääää",
        ] {
            assert_eq!(row(damaged), None, "{damaged}");
        }
        assert!(lines(b"\x1f\x8b").is_err());
    }
}
