//! Functions of a process's libc: their addresses, from the files that it has mapped. A file that
//! is not the mapped one any more is not believed.

use crate::binary;
use crate::processes::{self, Mapping};
use crate::remote_memory::RemoteMemory;
use object::elf::{PT_LOAD, STT_FUNC};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSymbol};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How files begin that have what is looked for.
const FILES: [&str; 4] = ["libc.so", "libc-2.", "ld-linux", "ld-musl"];
/// The part of a file that is compared, bytes: it has the file's own sums (build-id) in it.
const COMPARED: usize = 4096;

/// Of each name that is found, the address.
pub(super) fn find(pid: u32, names: &[String]) -> HashMap<String, u64> {
    let mut found = HashMap::new();
    for mapping in processes::mappings(pid.cast_signed()) {
        let path = Path::new(std::ffi::OsStr::from_bytes(&mapping.path));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if FILES.iter().any(|start| name.starts_with(start)) {
            found.extend(of_file(pid, &mapping, path, names).unwrap_or_default());
        }
    }
    found
}

fn of_file(
    pid: u32,
    mapping: &Mapping,
    path: &Path,
    names: &[String],
) -> Option<Vec<(String, u64)>> {
    let inside = path.strip_prefix("/").ok()?;
    let bytes = binary::read(&Path::new(&format!("/proc/{pid}/root")).join(inside)).ok()?;
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).ok()?;
    let endian = file.endian();
    let mut headers = file.elf_program_headers().iter();
    let code = headers.find(|header| {
        let start = header.p_offset(endian) & !4095;
        let behind = header.p_offset(endian) + header.p_filesz(endian);
        header.p_type(endian) == PT_LOAD && (start..behind).contains(&mapping.offset)
    })?;
    let vaddr = code.p_vaddr(endian).wrapping_sub(code.p_offset(endian));
    let bias = mapping
        .start
        .wrapping_sub(vaddr.wrapping_add(mapping.offset));
    let mut head = [0; COMPARED];
    let read = RemoteMemory(pid).read(bias, &mut head);
    if read != COMPARED || bytes.get(..COMPARED)? != head {
        return None;
    }
    let symbols = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.elf_symbol().st_type() == STT_FUNC);
    let wanted = symbols.filter_map(|symbol| {
        let name = symbol.name().ok()?;
        let is_wanted = names.iter().any(|wanted| wanted == name);
        is_wanted.then(|| (name.to_owned(), bias.wrapping_add(symbol.address())))
    });
    Some(wanted.collect())
}

#[cfg(test)]
mod tests {
    use super::find;
    use nix::libc;

    #[test]
    fn our_own_are_found() {
        let names = ["getpid", "no_such_function", "strlen"].map(str::to_owned);
        let found = find(std::process::id(), &names);
        assert_eq!(
            found.get("getpid"),
            Some(&(libc::getpid as *const () as u64))
        );
        assert_eq!(found.get("no_such_function"), None);
        assert_eq!(found.get("strlen"), None, "it is chosen at run time");
    }
}
