//! Names the functions of binaries that were stripped of their symbols, by what their unwind tables
//! know: where each function begins, which makes its addresses one function (`[module+0xoffset]`),
//! and which ones have no caller, in which execution begins. Of those, `_start` is where the ELF
//! header says that the program is entered, and one of the C library is that in which threads
//! begin.
//!
//! ```text
//! FDE  pc=31750..31772      DW_CFA_undefined (rip)      <- no caller: outermost
//! ```

use super::{Named, THREAD_ENTRY};
use crate::binary;
use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian,
    ParsedEhFrameHdr, RegisterRule, UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection, ObjectSymbol};
use std::borrow::Cow;
use std::cell::LazyCell;
use std::ops::Range;

/// Bytes of an address.
const ADDRESS_SIZE: u8 = 8;

/// Names `unnamed`, addresses without a symbol, as far as they are in the tables. `image` is what
/// the binary is called. Gives the functions that were met, and from where to where they are.
pub(super) fn name<'a, 'e>(
    elf: &impl Object<'e>,
    image: &str,
    unnamed: impl Iterator<Item = (&'a u64, &'a mut Vec<Named>)>,
) -> Vec<(Range<u64>, Named)> {
    let mut met = Vec::new();
    let mut unnamed = unnamed.peekable();
    if unnamed.peek().is_none() {
        return met;
    }
    let Some(sections) = Sections::of(elf) else {
        return met;
    };
    // Not before it matters: each symbol's name is a read of its own.
    let is_libc = LazyCell::new(|| {
        let mut symbols = elf.dynamic_symbols();
        symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok("__libc_start_main"))
    });
    let mut unnamed: Vec<_> = unnamed.collect();
    unnamed.sort_unstable_by_key(|(address, _)| **address);
    let (table, header) = sections.table();
    let addresses: Vec<u64> = unnamed.iter().map(|(address, _)| **address).collect();
    table.visit(header, &addresses, |start, end, has_caller| {
        let first = addresses.partition_point(|address| *address < start);
        let behind = addresses.partition_point(|address| *address < end);
        let here = unnamed.get_mut(first..behind).unwrap_or_default();
        if here.is_empty() {
            return;
        }
        let entered = (start..end).contains(&elf.entry());
        let name = match has_caller() {
            false if entered => "_start".to_owned(),
            false if *is_libc => THREAD_ENTRY.to_owned(),
            _ => super::nameless(image, start),
        };
        let named = Named {
            start: Some(start),
            ..Named::only(name)
        };
        for (_, names) in here {
            **names = vec![named.clone()];
        }
        met.push((start..end, named));
    });
    met
}

/// From where to where those functions are that have a caller, and in which execution does not
/// begin either, sorted; `None` if there are more than `most`.
pub(super) fn called<'e>(elf: &impl Object<'e>, most: usize) -> Option<Vec<Range<u64>>> {
    let mut all = Vec::new();
    if let Some(sections) = Sections::of(elf) {
        let (table, _) = sections.table();
        let mut context = UnwindContext::new();
        table.each(|fde| {
            let range = fde.initial_address()..fde.end_address();
            let is_entry = range.contains(&elf.entry());
            if all.len() <= most && !is_entry && table.has_caller(fde, &mut context) {
                all.push(range);
            }
        });
        all.sort_unstable_by_key(|range| (range.start, range.end));
    }
    (all.len() <= most).then_some(all)
}

