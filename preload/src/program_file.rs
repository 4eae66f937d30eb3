//! What the file of a program that is to be started says about its loading: whether our library may
//! be preloaded to it.

use core::ffi::CStr;
use rsunwind::sys::File;

/// Runtimes that insist on being the first library of a program that needs them, and end it
/// otherwise.
const FIRST: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];
/// Program headers that are looked at.
const MOST_HEADERS: usize = 32;
const HEADER: usize = 56;
/// Entries of the dynamic section that are looked at.
const MOST_ENTRIES: usize = 96;
/// Compilers name those runtimes among the first libraries.
const MOST_LIBRARIES: usize = 8;

/// Whether the library may be named to that program: not to a 32-bit one, nor to one with a runtime
/// that must come first. Scripts, and what cannot be read, may.
pub fn takes_library(path: &CStr) -> bool {
    let Ok(file) = File::open(
        path.to_bytes_with_nul(),
        libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC,
        0,
    ) else {
        return true;
    };
    let mut header = [0u8; 64];
    match file.read_at(0, &mut header) {
        [0x7f, b'E', b'L', b'F', 1, ..] => false,
        start @ [0x7f, b'E', b'L', b'F', 2, ..] => {
            !must_not_be_second(&file, start).unwrap_or(false)
        }
        _ => true,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Whether the program needs one of [`FIRST`].
fn must_not_be_second(file: &File, header: &[u8]) -> Option<bool> {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    let count = (word(header, 56)? & 0xffff) as usize;
    let mut programs = [0u8; MOST_HEADERS * HEADER];
    let programs = file.read_at(word(header, 32)?, &mut programs);
    let of_kind = |kind: u32| {
        let is = move |program: &&[u8]| word(program, 0).is_some_and(|first| first as u32 == kind);
        programs.chunks_exact(HEADER).take(count).filter(is)
    };
    let dynamic = of_kind(PT_DYNAMIC).next()?;
    let mut entries = [0u8; MOST_ENTRIES * 16];
    let room = entries.get_mut(..(word(dynamic, 32)? as usize).min(MOST_ENTRIES * 16))?;
    let entries = file.read_at(word(dynamic, 8)?, room);
    let values = |tag: u64| {
        let is = move |entry: &[u8]| (word(entry, 0)? == tag).then(|| word(entry, 8))?;
        entries.chunks_exact(16).filter_map(is)
    };
    let strings = values(DT_STRTAB).next()?;
    let strings = of_kind(PT_LOAD).find_map(|program| {
        let inside = strings.checked_sub(word(program, 16)?)?;
        (inside < word(program, 32)?).then(|| word(program, 8)?.checked_add(inside))?
    })?;
    let needs = values(DT_NEEDED).take(MOST_LIBRARIES).any(|name| {
        let mut text = [0u8; 24];
        let text = file.read_at(strings.wrapping_add(name), &mut text);
        FIRST.iter().any(|first| text.starts_with(first))
    });
    Some(needs)
}
