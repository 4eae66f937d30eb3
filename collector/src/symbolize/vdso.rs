//! The vDSO: code that the kernel maps into every process, without a file. Its symbols are read
//! from our own copy, which is the recorded one if the build-ids are the same (the same kernel
//! runs).

use object::Object;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// The path under which modules record it.
pub(super) const NAME: &str = "[vdso]";

/// Our own vDSO as a file without a name, if it has that build-id.
pub(super) fn own_copy(build_id: &[u8]) -> Option<File> {
    let bytes = own_bytes().ok()?;
    let elf = object::File::parse(&*bytes).ok()?;
    if elf.build_id().ok().flatten().unwrap_or_default() != build_id {
        return None;
    }
    let mut file = tempfile::tempfile().ok()?;
    file.write_all(&bytes).ok()?;
    Some(file)
}

/// Our own vDSO: that of every process of this kernel.
pub(crate) fn own_bytes() -> io::Result<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let range = maps
        .lines()
        .find(|line| line.ends_with(NAME))
        .and_then(|line| line.split_once(' ')?.0.split_once('-'));
    let number = |text| u64::from_str_radix(text, 16).ok();
    let range = range.and_then(|(start, end)| Some((number(start)?, number(end)?)));
    let (start, end) = range.ok_or(io::ErrorKind::NotFound)?;
    let length = usize::try_from(end.saturating_sub(start)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_vdso_is_an_elf_file_with_symbols() {
        let bytes = own_bytes().unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let build_id = elf.build_id().unwrap().unwrap().to_vec();
        assert!(own_copy(&build_id).is_some());
        assert!(own_copy(&[1, 2, 3]).is_none());
        assert!(elf.dynamic_symbols().count() > 0);
    }
}
