//! The library that is brought into processes, as the build script made it: its image for an
//! address, relocated.

use crate::remote_memory::RemoteMemory;
use object::elf::{PF_W, PF_X, PT_LOAD, R_X86_64_GLOB_DAT, R_X86_64_RELATIVE};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
use std::fs;
use std::ops::Range;

/// Its file.
static CONTENT: &[u8] = include_bytes!(env!("RSUNWIND_INSIDE_SO"));
/// How it begins in a process: an ELF file, with a mark of ours where nobody looks in memory.
const MARK: [u8; 16] = *b"\x7fELF\x02\x01\x01\0\0rsunwin";
/// Where it then says who brought it in: an ELF file has its entry there, and this has none.
const RECORDER: usize = 24;
/// Bytes at its beginning that have its sum (build-id).
const HEAD: Range<usize> = 32..0x294;

pub(super) const PAGE: u64 = 4096;

/// What the collector has a thread call.
pub(super) const BEGIN: &str = "rsunwind_inside_begin";
pub(super) const END: &str = "rsunwind_inside_end";
pub(super) const UNMAP: &str = "rsunwind_inside_unmap";
pub(super) const CALLER: &str = "rsunwind_inside_call";

/// A part of the image, by its distance from the beginning.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) range: Range<u64>,
    pub(super) writable: bool,
    pub(super) executable: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Image {
    file: ElfFile64<'static>,
    pub(super) segments: Vec<Segment>,
    /// Bytes that it spans.
    pub(super) span: u64,
    /// Who brings it in: this process, though another one may see to it.
    recorder: u32,
}

impl Image {
    /// Reads it; `None` if it is not what the build script should have made.
    pub(super) fn read() -> Option<Self> {
        let file = ElfFile64::parse(CONTENT).ok()?;
        let headers = file.elf_program_headers().iter();
        let loaded = headers.filter(|header| header.p_type(file.endian()) == PT_LOAD);
        let segments: Vec<Segment> = loaded
            .map(|header| {
                let start = header.p_vaddr(file.endian());
                let end = start + header.p_memsz(file.endian());
                let has = |flag| header.p_flags(file.endian()) & flag != 0;
                Segment {
                    range: start & !(PAGE - 1)..end.next_multiple_of(PAGE),
                    writable: has(PF_W),
                    executable: has(PF_X),
                }
            })
            .collect();
        let span = segments.iter().map(|segment| segment.range.end).max()?;
        Some(Self {
            file,
            segments,
            span,
            recorder: std::process::id(),
        })
    }

