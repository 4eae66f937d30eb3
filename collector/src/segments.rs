//! The loaded parts of an ELF file: which of the file's own addresses a part of it gets when it is
//! mapped. They need not equal its offsets.

use object::{Object, ObjectSegment, SegmentFlags};

const PAGE: u64 = 4096;
/// ELF's PF_X.
const EXECUTABLE: u32 = 1;
/// A part with more bytes than this is damage.
const LARGEST: u64 = 1 << 40;

/// A loaded part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where in the file it begins.
    pub(crate) offset: u64,
    /// Bytes in the file.
    pub(crate) file_size: u64,
    /// The file's own address of its first byte.
    pub(crate) address: u64,
    /// Bytes in memory.
    pub(crate) size: u64,
    /// Whether it is code.
    pub(crate) executable: bool,
}

/// All of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments(Vec<Segment>);

impl Segments {
    pub(crate) fn of<'a>(elf: &object::File<'a, impl object::ReadRef<'a>>) -> Self {
        let segments = elf.segments().map(|segment| {
            let (offset, file_size) = segment.file_range();
            Segment {
                offset,
                file_size,
                address: segment.address(),
                size: segment.size(),
                executable: matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & EXECUTABLE != 0),
            }
        });
        Self(segments.filter(|segment| segment.size < LARGEST).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter()
    }

    /// The file's own address of the first byte of a mapping of its code that begins at an offset.
    /// A mapping begins at a page, its segment perhaps behind that; the page may also hold the end
    /// of another segment, which is not meant.
    pub(crate) fn address_of_code(&self, offset: u64) -> Option<u64> {
        let of_segment = |segment: &&Segment| {
            let first = segment.offset / PAGE * PAGE;
            segment.executable
                && (first..segment.offset.saturating_add(segment.file_size)).contains(&offset)
        };
        let segment = self.0.iter().find(of_segment)?;
        Some(
            segment
                .address
                .wrapping_sub(segment.offset)
                .wrapping_add(offset),
        )
    }

    /// Where in the file so many bytes are that have that address of its own.
    pub(crate) fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let end = address.checked_add(length)?;
        let has = |segment: &&Segment| {
            address >= segment.address && end <= segment.address.saturating_add(segment.file_size)
        };
        let segment = self.0.iter().find(has)?;
        (address - segment.address).checked_add(segment.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_where_segments_share_pages() {
        let segment = |offset, file_size, executable| Segment {
            offset,
            file_size,
            address: 0x40_1000 + offset,
            size: file_size,
            executable,
        };
        // As lld lays them out: each begins in the page in which the one before ends.
        let segments = Segments(vec![
            segment(0, 0x5a4, false),
            segment(0x5b0, 0x1000, true),
            segment(0x15b0, 0x200, false),
        ]);
        assert_eq!(segments.address_of_code(0), Some(0x40_1000));
        assert_eq!(segments.address_of_code(0x1000), Some(0x40_2000));
        assert_eq!(segments.address_of_code(0x2000), None);
        let offset_of = |address| segments.offset_of(address, 4);
        assert_eq!(offset_of(0x40_15b0), Some(0x5b0));
        assert_eq!(offset_of(0x40_27ac), Some(0x17ac));
        assert_eq!(offset_of(0x40_27ad), None, "its end is not in the file");
    }
}
