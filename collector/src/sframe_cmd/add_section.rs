//! [`Image`]: an ELF file, to which a loaded section is added without moving anything that is
//! there.
//!
//! ```text
//! the file as it was | padding | program headers, two more | .sframe | section names
//!                    | section headers, one more
//! ```
//!
//! The new program headers and `.sframe` are mapped by a new `PT_LOAD` behind all others;
//! `PT_GNU_SFRAME` says where the section is in it. The old headers stay where they are, unused.

use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::pod::{bytes_of, bytes_of_slice};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, U16, U32, U64};
use sframe::Address;

use super::Error;
use super::program::Program;

const PT_GNU_SFRAME: u32 = 0x6474_e554;
const SHT_GNU_SFRAME: u32 = 0x6fff_fff4;
const NAME: &[u8] = b".sframe\0";

/// Padding that is accepted for the sake of old kernels, in bytes; see [`Image::parse`].
const LARGEST_GAP: u64 = 64 << 20;

/// An ELF file of 64 bits, and where in it there is room.
pub(super) struct Image<'a> {
    bytes: &'a [u8],
    endian: Endianness,
    header: &'a FileHeader64<Endianness>,
    segments: &'a [ProgramHeader64<Endianness>],
    sections: &'a [SectionHeader64<Endianness>],
    /// Where the new segment begins in the file.
    offset: u64,
    /// Where the new segment begins in memory.
    address: u64,
    page: u64,
}

impl<'a> Image<'a> {
    /// Finds room behind the last segment.
    ///
    /// Kernels before 5.18 tell a program where its headers are by adding their place in the file
    /// to the address of the first segment. So the distance between the two is kept, with padding,
    /// unless that would be enormous.
    pub(super) fn parse(program: &'a Program) -> Result<Self, Error> {
        let bytes = &*program.bytes;
        let header =
            FileHeader64::<Endianness>::parse(bytes).map_err(|source| program.elf(source))?;
        let endian = header.endian().map_err(|source| program.elf(source))?;
        let segments = header
            .program_headers(endian, bytes)
            .map_err(|source| program.elf(source))?;
        let sections = header
            .section_headers(endian, bytes)
            .map_err(|source| program.elf(source))?;
        let loaded = || {
            segments
                .iter()
                .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        };
        let first = loaded()
            .next()
            .ok_or_else(|| program.unsuitable("it has nothing to load"))?;
        let page = loaded()
            .map(|segment| segment.p_align(endian))
            .max()
            .unwrap_or(0)
            .clamp(0x1000, 1 << 20);
        let end = loaded()
            .map(|segment| {
                segment
                    .p_vaddr(endian)
                    .saturating_add(segment.p_memsz(endian))
            })
            .max();
        let address = end.unwrap_or(0).next_multiple_of(page);
        let same_distance =
            address.wrapping_sub(first.p_vaddr(endian).wrapping_sub(first.p_offset(endian)));
        let len = bytes.len() as u64;
        let keeps_distance = same_distance >= len && same_distance - len <= LARGEST_GAP;
        let offset = if keeps_distance {
            same_distance
        } else {
            len.next_multiple_of(page)
        };
        Ok(Self {
            bytes,
            endian,
            header,
            segments,
            sections,
            offset,
            address,
            page,
        })
    }

    fn headers_len(&self) -> u64 {
        (size_of::<ProgramHeader64<Endianness>>() * (self.segments.len() + 2)) as u64
    }

    /// Where the section will be in memory.
    pub(super) fn address_of_section(&self) -> Address {
        Address(self.address + self.headers_len().next_multiple_of(8))
    }