/// What there is of a binary's unwind tables.
struct Sections<'e> {
    frames: (u64, Cow<'e, [u8]>),
    header: Option<(u64, Cow<'e, [u8]>)>,
    return_address: gimli::Register,
}

impl<'e> Sections<'e> {
    fn of(elf: &impl Object<'e>) -> Option<Self> {
        let section = |name| {
            let section = elf.section_by_name(name)?;
            Some((section.address(), binary::content(&section)?))
        };
        Some(Self {
            return_address: match elf.architecture() {
                object::Architecture::X86_64 => gimli::X86_64::RA,
                object::Architecture::Aarch64 => gimli::AArch64::X30,
                _ => return None,
            },
            frames: section(".eh_frame")?,
            header: section(".eh_frame_hdr"),
        })
    }

    /// The table, and its index if there is one.
    fn table(&self) -> (Table<'_>, Option<&[u8]>) {
        let (address, bytes) = &self.frames;
        let bases = BaseAddresses::default().set_eh_frame(*address);
        let table = Table {
            table: EhFrame::new(bytes, LittleEndian),
            bases: match &self.header {
                Some((address, _)) => bases.set_eh_frame_hdr(*address),
                None => bases,
            },
            return_address: self.return_address,
        };
        (table, self.header.as_ref().map(|(_, bytes)| &**bytes))
    }
}

/// The functions of a table.
struct Table<'a> {
    table: EhFrame<EndianSlice<'a, LittleEndian>>,
    bases: BaseAddresses,
    return_address: gimli::Register,
}

type Fde<'a> = FrameDescriptionEntry<EndianSlice<'a, LittleEndian>>;

