//! Reads arbitrary bytes as what a process publishes of itself. Nothing may panic, and what is
//! taken of it is bounded.
#![no_main]
#[path = "../../src/agent/published.rs"]
mod published;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = bytes.get(..published::LONGEST_PAYLOAD).unwrap_or(bytes);
    let found = published::attributes(bytes).unwrap_or_default();
    assert!(found.len() <= 128);
    for (key, value) in &found {
        assert!((1..=256).contains(&key.len()) && value.len() <= 4096);
    }
});
