//! ELF files that are mapped: the sections by which stacks are unwound, the build-id, and where a mapping puts them.
//!
//! Not here: names of functions (`symbolize`), which are read when a profile is made.

use super::arch::Bytes;
use super::record::Mapping;
use crate::symbolize::own_vdso;
use framehop::ExplicitModuleSectionInfo;
use object::{Object, ObjectSection, ObjectSegment};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Larger files are not read for their tables.
const LARGEST: u64 = 4 << 30;
/// The path under which the kernel reports its own code in a process.
const VDSO: &[u8] = b"[vdso]";

/// An ELF file.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// `NT_GNU_BUILD_ID`; empty if it has none.
    pub(super) build_id: Vec<u8>,
    /// Its loaded parts: file offsets, and the file's own address of the first byte.
    segments: Vec<(Range<u64>, u64)>,
    /// Its own addresses, from the first to behind the last.
    pub(super) range: Range<u64>,
    /// For framehop.
    pub(super) sections: ExplicitModuleSectionInfo<Bytes>,
}

impl Image {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let elf = object::File::parse(bytes).ok()?;
        let section = |name: &str| elf.section_by_name(name);
        let range = |name: &str| {
            let section = section(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let data = |name: &str| {
            let data = section(name)?.uncompressed_data().ok()?;
            (!data.is_empty()).then(|| Bytes::from(&*data))
        };
        let segments: Vec<_> = elf
            .segments()
            .map(|segment| {
                let (offset, length) = segment.file_range();
                (offset..offset.saturating_add(length), segment.address())
            })
            .collect();
        let ends = elf
            .segments()
            .map(|segment| segment.address().saturating_add(segment.size()));
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            text: data(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            debug_frame: data(".debug_frame"),
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Self {
            build_id: elf.build_id().ok().flatten().unwrap_or_default().to_vec(),
            range: segments.iter().map(|(_, address)| *address).min()?..ends.max()?,
            segments,
            sections,
        })
    }

    /// Runtime address minus the file's own, for a mapping of it.
    pub(super) fn bias(&self, mapping: &Mapping) -> Option<u64> {
        // A mapping begins at a page, its segment perhaps behind that: their offsets are compared by page.
        let page = |offset: u64| offset & !0xfff;
        let of_segment = |(offsets, _): &&(Range<u64>, u64)| {
            (page(offsets.start)..offsets.end).contains(&mapping.offset)
        };
        let (offsets, address) = self.segments.iter().rev().find(of_segment)?;
        let at_start = address
            .wrapping_sub(offsets.start)
            .wrapping_add(mapping.offset);
        Some(mapping.start.wrapping_sub(at_start))
    }

    /// The instructions at one of its own addresses.
    pub(super) fn code_at(&self, address: u64) -> Option<&[u8]> {
        let start = self.sections.text_svma.as_ref()?.start;
        let offset = usize::try_from(address.checked_sub(start)?).ok()?;
        self.sections.text.as_ref()?.get(offset..)
    }
}

/// Files that were read.
#[derive(Debug, Default)]
pub(super) struct Images(HashMap<Vec<u8>, Option<Arc<Image>>>);

impl Images {
    /// The file of a mapping in a process, which need not live any more; `None` if it is no ELF file that can be read.
    pub(super) fn get(&mut self, pid: i32, path: &[u8]) -> Option<Arc<Image>> {
        if let Some(known) = self.0.get(path) {
            return known.clone();
        }
        let image = read(pid, path).and_then(|bytes| Image::parse(&bytes));
        let image = image.map(Arc::new);
        self.0.insert(path.to_owned(), image.clone());
        image
    }
}

fn read(pid: i32, path: &[u8]) -> Option<Vec<u8>> {
    if path == VDSO {
        return own_vdso().ok();
    }
    let path = Path::new(OsStr::from_bytes(path));
    if !path.is_absolute() {
        return None;
    }
    // As the process sees it, which may live in a root directory of its own.
    let mut there = PathBuf::from(format!("/proc/{pid}/root")).into_os_string();
    there.push(path);
    read_file(Path::new(&there)).or_else(|| read_file(path))
}

fn read_file(path: &Path) -> Option<Vec<u8>> {
    let file = fs::metadata(path).ok()?;
    (file.is_file() && file.len() <= LARGEST)
        .then(|| fs::read(path).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bias_is_the_same_for_every_mapping_of_a_file() {
        let own = std::env::current_exe().unwrap();
        let image = Image::parse(&fs::read(&own).unwrap()).unwrap();
        assert!(image.sections.eh_frame.is_some() && image.sections.text.is_some());
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mut biases: Vec<u64> = super::super::maps::parse(&maps)
            .iter()
            .filter(|mapping| mapping.path == own.as_os_str().as_bytes())
            .map(|mapping| image.bias(mapping).unwrap())
            .collect();
        assert!(!biases.is_empty());
        biases.dedup();
        let address = the_bias_is_the_same_for_every_mapping_of_a_file as fn() as usize as u64;
        assert_eq!(biases.len(), 1);
        assert!(image.range.contains(&(address - biases[0])));
    }
}
