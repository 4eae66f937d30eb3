//! The program headers of a mapped ELF image: how far it reaches and where its unwind tables and
//! its build-id are.
//!
//! Bytes come from memory, checked before they are read, and are not trusted: a header may be
//! damaged or not be one. Not here: finding images (the runtime), sections and symbols (the
//! collector).
//!
//! # Safety
//! Makes slices of mapped memory after probing each of its pages.
#![allow(unsafe_code)]

use crate::address::RuntimeAddress;
use crate::memory;
use crate::module_map::{Module, ModuleKind, Table};
pub use crate::notes::BuildId;

/// Bytes of an ELF header.
pub const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// Program headers beyond these are not looked at.
const MOST_HEADERS: usize = 256;
/// A note segment is read up to here.
const MOST_NOTES: u64 = 4096;
/// An image larger than this is not one.
const MOST_BYTES: u64 = 1 << 40;
const PAGE: u64 = 4096;
/// Program headers that end within so many bytes of the beginning are mapped with it.
const NEAR: u64 = 8 * PAGE;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_SFRAME: u32 = 0x6474_e554;
const PF_X: u32 = 1;
const PF_R: u32 = 4;

/// What the headers of a mapped image say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElfImage {
    /// Extent, bias and tables.
    pub module: Module,
    /// The note segments, of which one may hold the build-id.
    notes: [(u64, u64); 4],
}

/// Reads the headers of the image mapped at `base`, if there is one and they are near its
/// beginning.
///
/// # Signal safety
/// As [`Headers::at`].
#[must_use]
pub fn at(base: RuntimeAddress) -> Option<ElfImage> {
    Headers::at(base, |_| None)?.image()
}

/// Reads headers from the first bytes of an image that is mapped at `base`.
///
/// # Signal safety
/// Reads `bytes` only; bounded.
#[must_use]
pub fn parse(bytes: &[u8], base: RuntimeAddress) -> Option<ElfImage> {
    let place = place_of(bytes)?;
    let table = bytes.get(usize::try_from(place.offset).ok()?..)?;
    Headers::new(table, &place, base)?.image()
}

/// The program headers of a mapped image.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    base: RuntimeAddress,
    table: &'a [[u8; PROGRAM_HEADER]],
}

/// Where the ELF header says that the program headers are, in the file.
struct HeadersPlace {
    offset: u64,
    count: usize,
}

impl HeadersPlace {
    const fn length(&self) -> u64 {
        self.count.wrapping_mul(PROGRAM_HEADER) as u64
    }
}

fn place_of(bytes: &[u8]) -> Option<HeadersPlace> {
    // 64-bit, little endian, version 1.
    if bytes.len() < HEADER
        || bytes.get(..7)? != b"\x7fELF\x02\x01\x01"
        || usize::from(half(bytes, 54)?) != PROGRAM_HEADER
    {
        return None;
    }
    Some(HeadersPlace {
        offset: word(bytes, 32)?,
        count: usize::from(half(bytes, 56)?).min(MOST_HEADERS),
    })
}

impl Headers<'static> {
    /// The headers of the image mapped at `base`. They may be anywhere in the file (tools that
    /// rewrite programs move them to its end): where they do not follow the ELF header, `elsewhere`
    /// is asked at which address that file offset is mapped.
    ///
    /// # Signal safety
    /// A probe (a system call) for each page looked at, at most twelve.
    #[must_use]
    pub fn at(base: RuntimeAddress, elsewhere: impl FnOnce(u64) -> Option<u64>) -> Option<Self> {
        let place = place_of(header_at(base)?)?;
        let end = place.offset.checked_add(place.length())?;
        if end <= NEAR {
            let from = base.0.checked_add(place.offset)?;
            return Self::new(readable(from, place.length(), Some(base.0))?, &place, base);
        }
        let from = elsewhere(place.offset)?;
        let headers = Self::new(readable(from, place.length(), None)?, &place, base)?;
        // By their own account they must be mapped where they were found.
        let own = headers.address_of(place.offset, |_| true)?;
        let bias = base.0.wrapping_sub(Extent::of(headers.table)?.first);
        (own.wrapping_add(bias) == from).then_some(headers)
    }
}

/// The ELF header of the image mapped at `base`.
///
/// # Signal safety
/// A probe, or two.
#[must_use]
pub fn header_at(base: RuntimeAddress) -> Option<&'static [u8; HEADER]> {
    let header = readable(base.0, HEADER as u64, None)?.first_chunk()?;
    place_of(header)?;
    Some(header)
}

/// Mapped bytes, if each of their pages can be read, of which that at `known` is known to be.
fn readable(from: u64, length: u64, known: Option<u64>) -> Option<&'static [u8]> {
    let end = from.checked_add(length)?;
    let mut page = from & !PAGE.wrapping_sub(1);
    while page < end {
        if Some(page) != known && !memory::is_readable(page) {
            return None;
        }
        page = page.checked_add(PAGE)?;
    }
    // SAFETY: every page was just found readable; they are those of an image that is in use.
    Some(unsafe { memory::mapped(from, end) })
}

impl<'a> Headers<'a> {
    fn new(table: &'a [u8], place: &HeadersPlace, base: RuntimeAddress) -> Option<Self> {
        let (table, _) = table.as_chunks::<PROGRAM_HEADER>();
        let table = table.get(..place.count)?;
        Some(Self { base, table })
    }

