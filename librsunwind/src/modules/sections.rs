//! Where a section of a module is, by the section headers of its file, which are not mapped: the
//! `.eh_frame` without `PT_GNU_EH_FRAME`, and what an extension of Python says of itself.
//!
//! # Safety
//! None needed: bytes of a file in, addresses out. (A test reads its own program's index.)
#![cfg_attr(test, allow(unsafe_code))]

use crate::sys::File;
use crate::text::Text;
use engine::address::RuntimeAddress;
use engine::elf_image;

/// A section: the image's own address, and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The image's own address of its first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// The longest name that is looked for, with the zero byte.
const LONGEST: usize = 16;
const HEADER: usize = 64;
/// Headers read at once.
const STEP: u64 = 8;
/// Sections beyond these are not looked at.
const MOST_SECTIONS: u64 = 4096;

const SHT_PROGBITS: u32 = 1;
const SHT_X86_64_UNWIND: u32 = 0x7000_0001;
const SHF_ALLOC: u64 = 2;

/// The section of that name, which ends with a zero byte, of the image mapped at `base` from the
/// file at `path`, or from the program's own file.
pub fn section(base: RuntimeAddress, path: &[u8], name: &[u8]) -> Option<Section> {
    let mut own = Text::<1024>::new().then(path);
    in_file(base, own.path(), name).or_else(|| in_file(base, b"/proc/self/exe\0", name))
}

fn in_file(base: RuntimeAddress, path: &[u8], name: &[u8]) -> Option<Section> {
    // A path may lead to something else by now, which must not be waited for.
    let file = File::open(path, libc::O_RDONLY | libc::O_NONBLOCK, 0).ok()?;
    let mut header = [0; elf_image::HEADER];
    let header = file.read_at(0, &mut header);
    let mapped = elf_image::header_at(base)?;
    // The header tells where sections are, so that hardly another build has the same.
    if header != mapped {
        return None;
    }
    find(&file, header, name)
}

fn find(file: &File, header: &[u8], name: &[u8]) -> Option<Section> {
    let offset = word(header, 40)?;
    let count = u64::from(half(header, 60)?).min(MOST_SECTIONS);
    if usize::from(half(header, 58)?) != HEADER {
        return None;
    }
    let at = |index: u64| offset.checked_add(index.checked_mul(HEADER as u64)?);
    let mut names = [0; HEADER];
    let names = file.read_at(at(u64::from(half(header, 62)?))?, &mut names);
    let names = word(names, 24)?;
    let mut first = 0;
    while first < count {
        let mut step = [0; HEADER * STEP as usize];
        let step = file.read_at(at(first)?, &mut step);
        let (headers, _) = step.as_chunks::<HEADER>();
        if headers.is_empty() {
            return None;
        }
        let left = count.saturating_sub(first) as usize;
        let mut here = headers.iter().take(left);
        if let Some(found) = here.find_map(|header| named(file, names, header, name)) {
            return Some(found);
        }
        first = first.saturating_add(STEP);
    }
    None
}

/// The section of a header, if that is the one wanted.
fn named(file: &File, names: u64, header: &[u8; HEADER], wanted: &[u8]) -> Option<Section> {
    let kind = number(header, 4)?;
    if !matches!(kind, SHT_PROGBITS | SHT_X86_64_UNWIND) || word(header, 8)? & SHF_ALLOC == 0 {
        return None;
    }
    let mut name = [0; LONGEST];
    let name = name.get_mut(..wanted.len())?;
    let at = names.checked_add(u64::from(number(header, 0)?))?;
    (file.read_at(at, name) == wanted).then_some(Section {
        address: word(header, 16)?,
        size: word(header, 32)?,
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::{image, mapped};

    /// Whose linker wrote an index, which tells where the section is.
    #[test]
    fn the_section_of_this_program_is_where_its_index_says() {
        let own = find as *const () as u64;
        let mut buffer = [0; 1024];
        let found = mapped::find(RuntimeAddress(own), &mut buffer).unwrap();
        let section = section(found.module.start, found.path, b".eh_frame\0").unwrap();
        let hdr = found.module.eh_frame_hdr.start.0;
        // SAFETY: the index of this very program; a number relative to its own place is in its
        // second word.
        let distance = unsafe { ((hdr + 4) as *const i32).read() };
        let wanted = (hdr + 4).wrapping_add_signed(i64::from(distance));
        assert_eq!(section.address.wrapping_add(found.module.bias), wanted);
        assert!(section.size > 1000);
        // A file that is not the mapped one is not believed.
        assert_eq!(
            in_file(found.module.start, b"/bin/sh\0", b".eh_frame\0"),
            None
        );
        assert!(image::headers_at(found.module.start).is_some());
    }
}
