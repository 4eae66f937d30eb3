//! ELF files that are mapped: the sections by which stacks are unwound, the build-id, and where a
//! mapping puts them.
//!
//! Not here: names of functions (`symbolize`), which are read when a profile is made.

use super::instructions::Landmarks;
use super::registers::Bytes;
use super::source::Source;
use crate::binary::{self, Binary};
use crate::processes::Mapping;
use crate::segments::Segments;
use engine::python::tasks::TABLE;
use engine::v8::layout as v8;
use framehop::ExplicitModuleSectionInfo;
use object::read::elf::ProgramHeader as _;
use object::{Object, ObjectSection, ObjectSymbol};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// No file that was linked to be run has more sections.
const MOST_SECTIONS: usize = 4096;
/// Nor more names of what it exports, bytes.
const MOST_NAMES: u64 = 64 << 20;
/// What an image takes besides tables, about: bytes.
const OTHERS: usize = 16 << 10;

type Elf<'a> = object::File<'a, &'a Binary>;

/// An ELF file.
#[derive(Debug)]
pub(crate) struct Image {
    /// `NT_GNU_BUILD_ID`; empty if it has none.
    pub(crate) build_id: Vec<u8>,
    segments: Segments,
    /// Its own addresses, from the first to behind the last.
    range: Range<u64>,
    /// Whether nobody's loader maps the program, and it is none: it has no dynamic libraries but
    /// those that it maps for a program of its own, as valgrind does.
    pub(crate) is_static: bool,
    /// What it exports if it is CPython.
    python: Option<Python>,
    /// Where it says what Python's tasks have where, if it is `_asyncio`.
    pub(crate) asyncio: Option<u64>,
    /// Where V8's objects have what, if it is a V8 that is known.
    pub(crate) v8: Option<v8::Layout>,
    /// For framehop, which needs no instructions of such files.
    pub(crate) sections: ExplicitModuleSectionInfo<Bytes>,
    /// The addresses of its instructions, and what they tell.
    text: Range<u64>,
    landmarks: Landmarks,
    source: Source,
}

impl Image {
    /// Reads what is of use; `None` if it is no ELF file that can be.
    ///
    /// # Errors
    /// As read: another time it may be.
    pub(super) fn read(source: Source, file: File) -> io::Result<Option<Self>> {
        let mut magic = [0; 4];
        let read = file.read_at(&mut magic, 0)?;
        if magic[..read] != object::elf::ELFMAG {
            return Ok(None);
        }
        let binary = Binary::new(file.try_clone()?);
        let Ok(elf) = object::File::parse(&binary) else {
            return Ok(None);
        };
        if elf.sections().nth(MOST_SECTIONS).is_some() {
            return Ok(None);
        }
        let section = |name: &str| elf.section_by_name(name);
        let range = |name: &str| {
            let section = section(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let data = |name: &str| {
            let content = binary::content(&section(name)?)?;
            (!content.is_empty()).then(|| Bytes::from(&*content))
        };
        let names = section(".dynstr").map_or(0, |section| section.size());
        let is_named = names <= MOST_NAMES;
        if is_named {
            binary::hold(&elf, &[".dynstr"]);
        }
        let segments = Segments::of(&elf);
        let first = segments.iter().map(|segment| segment.address).min();
        let ends = segments.iter();
        let end = ends.map(|segment| segment.address.saturating_add(segment.size));
        let (Some(first), Some(end)) = (first, end.max()) else {
            return Ok(None);
        };
        let text_svma = range(".text");
        let text = text_svma.clone().unwrap_or_default();
        let place = section(".text").and_then(|section| section.file_range());
        let landmarks = match place {
            Some((offset, size)) if size == text.end - text.start => {
                Landmarks::find(&file, offset, text.clone())?
            }
            _ => Landmarks::default(),
        };
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma,
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            debug_frame: data(".debug_frame"),
            ..ExplicitModuleSectionInfo::default()
        };
        let v8 = is_named.then(|| super::exported::v8(&elf, &binary, &segments));
        Ok(Some(Self {
            build_id: elf.build_id().ok().flatten().unwrap_or_default().to_vec(),
            range: first..end,
            is_static: is_static(&elf),
            python: is_named.then(|| python(&elf)).flatten(),
            asyncio: range(".AsyncioDebug")
                .filter(|range| range.end - range.start >= TABLE)
                .map(|range| range.start),
            v8: v8.flatten(),
            text,
            landmarks,
            source,
            segments,
            sections,
        }))
    }

    /// Bytes of what is kept of it.
    pub(super) fn size(&self) -> usize {
        let sections = &self.sections;
        let [eh, header] = [&sections.eh_frame, &sections.eh_frame_hdr];
        let all = [eh, header, &sections.debug_frame];
        let tables: usize = all.into_iter().flatten().map(|bytes| bytes.len()).sum();
        tables + self.landmarks.size() + OTHERS
    }

    /// CPython, if it is that.
    pub(crate) const fn python(&self) -> Option<&Python> {
        self.python.as_ref()
    }

    /// Where a mapping of its code puts it, and the runtime address minus its own. `known` are the
    /// places where it is already: a mapping outside of them is one more of a part of its code (V8
    /// makes one of its builtins), and no more than that.
    pub(crate) fn place<'a>(
        &self,
        mapping: &Mapping,
        mut known: impl Iterator<Item = &'a Range<u64>>,
    ) -> Option<(Range<u64>, u64)> {
        let address = self.segments.address_of_code(mapping.offset)?;
        let bias = mapping.start.wrapping_sub(address);
        let runtime = |address: u64| address.wrapping_add(bias);
        let whole = runtime(self.range.start)..runtime(self.range.end);
        let range = match known.next() {
            Some(first) if *first != whole => {
                mapping.start..mapping.start.saturating_add(mapping.length)
            }
            _ => whole,
        };
        (range.start < range.end).then_some((range, bias))
    }

