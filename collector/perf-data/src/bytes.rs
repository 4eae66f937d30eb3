//! Reads numbers from a part of a file, and knows where in the file it is: an error names the
//! offset.

use std::fmt;

/// A place in a file that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {:#x}: {}", self.offset, self.what)
    }
}

impl std::error::Error for Malformed {}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    bytes: &'a [u8],
    /// Where in the file the part begins.
    offset: u64,
    /// What it is, for errors.
    what: &'static str,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8], offset: u64, what: &'static str) -> Self {
        Self {
            bytes,
            offset,
            what,
        }
    }

    /// A part of the whole file.
    pub(crate) fn section(
        file: &'a [u8],
        offset: u64,
        length: u64,
        what: &'static str,
    ) -> Result<Self, Malformed> {
        let range = || {
            let start = usize::try_from(offset).ok()?;
            file.get(start..start.checked_add(usize::try_from(length).ok()?)?)
        };
        let bytes = range().ok_or_else(|| Malformed {
            offset: offset.min(file.len() as u64),
            what: format!(
                "{what} of {length} bytes reach beyond the file's end at {:#x}",
                file.len()
            ),
        })?;
        Ok(Self::new(bytes, offset, what))
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> Malformed {
        Malformed {
            offset: self.offset,
            what: what.into(),
        }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            return Err(self.error(format!(
                "the file ends, or a length is wrong, in {}",
                self.what
            )));
        };
        self.bytes = rest;
        self.offset += length as u64;
        Ok(taken)
    }

    pub(crate) fn skip(&mut self, length: u64) -> Result<(), Malformed> {
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
            .map(drop)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn short(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn word(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// As many numbers as the number before them says.
    pub(crate) fn longs(&mut self) -> Result<Vec<u64>, Malformed> {
        let count = self.long()?;
        let length = usize::try_from(count).unwrap_or(usize::MAX);
        let bytes = self.take(length.saturating_mul(8))?;
        let (longs, _) = bytes.as_chunks::<8>();
        Ok(longs.iter().map(|long| u64::from_le_bytes(*long)).collect())
    }

    /// Text up to a zero byte, or to the end.
    pub(crate) fn text(&self) -> String {
        let end = self.bytes.iter().position(|byte| *byte == 0);
        let text = self.bytes.get(..end.unwrap_or(self.bytes.len()));
        String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
    }
}