impl<'a> Table<'a> {
    /// Hands over the range of each function that has one of the addresses, which are sorted, and a
    /// way to ask whether it has a caller; of others it may do so, too.
    fn visit(
        &self,
        header: Option<&'a [u8]>,
        addresses: &[u64],
        mut found: impl FnMut(u64, u64, &mut dyn FnMut() -> bool),
    ) {
        let mut context = UnwindContext::new();
        let mut found = |fde: &Fde<'a>| {
            let mut has_caller = || self.has_caller(fde, &mut context);
            found(fde.initial_address(), fde.end_address(), &mut has_caller);
        };
        let header = header.map(|bytes| EhFrameHdr::new(bytes, LittleEndian));
        let header = header.and_then(|header| header.parse(&self.bases, ADDRESS_SIZE).ok());
        let Some(index) = header.as_ref().and_then(ParsedEhFrameHdr::table) else {
            self.each(found);
            return;
        };
        let mut end = 0;
        let mut is_hidden = false;
        for address in addresses {
            if *address < end {
                continue;
            }
            let fde = index.lookup(*address, &self.bases);
            let fde = fde.and_then(|fde| index.pointer_to_offset(fde));
            let cie = EhFrame::cie_from_offset;
            let fde = fde.and_then(|fde| self.table.fde_from_offset(&self.bases, fde, cie));
            match fde {
                Ok(fde) if fde.contains(*address) => {
                    found(&fde);
                    end = fde.end_address();
                }
                Ok(fde) => is_hidden |= fde.len() == 0 && fde.initial_address() <= *address,
                Err(_) => {}
            }
        }
        // Of functions that begin at one address lld has the first alone in the index, and that may
        // be one without any code.
        if is_hidden {
            self.each(found);
        }
    }

    /// Hands over all entries: without an index that is the only way, and takes long. One that
    /// cannot be read ends the walk.
    fn each(&self, mut found: impl FnMut(&Fde<'a>)) {
        let mut entries = self.table.entries(&self.bases);
        while let Ok(Some(entry)) = entries.next() {
            if let CieOrFde::Fde(partial) = entry
                && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
            {
                found(&fde);
            }
        }
    }

    fn has_caller(&self, fde: &Fde<'a>, context: &mut UnwindContext<usize>) -> bool {
        let last = fde.end_address().saturating_sub(1);
        let row = fde.unwind_info_for_address(&self.table, &self.bases, context, last);
        let rule = row.ok().map(|row| row.register(self.return_address));
        !matches!(rule, Some(Some(RegisterRule::Undefined)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_found_by_the_index_are_those_of_the_table() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = object::File::parse(&*own).unwrap();
        let section = |name| elf.section_by_name(name).unwrap();
        let (frames, header) = (section(".eh_frame"), section(".eh_frame_hdr"));
        let bases = BaseAddresses::default().set_eh_frame(frames.address());
        let table = Table {
            table: EhFrame::new(frames.data().unwrap(), LittleEndian),
            bases: bases.set_eh_frame_hdr(header.address()),
            return_address: gimli::X86_64::RA,
        };
        let found = |index, addresses: &[u64]| {
            let mut found = Vec::new();
            table.visit(index, addresses, |start, end, has_caller| {
                found.push((start, end, has_caller()));
            });
            found.sort_unstable();
            found
        };
        let all = found(None, &[]);
        let last: Vec<u64> = all.iter().map(|(_, end, _)| end - 1).collect();
        let index = header.data().ok();
        assert!(all.len() > 1000 && all.iter().any(|(.., has_caller)| !has_caller));
        assert_eq!(found(index, &last), all);
        assert_eq!(found(index, &[0, u64::MAX]), []);
    }

    /// As lld links a function that cannot be reached and so has no code, and one behind it.
    #[test]
    fn a_function_behind_an_empty_one_is_found_though_the_index_has_it_not() {
        const FRAMES: u64 = 0x1000;
        const HEADER: u64 = 0x2000;
        const CODE: u64 = 0x3000;
        let difference = |to: u64, from: u64| (to.wrapping_sub(from) as u32).to_le_bytes();
        // The rules of all: addresses are relative, the caller is at the top of the stack.
        let mut frames = vec![
            16, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b,
        ];
        frames.extend([0; 3]);
        for size in [0, 0x10] {
            let at = frames.len() as u32;
            frames.extend(16u32.to_le_bytes());
            frames.extend((at + 4).to_le_bytes());
            frames.extend(difference(CODE, FRAMES + u64::from(at) + 8));
            frames.extend(u32::to_le_bytes(size));
            frames.extend([0; 4]);
        }
        let mut header = vec![1, 0x1b, 0x03, 0x3b];
        header.extend(difference(FRAMES, HEADER + 4));
        header.extend(1u32.to_le_bytes());
        header.extend(difference(CODE, HEADER));
        header.extend(difference(FRAMES + 20, HEADER));
        let bases = BaseAddresses::default().set_eh_frame(FRAMES);
        let table = Table {
            table: EhFrame::new(&frames, LittleEndian),
            bases: bases.set_eh_frame_hdr(HEADER),
            return_address: gimli::X86_64::RA,
        };
        let found = |address| {
            let mut found = Vec::new();
            let sized = |start, end, _: &mut dyn FnMut() -> bool| found.push((start, end));
            table.visit(Some(&header), &[address], sized);
            found.retain(|(start, end)| start < end);
            found
        };
        assert_eq!(found(CODE), [(CODE, CODE + 0x10)]);
        assert_eq!(found(CODE + 0xf), [(CODE, CODE + 0x10)]);
        assert_eq!(found(CODE - 1), []);
    }

    /// As when the C library's debug file is not installed: its symbols are not asked for at all.
    #[test]
    fn threads_begin_in_the_c_library_where_its_table_has_no_caller() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find_map(|line| {
            line.split_whitespace()
                .nth(5)
                .filter(|path| path.contains("/libc.so"))
        });
        let bytes = std::fs::read(libc.unwrap()).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let mut symbols = elf.dynamic_symbols();
        let clone = symbols.find(|symbol| symbol.name() == Ok("clone")).unwrap();
        let addresses: Vec<u64> = (clone.address()..clone.address() + clone.size()).collect();
        let mut names = vec![Vec::new(); addresses.len()];
        name(&elf, "libc.so.6", addresses.iter().zip(&mut names));
        let is_entry = |named: &&Vec<Named>| named.iter().any(|one| &*one.function == THREAD_ENTRY);
        let entries = names.iter().filter(is_entry).count();
        // The half of clone that runs in the new thread, and none of that which runs in the old
        // one.
        assert!(
            entries > 4 && entries < addresses.len() / 2,
            "{entries} of {}",
            addresses.len()
        );
        assert!(
            names[0]
                .first()
                .is_none_or(|first| &*first.function != THREAD_ENTRY)
        );
    }
}
