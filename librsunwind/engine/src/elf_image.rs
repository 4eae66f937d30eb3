//! The program headers of a mapped ELF image: how far it reaches and where its unwind tables and its build-id are.
//!
//! Bytes come from memory, checked before they are read, and are not trusted: a header may be damaged or not be one. Not here:
//! finding images (the runtime), sections and symbols (the collector).
//!
//! # Safety
//! Makes slices of mapped memory after probing each of its pages.
#![allow(unsafe_code)]

use crate::address::RuntimeAddress;
use crate::memory;
use crate::module_map::{Module, ModuleKind, Table};

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// Program headers beyond these are not looked at.
const MOST_HEADERS: usize = 256;
/// A note segment is read up to here.
const MOST_NOTES: u64 = 4096;
/// An image larger than this is not one.
const MOST_BYTES: u64 = 1 << 40;
const PAGE: u64 = 4096;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_SFRAME: u32 = 0x6474_e554;
const PF_R: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

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
}

/// What the headers of a mapped image say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElfImage {
    /// Extent, bias and tables.
    pub module: Module,
    /// The note segments, of which one may hold the build-id.
    notes: [(u64, u64); 4],
}

/// Reads the headers of the image mapped at `base`, if there is one.
///
/// # Signal safety
/// A probe (a system call) for each page looked at, at most eight.
#[must_use]
pub fn at(base: RuntimeAddress) -> Option<ElfImage> {
    if !memory::is_readable(base.0) {
        return None;
    }
    let mut end = base.0.checked_next_multiple_of(PAGE)?;
    if end == base.0 {
        end = end.checked_add(PAGE)?;
    }
    // SAFETY: the page of `base` was just found readable.
    let bytes = unsafe { memory::mapped(base.0, end) };
    let wanted = headers_end(bytes)?;
    while end.wrapping_sub(base.0) < wanted {
        if !memory::is_readable(end) {
            return None;
        }
        end = end.checked_add(PAGE)?;
    }
    // SAFETY: every page up to `end` was just found readable.
    parse(unsafe { memory::mapped(base.0, end) }, base)
}

/// How many bytes from the start the headers need.
fn headers_end(bytes: &[u8]) -> Option<u64> {
    let offset = word(bytes, 32)?;
    let count = usize::from(half(bytes, 56)?).min(MOST_HEADERS);
    let end = offset.checked_add(count.wrapping_mul(PROGRAM_HEADER) as u64)?;
    (end <= 8 * PAGE).then_some(end)
}

/// Reads headers from the first bytes of an image that is mapped at `base`.
///
/// # Signal safety
/// Reads `bytes` only; bounded.
#[must_use]
pub fn parse(bytes: &[u8], base: RuntimeAddress) -> Option<ElfImage> {
    // 64-bit, little endian, version 1.
    if bytes.get(..7)? != b"\x7fELF\x02\x01\x01" || usize::from(half(bytes, 54)?) != PROGRAM_HEADER
    {
        return None;
    }
    let table = bytes.get(usize::try_from(word(bytes, 32)?).ok()?..)?;
    let (headers, _) = table.as_chunks::<PROGRAM_HEADER>();
    let count = usize::from(half(bytes, 56)?).min(MOST_HEADERS);
    let headers = headers.get(..count)?;
    if bytes.len() < HEADER {
        return None;
    }
    let extent = Extent::of(headers)?;
    let bias = base.0.wrapping_sub(extent.first);
    let mut image = ElfImage::default();
    image.module.bias = bias;
    image.module.start = base;
    image.module.end = RuntimeAddress(extent.end.wrapping_add(bias));
    image.module.kind = ModuleKind::Elf;
    base.0.checked_add(extent.end.wrapping_sub(extent.first))?;
    let mut notes = image.notes.iter_mut();
    for header in headers.iter().map(Header::read) {
        match header.kind {
            PT_GNU_EH_FRAME => image.module.eh_frame_hdr = header.table(headers, bias),
            PT_GNU_SFRAME => image.module.sframe = header.table(headers, bias),
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

impl ElfImage {
    /// The build-id, from the note segments of the mapped image.
    ///
    /// # Signal safety
    /// A probe for each page looked at.
    #[must_use]
    pub fn build_id(&self) -> BuildId {
        let found = self.notes.iter().find_map(|&(start, end)| {
            let mut page = start & !PAGE.wrapping_sub(1);
            while page < end {
                if !memory::is_readable(page) {
                    return None;
                }
                page = page.checked_add(PAGE)?;
            }
            // SAFETY: every page of the range was just found readable.
            build_id_in(unsafe { memory::mapped(start, end) })
        });
        found.unwrap_or_default()
    }
}

/// The build-id among notes.
///
/// # Signal safety
/// Reads `notes` only; bounded by their length.
#[must_use]
pub fn build_id_in(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let name_size = number(notes, 0)? as usize;
        let size = number(notes, 4)? as usize;
        let kind = number(notes, 8)?;
        let (name, rest) = split_padded(notes.get(12..)?, name_size)?;
        let (content, rest) = split_padded(rest, size)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && !content.is_empty() {
            return BuildId::new(content);
        }
        notes = rest;
    }
}

/// Splits after `length` bytes and skips padding to a multiple of 4.
fn split_padded(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let content = bytes.get(..length)?;
    let padded = length.checked_next_multiple_of(4)?;
    Some((content, bytes.get(padded..).unwrap_or(&[])))
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
    address: u64,
    file_size: u64,
    memory_size: u64,
}

impl Header {
    fn read(bytes: &[u8; PROGRAM_HEADER]) -> Self {
        Self {
            kind: number(bytes, 0).unwrap_or(0),
            flags: number(bytes, 4).unwrap_or(0),
            address: word(bytes, 16).unwrap_or(0),
            file_size: word(bytes, 32).unwrap_or(0),
            memory_size: word(bytes, 40).unwrap_or(0),
        }
    }

    fn is_inside(&self, extent: &Extent) -> bool {
        let end = self.address.checked_add(self.file_size);
        self.address >= extent.first && end.is_some_and(|end| end <= extent.end)
    }

    /// The table that this header announces, if it starts in the file part of a readable segment.
    fn table(&self, headers: &[[u8; PROGRAM_HEADER]], bias: u64) -> Table {
        let holds = |load: &Self| {
            let offset = self.address.checked_sub(load.address);
            load.kind == PT_LOAD
                && load.flags & PF_R != 0
                && load.file_size <= load.memory_size
                && offset.is_some_and(|offset| offset < load.file_size)
        };
        let Some(load) = headers.iter().map(Self::read).find(holds) else {
            return Table::default();
        };
        let at = |address: u64| RuntimeAddress(address.wrapping_add(bias));
        let load_end = load.address.wrapping_add(load.file_size);
        let end = self.address.saturating_add(self.memory_size).min(load_end);
        Table {
            start: at(self.address),
            end: at(end),
            readable: (at(load.address), at(load_end)),
        }
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
