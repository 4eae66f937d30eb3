//! An ELF file with a symbol table and nothing else, for names of code that no file has: perf reads
//! it as it reads any program.
//!
//! Not here: what is named, and where it lies (`named_code`).

/// A function: file offset, length, name.
pub(super) type Symbol<'a> = (u64, u64, &'a str);

const HEADER: u64 = 64;
const PROGRAM: u64 = 56;
const SYMBOL: u64 = 24;
/// Where code begins: addresses in the file are offsets in it.
pub(super) const FIRST_OFFSET: u64 = 4096;
/// ELF's `st_info` of a global function, and the number of the section that all are in.
const GLOBAL_FUNCTION: u8 = 0x12;
const TEXT: u16 = 1;
const SECTION_NAMES: &[u8] = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn short(&mut self, values: &[u16]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.0.extend(bytes);
    }

    fn word(&mut self, values: &[u32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.0.extend(bytes);
    }

    fn long(&mut self, values: &[u64]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.0.extend(bytes);
    }

    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }

    fn length(&self) -> u64 {
        self.0.len() as u64
    }
}

/// The file. Its code ends at offset `end`, and has no bytes.
pub(super) fn write<'a>(symbols: impl IntoIterator<Item = Symbol<'a>>, end: u64) -> Vec<u8> {
    let mut names = vec![0];
    let mut table = Bytes::default();
    table.long(&[0, 0, 0]);
    for (offset, length, name) in symbols {
        table.word(&[u32::try_from(names.len()).unwrap_or(0)]);
        table.0.extend_from_slice(&[GLOBAL_FUNCTION, 0]);
        table.short(&[TEXT]);
        table.long(&[offset, length]);
        names.extend(name.bytes().filter(|byte| *byte != 0));
        names.push(0);
    }
    let mut out = Bytes::default();
    out.0.resize((HEADER + PROGRAM) as usize, 0);
    let table_at = out.length();
    out.0.extend_from_slice(&table.0);
    let names_at = out.length();
    out.0.extend_from_slice(&names);
    let section_names_at = out.length();
    out.0.extend_from_slice(SECTION_NAMES);
    out.align();
    let sections_at = out.length();
    let text = end.saturating_sub(FIRST_OFFSET);
    section(&mut out, [0; 10]);
    // Name, kind, flags, address, offset, size, link, info, alignment, size of an entry.
    section(
        &mut out,
        [1, 8, 6, FIRST_OFFSET, FIRST_OFFSET, text, 0, 0, 16, 0],
    );
    let length = table.length();
    section(&mut out, [7, 2, 0, 0, table_at, length, 3, 1, 8, SYMBOL]);
    let length = names.len() as u64;
    section(&mut out, [15, 3, 0, 0, names_at, length, 0, 0, 1, 0]);
    let length = SECTION_NAMES.len() as u64;
    section(
        &mut out,
        [23, 3, 0, 0, section_names_at, length, 0, 0, 1, 0],
    );
    let header = header(sections_at, text);
    if let Some(place) = out.0.get_mut(..header.len()) {
        place.copy_from_slice(&header);
    }
    out.0
}

fn section(out: &mut Bytes, fields: [u64; 10]) {
    let [
        name,
        kind,
        flags,
        address,
        offset,
        size,
        link,
        info,
        alignment,
        entry,
    ] = fields;
    let word = |value: u64| u32::try_from(value).unwrap_or(0);
    out.word(&[word(name), word(kind)]);
    out.long(&[flags, address, offset, size]);
    out.word(&[word(link), word(info)]);
    out.long(&[alignment, entry]);
}

/// The ELF header and one program header, that of the code.
fn header(sections_at: u64, text: u64) -> Vec<u8> {
    let mut out = Bytes::default();
    out.0.extend_from_slice(b"\x7fELF\x02\x01\x01");
    out.align();
    out.long(&[0]);
    let machine = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    out.short(&[3, machine]);
    out.word(&[1]);
    out.long(&[0, HEADER, sections_at]);
    out.word(&[0]);
    out.short(&[64, 56, 1, 64, 5, 4]);
    out.word(&[1, 5]); // loaded, readable and executable
    out.long(&[FIRST_OFFSET, FIRST_OFFSET, FIRST_OFFSET, 0, text, 4096]);
    out.0
}
