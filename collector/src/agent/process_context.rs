//! What a process says of itself to whoever looks from outside: OpenTelemetry's process context
//! (proposal 4719), the attributes of its resource in a mapping called `OTEL_CTX`.
//!
//! ```text
//! header: | "OTEL_CTX" | version, 4 bytes | length, 4 | published at, 8 | payload's address, 8 |
//! ```
//!
//! Nothing is asked of the process. What it publishes is another's: it is bounded, and read again
//! if it changed meanwhile.
//!
//! Not here: the payload ([`super::published`]).

use super::published::{self, LONGEST_PAYLOAD};
use crate::remote_memory::RemoteMemory;
use engine::interpreter::memory::Memory as _;
use std::collections::BTreeMap;
use std::fs;

/// How the mapping may be called: of a memfd, or without a file, shared or not.
const NAMES: [&str; 3] = [
    "/memfd:OTEL_CTX",
    "[anon_shmem:OTEL_CTX]",
    "[anon:OTEL_CTX]",
];
/// So many mappings are looked into; there should be one.
const MOST_MAPPINGS: usize = 4;
/// How often a context is read that changes meanwhile.
const TRIES: usize = 3;
const SIGNATURE: u64 = u64::from_le_bytes(*b"OTEL_CTX");
const VERSION: u32 = 2;

/// Attributes that a process publishes; none if it does not, or they are not as they should be.
pub(super) fn of(pid: u32) -> BTreeMap<String, String> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mut found = places(&maps).take(MOST_MAPPINGS);
    let found = found.find_map(|place| (0..TRIES).find_map(|_| read(RemoteMemory(pid), place)));
    found.unwrap_or_default()
}

/// Where mappings of that name begin.
fn places(maps: &str) -> impl Iterator<Item = u64> {
    let named = maps.lines().filter(|line| {
        let name = line.splitn(6, ' ').nth(5).unwrap_or_default().trim_start();
        NAMES.iter().any(|one| name.starts_with(one))
    });
    named.filter_map(|line| u64::from_str_radix(line.split('-').next()?, 16).ok())
}

/// What is published there, unless it is being changed.
fn read(memory: RemoteMemory, place: u64) -> Option<BTreeMap<String, String>> {
    let half = |at: u64| memory.half(place.checked_add(at)?);
    let word = |at: u64| memory.load(place.checked_add(at)?);
    if word(0)? != SIGNATURE || half(8)? != VERSION {
        return None;
    }
    let published = word(16).filter(|ns| *ns > 0)?;
    let length = usize::try_from(half(12)?).ok()?;
    let mut payload = vec![0; Some(length).filter(|length| *length <= LONGEST_PAYLOAD)?];
    memory.copy(word(24)?, &mut payload)?;
    (word(16)? == published).then(|| published::attributes(&payload))?
}

#[cfg(test)]
#[expect(unsafe_code, reason = "a mapping of its own")]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::sys::mman::{MapFlags, ProtFlags, mmap};
    use std::fs::File;
    use std::num::NonZeroUsize;
    use std::os::unix::fs::FileExt as _;

    const LENGTH: usize = 4096;

    #[test]
    fn the_mapping_is_found_by_its_name() {
        let maps = "\
10-20 rw-p 00000000 00:00 0                          [anon:OTEL_CTX]
30-40 rw-s 00000000 00:01 9                          /memfd:OTEL_CTX (deleted)
50-60 rw-s 00000000 00:01 9                          /tmp/memfd:OTEL_CTX
70-80 rw-s 00000000 00:01 9                          [anon_shmem:OTEL_CTX]
90-a0 rw-p 00000000 00:00 0 
";
        assert_eq!(places(maps).collect::<Vec<_>>(), [0x10, 0x30, 0x70]);
    }

    /// A context of this process: the header, with the payload behind it.
    struct Context {
        file: File,
        place: u64,
    }

    impl Context {
        fn publish(payload: &[u8]) -> Self {
            let file = File::from(memfd_create("OTEL_CTX", MFdFlags::MFD_CLOEXEC).unwrap());
            file.set_len(LENGTH as u64).unwrap();
            let length = NonZeroUsize::new(LENGTH).unwrap();
            let access = ProtFlags::PROT_READ;
            // SAFETY: new memory, which is never read here.
            let place = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0) };
            let place = place.unwrap().addr().get() as u64;
            let context = Self { file, place };
            context.write(16, &1u64.to_le_bytes());
            context.write(24, &(place + 32).to_le_bytes());
            context.write(32, payload);
            context.write(8, &VERSION.to_le_bytes());
            let length = u32::try_from(payload.len()).unwrap();
            context.write(12, &length.to_le_bytes());
            context.write(0, b"OTEL_CTX");
            context
        }

        fn write(&self, at: u64, bytes: &[u8]) {
            self.file.write_all_at(bytes, at).unwrap();
        }

        fn read(&self) -> Option<BTreeMap<String, String>> {
            read(RemoteMemory(std::process::id()), self.place)
        }
    }

    #[test]
    fn what_a_process_publishes_is_read_unless_it_is_changed_or_wrong() {
        // Field 1 of field 1: key `k`, and the text `v`.
        let payload = [10, 12, 10, 10, 10, 1, b'k', 18, 5, 10, 3, b'v', b'\n', b'w'];
        assert!(of(std::process::id()).is_empty());
        let context = Context::publish(&payload);
        let said = BTreeMap::from([("k".to_owned(), "v\nw".to_owned())]);
        assert_eq!(of(std::process::id()), said);
        let wrong: [(u64, &[u8]); 6] = [
            (0, b"OTEL_CTY"),
            (8, &1u32.to_le_bytes()),
            (12, &u32::MAX.to_le_bytes()),
            (12, &(LONGEST_PAYLOAD as u32).to_le_bytes()),
            (16, &[0; 8]),
            (24, &[0xff; 8]),
        ];
        for (at, bytes) in wrong {
            let mut before = vec![0; bytes.len()];
            context.file.read_exact_at(&mut before, at).unwrap();
            context.write(at, bytes);
            assert_eq!(context.read(), None, "{bytes:?} at {at}");
            context.write(at, &before);
        }
        assert_eq!(context.read(), Some(said));
    }
}
