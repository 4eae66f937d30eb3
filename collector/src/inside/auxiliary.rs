//! What the kernel told a program at its start.

use std::fs;

pub(super) const AT_ENTRY: u64 = 9;
pub(super) const AT_EXECFN: u64 = 31;
pub(super) const AT_SYSINFO_EHDR: u64 = 33;

/// One of the words.
pub(super) fn auxiliary(pid: u32, kind: u64) -> Option<u64> {
    let bytes = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let (words, _) = bytes.as_chunks::<16>();
    words.iter().find_map(|pair| {
        let (key, value) = pair.split_at(8);
        let is = u64::from_le_bytes(key.try_into().ok()?) == kind;
        is.then(|| u64::from_le_bytes(value.try_into().unwrap_or_default()))
    })
}
