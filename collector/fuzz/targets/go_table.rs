//! Reads arbitrary bytes as Go's table of functions. Nothing may panic, and a function holds the
//! address that it was asked for.
#![no_main]
#[path = "../../src/symbolize/go_table.rs"]
mod go_table;

use go_table::GoTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(table) = GoTable::parse(bytes, Some(0x1000)) else {
        return;
    };
    let words = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    for address in words.chain([0, 0x1000, 0x1020, u64::MAX]) {
        if let Some(found) = table.find(address) {
            assert!(found.start <= address && !found.name.is_empty());
        }
    }
});