    /// What of it nobody writes to, in parts that do not touch.
    pub(super) fn constant(&self) -> Vec<Range<u64>> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        for segment in self.segments.iter().filter(|segment| !segment.writable) {
            match parts.last_mut() {
                Some(last) if last.end == segment.range.start => last.end = segment.range.end,
                _ => parts.push(segment.range.clone()),
            }
        }
        parts
    }

    /// Where a function of its is, from its beginning.
    pub(super) fn function(&self, name: &str) -> Option<u64> {
        let mut symbols = self.file.dynamic_symbols();
        let found = symbols.find(|symbol| symbol.name() == Ok(name) && symbol.is_definition());
        found.map(|symbol| symbol.address())
    }

    /// What it needs of libc, if that has it.
    pub(super) fn wanted(&self) -> Vec<String> {
        let undefined = self.file.dynamic_symbols().filter(|s| s.is_undefined());
        let names = undefined.filter_map(|symbol| symbol.name().ok());
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// How the image begins: enough to know it by.
    pub(super) fn head(&self) -> Option<Vec<u8>> {
        let mut head = CONTENT.get(..HEAD.end)?.to_vec();
        self.mark(&mut head)?;
        Some(head)
    }

    fn mark(&self, bytes: &mut [u8]) -> Option<()> {
        bytes.get_mut(..MARK.len())?.copy_from_slice(&MARK);
        let recorder = bytes.get_mut(RECORDER..)?.first_chunk_mut()?;
        *recorder = self.recorder.to_le_bytes();
        Some(())
    }

    /// Whether it has begun to be where it is in a process: its code can be run.
    pub(super) fn has_begun(&self, pid: u32, base: u64) -> bool {
        let code = self.segments.iter().find(|segment| segment.executable);
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        code.is_some_and(|code| {
            let start = base + code.range.start;
            let mut modes = maps.lines().filter_map(|line| {
                let (range, rest) = line.split_once(' ')?;
                let (from, to) = range.split_once('-')?;
                let [from, to] = [from, to].map(|word| u64::from_str_radix(word, 16).ok());
                (from?..to?).contains(&start).then_some(rest)
            });
            let mode = modes.next().and_then(|rest| rest.split(' ').next());
            mode.is_some_and(|mode| mode.contains('x'))
        })
    }

    /// The image at an address, as far as it is not zeros; `known` gives the addresses of
    /// functions, 0 for those that are not there.
    pub(super) fn at(&self, base: u64, known: impl Fn(&str) -> u64) -> Option<Vec<u8>> {
        let endian = self.file.endian();
        let mut bytes = Vec::new();
        for header in self.file.elf_program_headers() {
            if header.p_type(endian) == PT_LOAD {
                let start = usize::try_from(header.p_vaddr(endian)).ok()?;
                let data = header.data(endian, CONTENT).ok()?;
                let end = start.checked_add(data.len())?;
                bytes.resize(end.max(bytes.len()), 0);
                bytes.get_mut(start..end)?.copy_from_slice(data);
            }
        }
        for (offset, relocation) in self.file.dynamic_relocations()? {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return None;
            };
            let value = match (r_type, relocation.target()) {
                (R_X86_64_RELATIVE, _) => base.wrapping_add_signed(relocation.addend()),
                (R_X86_64_GLOB_DAT, RelocationTarget::Symbol(index)) => {
                    let symbol = self.file.dynamic_symbol_table()?.symbol_by_index(index);
                    let symbol = symbol.ok()?;
                    match symbol.is_definition() {
                        true => base.wrapping_add(symbol.address()),
                        false => known(symbol.name().ok()?),
                    }
                }
                _ => return None,
            };
            let at = usize::try_from(offset).ok()?;
            let place = bytes.get_mut(at..at.checked_add(8)?)?;
            place.copy_from_slice(&value.to_le_bytes());
        }
        self.mark(&mut bytes)?;
        Some(bytes)
    }
}

/// The library as it is found in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Whether it is of this very build.
    pub(super) is_ours: bool,
    /// The process that brought it in.
    pub(super) recorder: i32,
}

/// What begins at an address of a process, if that is a library of ours, of whatever build.
pub(super) fn at(pid: u32, base: u64) -> Option<Found> {
    let mut head = [0; HEAD.end];
    let read = RemoteMemory(pid).read(base, &mut head);
    let recorder = head.get(RECORDER..)?.first_chunk()?;
    (read == HEAD.end && head.starts_with(&MARK)).then(|| Found {
        is_ours: head.get(HEAD) == CONTENT.get(HEAD),
        recorder: i32::from_le_bytes(*recorder),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_no_loader() {
        let image = Image::read().expect("an image");
        let sum = image.file.build_id().unwrap().expect("a build-id");
        let mut head = CONTENT[HEAD].windows(sum.len());
        assert!(head.any(|bytes| bytes == sum), "builds are told apart");
        for name in [BEGIN, END, UNMAP, CALLER] {
            let at = image.function(name).expect(name);
            let code = image.segments.iter().find(|part| part.executable).unwrap();
            assert!(code.range.contains(&at), "{name}");
        }
        assert!(
            image
                .segments
                .iter()
                .all(|part| !(part.writable && part.executable))
        );
        let parts = image.segments.windows(2);
        assert!(
            parts
                .into_iter()
                .all(|pair| pair[0].range.end <= pair[1].range.start)
        );
        assert!(image.wanted().iter().any(|name| name == "_dl_find_object"));
        let [low, high] = [0, 0x7000_0000_0000].map(|base| image.at(base, |_| 7).unwrap());
        assert_eq!(low.len(), high.len());
        assert!(low != high && low.len() as u64 <= image.span);
    }
}
