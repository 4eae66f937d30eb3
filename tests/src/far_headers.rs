//! Moves the program headers of an ELF file to its end, mapped by a segment of their own, as tools
//! do that rewrite programs (BOLT, patchelf): the room behind the ELF header does not hold one
//! header more.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

const HEADER: usize = 56;
const PAGE: u64 = 4096;
const PT_LOAD: u64 = 1;
const PT_PHDR: u64 = 6;
const READABLE: u64 = 4;

/// Rewrites the file.
///
/// # Panics
/// If it is not an ELF file for this machine that can be written.
pub fn move_headers(path: &Path) {
    let mut file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.as_mut().expect("a file to rewrite");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("it can be read");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let offset = usize::try_from(word(32)).expect("headers in the file");
    let count = usize::from(bytes[56]);
    let old = &bytes[offset..offset + count * HEADER];
    let mut headers: Vec<[u64; 7]> = old
        .chunks(HEADER)
        .map(|header| {
            let mut words = header
                .chunks(8)
                .map(|word| word.try_into().expect("8 bytes"));
            [(); 7].map(|()| u64::from_le_bytes(words.next().expect("7 words")))
        })
        .collect();
    // Words: kind and flags, offset, address, physical address, bytes in the file, in memory,
    // alignment.
    let kind = |header: &[u64; 7]| header[0] & 0xffff_ffff;
    let ends = headers.iter().filter(|header| kind(header) == PT_LOAD);
    let end = ends.map(|header| header[2] + header[5]).max();
    let address = end.expect("a segment").next_multiple_of(PAGE);
    // Far from the beginning, whatever the size of the program.
    let place = (bytes.len() as u64).next_multiple_of(PAGE) + 16 * PAGE;
    let size = (headers.len() as u64 + 1) * HEADER as u64;
    for header in headers.iter_mut().filter(|header| kind(header) == PT_PHDR) {
        header[1..6].copy_from_slice(&[place, address, address, size, size]);
    }
    let last = headers.iter().rposition(|header| kind(header) == PT_LOAD);
    let own = [
        PT_LOAD | READABLE << 32,
        place,
        address,
        address,
        size,
        size,
        PAGE,
    ];
    headers.insert(last.expect("a segment") + 1, own);
    let table: Vec<u8> = headers
        .iter()
        .flatten()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    bytes.resize(usize::try_from(place).expect("a small file"), 0);
    bytes.extend(table);
    bytes[32..40].copy_from_slice(&place.to_le_bytes());
    bytes[56] += 1;
    file.seek(SeekFrom::Start(0)).expect("a file");
    file.write_all(&bytes).expect("room for it");
}
