//! The code objects of a process that were met from outside, each described once.

use super::LANGUAGES;
use engine::wire::code::{Code, FROM_OUTSIDE, LineFormat, MoreLines};
use std::collections::HashMap;

/// What tells code objects of a process apart: the language's number, the object's, and what tells
/// another one there from it.
pub(super) type Key = (u8, u64, u64);

/// Bytes of memory that all of a process may take, about.
const MOST_BYTES: usize = 32 << 20;

/// A code object as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    /// Of [`LANGUAGES`].
    pub(crate) language: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) file: Vec<u8>,
    first_line: u32,
    format: LineFormat,
    lines: Vec<u8>,
}

impl Description {
    pub(super) fn new(language: u8, code: &Code<'_>) -> Self {
        Self {
            language,
            name: code.name.to_vec(),
            file: code.file.to_vec(),
            first_line: code.first_line,
            format: code.format,
            lines: code.lines.to_vec(),
        }
    }

    /// Adds to its line table what stands there from that offset on.
    pub(super) fn extend(&mut self, more: &MoreLines<'_>) {
        if self.lines.len() == more.offset as usize {
            self.lines.extend_from_slice(more.lines);
        }
    }

    /// Bytes of memory that it takes, about.
    const fn size(&self) -> usize {
        size_of::<Self>()
            + size_of::<(Key, u64)>()
            + self.name.len()
            + self.file.len()
            + self.lines.len()
    }

    /// As it goes into a recording.
    pub(crate) fn code(&self, number: u64, time_ns: u64) -> Code<'_> {
        Code {
            number,
            time_ns,
            language: LANGUAGES[usize::from(self.language)].as_bytes(),
            name: &self.name,
            file: &self.file,
            first_line: self.first_line,
            format: self.format,
            lines: &self.lines,
            ..Code::default()
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Descriptions {
    numbers: HashMap<Key, u64>,
    all: Vec<Description>,
    bytes: usize,
}

impl Descriptions {
    /// The number of a code object, which is described if it is new; `None` if it cannot be, or if
    /// there are too many.
    pub(super) fn number(
        &mut self,
        key: Key,
        describe: impl FnOnce() -> Option<Description>,
    ) -> Option<u64> {
        if let Some(known) = self.numbers.get(&key) {
            return Some(*known);
        }
        if self.bytes >= MOST_BYTES {
            return None;
        }
        let number = FROM_OUTSIDE + self.all.len() as u64;
        let description = describe()?;
        self.bytes += description.size();
        self.all.push(description);
        self.numbers.insert(key, number);
        Some(number)
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.all.len()
    }

    /// Those described behind so many others, with their numbers.
    pub(crate) fn since(&self, count: usize) -> impl Iterator<Item = (u64, &Description)> {
        (FROM_OUTSIDE..).zip(&self.all).skip(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_makes_code_without_end_is_described_as_far_as_memory_goes() {
        let mut all = Descriptions::default();
        let long = || {
            Some(Description {
                name: vec![b'f'; 1 << 20],
                ..Description::default()
            })
        };
        let mut described = (0..1000).map_while(|id| all.number((0, id, 1), long));
        let numbers: Vec<u64> = described.by_ref().collect();
        assert_eq!(numbers.len(), MOST_BYTES >> 20);
        assert_eq!(numbers.first(), Some(&FROM_OUTSIDE));
        assert_eq!(all.count(), numbers.len());
        // What is known stays so.
        assert_eq!(all.number((0, 0, 1), || None), Some(FROM_OUTSIDE));
    }
}
