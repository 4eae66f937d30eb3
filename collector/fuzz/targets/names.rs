//! Reads arbitrary bytes as the names that are stored in a recording, compressed and not. Nothing
//! may panic, and what was read reads the same when it is written again.
#![no_main]
#[expect(dead_code, reason = "the parts of a file are read elsewhere")]
#[path = "../../src/recording/names.rs"]
mod names;

use libfuzzer_sys::fuzz_target;
use std::io::Write;

fuzz_target!(|bytes: &[u8]| {
    let _ = names::decode(bytes);
    let mut whole = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    whole.write_all(bytes).unwrap();
    if let Ok(found) = names::decode(&whole.finish().unwrap()) {
        let again = names::decode(&names::encode(&found));
        assert!(again.unwrap() == found);
        for group in found.values() {
            for (address, functions) in &group.places {
                assert!(group.find(*address).unwrap() == functions);
            }
        }
    }
});