    /// The file with the section.
    pub(super) fn with_section(&self, section: &[u8]) -> Vec<u8> {
        let section_offset = self.offset + (self.address_of_section().0 - self.address);
        let mut out = self.bytes.to_vec();
        out.resize(self.offset as usize, 0);
        out.extend_from_slice(bytes_of_slice(
            &self.new_segments(section_offset, section.len() as u64),
        ));
        out.resize(section_offset as usize, 0);
        out.extend_from_slice(section);
        let mut header = *self.header;
        header.e_phoff = U64::new(self.endian, self.offset);
        header.e_phnum = U16::new(self.endian, (self.segments.len() + 2) as u16);
        if let Some((names_at, mut sections)) =
            self.new_sections(section_offset, section.len() as u64)
        {
            let names = self.names(names_at);
            sections[names_at].sh_offset = U64::new(self.endian, out.len() as u64);
            sections[names_at].sh_size = U64::new(self.endian, names.len() as u64);
            out.extend_from_slice(&names);
            out.resize(out.len().next_multiple_of(8), 0);
            header.e_shoff = U64::new(self.endian, out.len() as u64);
            header.e_shnum = U16::new(self.endian, sections.len() as u16);
            out.extend_from_slice(bytes_of_slice(&sections));
        }
        out[..size_of::<FileHeader64<Endianness>>()].copy_from_slice(bytes_of(&header));
        out
    }

    /// The old segments, with the program headers' own moved; the new one behind the last that is
    /// loaded, for those must ascend; and the one that says where the section is.
    fn new_segments(
        &self,
        section_offset: u64,
        section_len: u64,
    ) -> Vec<ProgramHeader64<Endianness>> {
        let word = |value| U64::new(self.endian, value);
        let segment = |kind, offset: u64, len, align| {
            let address = word(self.address + (offset - self.offset));
            ProgramHeader64 {
                p_type: U32::new(self.endian, kind),
                p_flags: U32::new(self.endian, elf::PF_R),
                p_offset: word(offset),
                p_vaddr: address,
                p_paddr: address,
                p_filesz: word(len),
                p_memsz: word(len),
                p_align: word(align),
            }
        };
        let mut segments = self.segments.to_vec();
        for own in segments
            .iter_mut()
            .filter(|segment| segment.p_type(self.endian) == elf::PT_PHDR)
        {
            *own = segment(elf::PT_PHDR, self.offset, self.headers_len(), 8);
        }
        let last = segments
            .iter()
            .rposition(|segment| segment.p_type(self.endian) == elf::PT_LOAD);
        let len = section_offset + section_len - self.offset;
        segments.insert(
            last.map_or(0, |last| last + 1),
            segment(elf::PT_LOAD, self.offset, len, self.page),
        );
        segments.push(segment(PT_GNU_SFRAME, section_offset, section_len, 8));
        segments
    }

    /// The old sections and the new one; and which of them holds the names. None if the file has no
    /// sections.
    fn new_sections(
        &self,
        offset: u64,
        len: u64,
    ) -> Option<(usize, Vec<SectionHeader64<Endianness>>)> {
        let names_at = usize::from(self.header.e_shstrndx(self.endian));
        let names = self.sections.get(names_at)?;
        let word = |value| U64::new(self.endian, value);
        let mut sections = self.sections.to_vec();
        sections.push(SectionHeader64 {
            sh_name: U32::new(self.endian, names.sh_size(self.endian) as u32),
            sh_type: U32::new(self.endian, SHT_GNU_SFRAME),
            sh_flags: word(elf::SHF_ALLOC.into()),
            sh_addr: word(self.address_of_section().0),
            sh_offset: word(offset),
            sh_size: word(len),
            sh_link: U32::new(self.endian, 0),
            sh_info: U32::new(self.endian, 0),
            sh_addralign: word(8),
            sh_entsize: word(0),
        });
        Some((names_at, sections))
    }

    fn names(&self, names_at: usize) -> Vec<u8> {
        let names = self
            .sections
            .get(names_at)
            .and_then(|section| section.data(self.endian, self.bytes).ok());
        [names.unwrap_or_default(), NAME].concat()
    }
}
