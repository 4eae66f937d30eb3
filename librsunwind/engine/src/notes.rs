//! Notes of ELF images: the build-id, and where an interpreter's file describes its languages.
//!
//! Bytes are not trusted: what a note says may be anything.

use core::ops::Range;

const NT_GNU_BUILD_ID: u32 = 3;

/// The name of an interpreter's note, which `RSUNWIND_LANGUAGE_NOTE` of `rsunwind.h` writes.
const LANGUAGE: &[u8] = b"rsunwind\0";
const LANGUAGE_KIND: u32 = 1;
/// The version of such notes: of what they lead to, and of the cursor that callbacks are given.
pub const LANGUAGE_VERSION: u32 = 1;

/// Bytes that tell one build of a file from another, as the linker noted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildId {
    bytes: [u8; 32],
    length: u8,
}

impl BuildId {
    /// The bytes, empty if there is none.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }

    fn new(from: &[u8]) -> Option<Self> {
        let mut id = Self::default();
        id.bytes.get_mut(..from.len())?.copy_from_slice(from);
        id.length = u8::try_from(from.len()).ok()?;
        Some(id)
    }

    /// The build-id among notes.
    ///
    /// # Signal safety
    /// Reads `notes` only; bounded by their length.
    #[must_use]
    pub fn among(notes: &[u8]) -> Option<Self> {
        let is_it = |note: &Note<'_>| {
            note.kind == NT_GNU_BUILD_ID && note.name == b"GNU\0" && note.is_whole
        };
        let mut all = Notes::of(notes);
        let note = all.find(|note| is_it(note) && !note.content.is_empty())?;
        Self::new(note.content)
    }
}

/// Why an interpreter's note is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNote {
    /// It ends before it has said where the language is described.
    Truncated,
    /// It is of that version, not of [`LANGUAGE_VERSION`].
    Version(u32),
    /// What it leads to is not in its own file, or not where such a thing can be.
    Outside,
}

/// Where an image's languages are described, as its notes say: each in `size` bytes of `module`,
/// aligned to 8. `address` is where the notes are mapped.
///
/// # Signal safety
/// Reads `notes` only; bounded by their length.
pub fn languages(
    notes: &[u8],
    address: u64,
    module: Range<u64>,
    size: u64,
) -> impl Iterator<Item = Result<u64, BadNote>> {
    let ours = Notes::of(notes).filter(|note| note.name == LANGUAGE && note.kind == LANGUAGE_KIND);
    ours.map(move |note| {
        let version = number(note.content, 0).ok_or(BadNote::Truncated)?;
        if version != LANGUAGE_VERSION {
            return Err(BadNote::Version(version));
        }
        let distance = number(note.content, 4).ok_or(BadNote::Truncated)?;
        let here = address.wrapping_add(note.offset as u64).wrapping_add(4);
        let at = here.wrapping_add_signed(i64::from(distance.cast_signed()));
        let end = at.checked_add(size).ok_or(BadNote::Outside)?;
        let is_inside = module.start <= at && end <= module.end;
        (is_inside && at.is_multiple_of(8))
            .then_some(at)
            .ok_or(BadNote::Outside)
    })
}

/// One note.
struct Note<'a> {
    name: &'a [u8],
    kind: u32,
    /// As much of it as there is.
    content: &'a [u8],
    is_whole: bool,
    /// Where the content begins, from the beginning of all notes.
    offset: usize,
}

/// Notes, one after the other, up to the end or to nonsense.
struct Notes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Notes<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<'a> Iterator for Notes<'a> {
    type Item = Note<'a>;

    fn next(&mut self) -> Option<Note<'a>> {
        let head = self.bytes.get(self.at..)?;
        let name_size = number(head, 0)? as usize;
        let size = number(head, 4)? as usize;
        let kind = number(head, 8)?;
        let rest = head.get(12..)?;
        let name = rest.get(..name_size)?;
        let offset = padded(self.at.checked_add(12)?, name_size)?;
        // Beyond the end there is neither content nor another note.
        let rest = self.bytes.get(offset..).unwrap_or(&[]);
        let content = rest.get(..size);
        self.at = padded(offset, size).unwrap_or(usize::MAX);
        Some(Note {
            name,
            kind,
            content: content.unwrap_or(rest),
            is_whole: content.is_some(),
            offset,
        })
    }
}

/// What follows `length` bytes from `at` on, which are padded to a multiple of 4.
fn padded(at: usize, length: usize) -> Option<usize> {
    at.checked_add(length.checked_next_multiple_of(4)?)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len() as u32, content.len() as u32, kind] {
            note.extend(number.to_le_bytes());
        }
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    fn language(version: u32, distance: i32) -> Vec<u8> {
        let content = [version.to_le_bytes(), distance.to_le_bytes()].concat();
        note(LANGUAGE, LANGUAGE_KIND, &content)
    }

    fn read(notes: &[u8]) -> Vec<Result<u64, BadNote>> {
        languages(notes, 0x1000, 0x1000..0x2000, 40).collect()
    }

    #[test]
    fn a_build_id_is_found_among_other_notes() {
        let other = note(b"GNU\0", 5, b"property");
        let id = note(b"GNU\0", NT_GNU_BUILD_ID, b"\x01\x02\x03");
        let all = [other.clone(), id.clone()].concat();
        assert_eq!(BuildId::among(&all).unwrap().as_bytes(), b"\x01\x02\x03");
        assert_eq!(BuildId::among(&other), None);
        assert_eq!(BuildId::among(&id[..id.len() - 2]), None, "not whole");
        let long = note(b"GNU\0", NT_GNU_BUILD_ID, &[7; 33]);
        assert_eq!(BuildId::among(&long), None);
    }

    #[test]
    fn notes_lead_to_languages_in_their_own_file_alone() {
        // The distance counts from the word that holds it, 28 bytes behind the note's beginning.
        let here = 28;
        assert_eq!(read(&language(1, 0x100 - here)), [Ok(0x1100)]);
        assert_eq!(read(&language(1, -here)), [Ok(0x1000)]);
        let last = 0x1000 - 40;
        assert_eq!(read(&language(1, last - here)), [Ok(0x1000 + last as u64)]);
        for outside in [last + 8 - here, -8 - here, 4 - here, i32::MIN, i32::MAX] {
            assert_eq!(read(&language(1, outside)), [Err(BadNote::Outside)]);
        }
        assert_eq!(read(&language(2, 0)), [Err(BadNote::Version(2))]);
        assert_eq!(
            read(&language(u32::MAX, 0)),
            [Err(BadNote::Version(u32::MAX))]
        );
        let second = [language(1, -here), language(1, -here - 32)].concat();
        assert_eq!(read(&second), [Ok(0x1000), Ok(0x1000)]);
    }

    #[test]
    fn a_note_that_ends_early_is_refused_and_others_are_nobodys() {
        let whole = language(1, 0);
        for length in 24..whole.len() {
            assert_eq!(
                read(&whole[..length]),
                [Err(BadNote::Truncated)],
                "{length}"
            );
        }
        assert_eq!(read(&whole[..20]), []);
        assert_eq!(
            read(&note(LANGUAGE, LANGUAGE_KIND, b"\x01")),
            [Err(BadNote::Truncated)]
        );
        assert_eq!(read(&note(b"rsunwind", LANGUAGE_KIND, &[0; 8])), []);
        assert_eq!(read(&note(LANGUAGE, 2, &[0; 8])), []);
        assert_eq!(read(&[0xff; 64]), []);
        assert_eq!(read(&[]), []);
    }
}
