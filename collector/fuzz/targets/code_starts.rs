//! Reads arbitrary bytes as eight addresses and a binary, in whose code it is looked where their
//! functions begin. Nothing may panic, and a function begins before its addresses, and not far.
#![no_main]
#[path = "../../src/symbolize/code_starts.rs"]
mod code_starts;

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Of [`code_starts`], what is said of a function.
struct Named {
    start: Option<u64>,
    #[expect(dead_code, reason = "only the place is looked at")]
    name: Arc<str>,
}

impl Named {
    fn only(name: Arc<str>) -> Self {
        Self { start: None, name }
    }
}

fn nameless(image: &str, offset: u64) -> String {
    format!("{image}+{offset}")
}

/// Bytes between an address and its function's begin, at most.
const FAR: u64 = (16 << 10) + 4;

fuzz_target!(|bytes: &[u8]| {
    let Some((words, file)) = bytes.split_at_checked(64) else {
        return;
    };
    let Ok(elf) = object::File::parse(file) else {
        return;
    };
    let words = words.as_chunks().0.iter();
    let mut addresses: Vec<_> = words.map(|word| u64::from_le_bytes(*word)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let read = |offset: u64, out: &mut [u8]| {
        let from = usize::try_from(offset).unwrap().min(file.len());
        let length = out.len().min(file.len() - from);
        out[..length].copy_from_slice(&file[from..][..length]);
        length
    };
    let mut named: Vec<Vec<Named>> = addresses.iter().map(|_| Vec::new()).collect();
    code_starts::name(
        &elf,
        read,
        "a",
        &addresses,
        addresses.iter().zip(&mut named),
    );
    for (address, named) in addresses.iter().zip(named) {
        assert!(named.len() <= 1);
        for start in named.iter().map(|named| named.start.unwrap()) {
            assert!(start <= *address && address - start <= FAR);
        }
    }
});