    fn each(&self) -> impl Iterator<Item = Header> + use<'a> {
        self.table.iter().map(Header::read)
    }

    /// What they say of the image.
    ///
    /// # Signal safety
    /// Reads the headers only; bounded.
    #[must_use]
    pub fn image(&self) -> Option<ElfImage> {
        let extent = Extent::of(self.table)?;
        let bias = self.base.0.wrapping_sub(extent.first);
        let size = extent.end.wrapping_sub(extent.first);
        self.base.0.checked_add(size)?;
        let mut image = ElfImage::default();
        image.module.bias = bias;
        image.module.start = self.base;
        image.module.end = RuntimeAddress(extent.end.wrapping_add(bias));
        image.module.kind = ModuleKind::Elf;
        let mut notes = image.notes.iter_mut();
        for header in self.each() {
            match header.kind {
                PT_GNU_EH_FRAME => {
                    let length = header.memory_size;
                    image.module.eh_frame_hdr = self.table_at(header.address, length, bias);
                }
                PT_GNU_SFRAME => {
                    let length = header.memory_size;
                    image.module.sframe = self.table_at(header.address, length, bias);
                }
                PT_NOTE if header.is_inside(&extent) => {
                    if let Some(place) = notes.next() {
                        let start = header.address.wrapping_add(bias);
                        *place = (start, start.wrapping_add(header.file_size.min(MOST_NOTES)));
                    }
                }
                _ => {}
            }
        }
        Some(image)
    }

    /// The image's own address of the code at a file offset; or, where a page of the file is mapped
    /// that begins before the code, of the beginning of the page.
    ///
    /// # Signal safety
    /// Reads the headers only; bounded.
    #[must_use]
    pub fn address_of_code(&self, offset: u64) -> Option<u64> {
        self.address_of(offset, |header| header.flags & PF_X != 0)
    }

    fn address_of(&self, offset: u64, wanted: impl Fn(&Header) -> bool) -> Option<u64> {
        let holds = |header: &Header| {
            let first = header.offset & !PAGE.wrapping_sub(1);
            let end = header.offset.checked_add(header.file_size);
            header.kind == PT_LOAD
                && wanted(header)
                && first <= offset
                && end.is_some_and(|end| offset < end)
        };
        let header = self.each().find(holds)?;
        let distance = offset.wrapping_sub(header.offset);
        Some(header.address.wrapping_add(distance))
    }

    /// A table at one of the image's own addresses, if it starts in the file part of a readable
    /// segment.
    ///
    /// # Signal safety
    /// Reads the headers only; bounded.
    #[must_use]
    pub fn table_at(&self, address: u64, length: u64, bias: u64) -> Table {
        let holds = |load: &Header| {
            let offset = address.checked_sub(load.address);
            load.kind == PT_LOAD
                && load.flags & PF_R != 0
                && load.file_size <= load.memory_size
                && offset.is_some_and(|offset| offset < load.file_size)
        };
        let Some(load) = self.each().find(holds) else {
            return Table::default();
        };
        let at = |address: u64| RuntimeAddress(address.wrapping_add(bias));
        let load_end = load.address.wrapping_add(load.file_size);
        let end = address.saturating_add(length).min(load_end);
        Table {
            start: at(address),
            end: at(end),
            readable: (at(load.address), at(load_end)),
        }
    }
}

impl ElfImage {
    /// The note segments of the mapped image, and where they are mapped.
    ///
    /// # Signal safety
    /// A probe for each page looked at.
    pub fn notes(&self) -> impl Iterator<Item = (u64, &'static [u8])> + use<> {
        let places = self.notes.into_iter();
        places.filter_map(|(start, end)| {
            Some((start, readable(start, end.checked_sub(start)?, None)?))
        })
    }

    /// The build-id, from the note segments of the mapped image.
    ///
    /// # Signal safety
    /// As above.
    #[must_use]
    pub fn build_id(&self) -> BuildId {
        let found = self.notes().find_map(|(_, notes)| BuildId::among(notes));
        found.unwrap_or_default()
    }
}

/// The lowest and highest address that segments are mapped to, on page boundaries.
struct Extent {
    first: u64,
    end: u64,
}

impl Extent {
    fn of(headers: &[[u8; PROGRAM_HEADER]]) -> Option<Self> {
        let mut extent = Self {
            first: u64::MAX,
            end: 0,
        };
        for header in headers.iter().map(Header::read) {
            if header.kind == PT_LOAD {
                let end = header.address.checked_add(header.memory_size)?;
                extent.first = extent.first.min(header.address & !PAGE.wrapping_sub(1));
                extent.end = extent.end.max(end.checked_next_multiple_of(PAGE)?);
            }
        }
        let size = extent.end.checked_sub(extent.first)?;
        (size > 0 && size <= MOST_BYTES).then_some(extent)
    }
}

struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
}

impl Header {
    fn read(bytes: &[u8; PROGRAM_HEADER]) -> Self {
        Self {
            kind: number(bytes, 0).unwrap_or(0),
            flags: number(bytes, 4).unwrap_or(0),
            offset: word(bytes, 8).unwrap_or(0),
            address: word(bytes, 16).unwrap_or(0),
            file_size: word(bytes, 32).unwrap_or(0),
            memory_size: word(bytes, 40).unwrap_or(0),
        }
    }

    fn is_inside(&self, extent: &Extent) -> bool {
        let end = self.address.checked_add(self.file_size);
        self.address >= extent.first && end.is_some_and(|end| end <= extent.end)
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}