    /// Whether there are instructions at one of its own addresses.
    pub(crate) fn has_code(&self, address: u64) -> bool {
        self.text.contains(&address)
    }

    /// What its instructions tell.
    pub(super) const fn landmarks(&self) -> &Landmarks {
        &self.landmarks
    }

    /// Whether the file that a process calls by its name is another one by now.
    pub(super) fn is_another(&self, pid: i32) -> bool {
        self.source.is_another(pid)
    }
}

/// A loader has no loader either, but exports what programs are bound to.
fn is_static(elf: &Elf<'_>) -> bool {
    let object::File::Elf64(file) = elf else {
        return false;
    };
    let endian = file.endian();
    let mut segments = file.elf_program_headers().iter();
    let has_loader = segments.any(|segment| segment.p_type(endian) == object::elf::PT_INTERP);
    !has_loader && !elf.dynamic_symbols().any(|symbol| symbol.is_definition())
}

/// What CPython exports, in its own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Python {
    /// `_PyRuntime`.
    pub(crate) runtime: Range<u64>,
    /// `PyCode_Type`.
    pub(crate) code_type: u64,
    /// `Py_Version`: from 3.11 on.
    pub(crate) version: Option<u64>,
    /// The minor version of 3 as its functions tell, of those before.
    pub(crate) minor: u64,
    /// The loop.
    pub(crate) code: Range<u64>,
}

fn python(elf: &Elf<'_>) -> Option<Python> {
    let exported = |name: &str| {
        let mut symbols = elf.dynamic_symbols();
        symbols.find(|it| it.is_definition() && it.name_bytes() == Ok(name.as_bytes()))
    };
    let extent = |name| {
        let symbol = exported(name)?;
        Some(symbol.address()..symbol.address().saturating_add(symbol.size()))
    };
    let address = |name| exported(name).map(|symbol| symbol.address());
    Some(Python {
        runtime: extent("_PyRuntime")?,
        code_type: address("PyCode_Type")?,
        version: address("Py_Version"),
        minor: match (address("PyIter_Send"), address("PyFrame_GetCode")) {
            (Some(_), _) => 10,
            (None, Some(_)) => 9,
            _ => 8,
        },
        code: extent("_PyEval_EvalFrameDefault").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::FileId;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn the_bias_is_the_same_for_every_mapping_of_a_file() {
        let own = std::env::current_exe().unwrap();
        let pid = std::process::id().cast_signed();
        let key = (own.as_os_str().as_bytes().to_owned(), FileId::default());
        let (source, file) = Source::open(pid, &key).unwrap();
        let image = Image::read(source, file).unwrap().unwrap();
        let length = fs::metadata(&own).unwrap().len() as usize;
        assert!(image.sections.eh_frame.is_some() && image.size() < length / 4);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mut of_own = crate::processes::parse(&maps);
        of_own.retain(|mapping| mapping.path == own.as_os_str().as_bytes());
        let mut places: Vec<_> = of_own
            .iter()
            .map(|mapping| image.place(mapping, std::iter::empty()).unwrap())
            .collect();
        assert!(!places.is_empty());
        places.dedup();
        let address = the_bias_is_the_same_for_every_mapping_of_a_file as fn() as usize as u64;
        assert_eq!(places.len(), 1);
        let (range, bias) = &places[0];
        assert!(image.range.contains(&(address - bias)) && range.contains(&address));
        // One more mapping of the same code is no more than itself.
        let again = Mapping {
            start: 0x7000_0000_0000,
            length: 0x1000,
            offset: of_own[0].offset,
            ..Mapping::default()
        };
        let (copy, _) = image.place(&again, [range.clone()].iter()).unwrap();
        assert_eq!(copy, again.start..again.start + 0x1000);
    }
}
