//! Any section that holds together: what the encoder takes of it, it gives back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sframe::{Address, Encoder, FunctionRows, Section, Version};

const ADDRESS: Address = Address(0x5555_0000_0000);

fuzz_target!(|bytes: &[u8]| {
    let Ok(section) = Section::new(bytes, ADDRESS) else {
        return;
    };
    if section.verify().is_err() {
        return;
    }
    let functions: Vec<FunctionRows> = section
        .functions()
        .filter_map(|function| FunctionRows::try_from(&function.ok()?).ok())
        .collect();
    for version in [Version::V2, Version::V3] {
        let mut encoder = Encoder::new(version, section.header().abi)
            .expect("an encoder")
            .unsorted();
        let pushed: Vec<&FunctionRows> = functions
            .iter()
            .filter(|function| encoder.push(function).is_ok())
            .collect();
        let Ok(encoded) = encoder.finish(ADDRESS) else {
            continue;
        };
        let encoded = Section::new(&encoded, ADDRESS).expect("a section");
        encoded.verify().expect("a section in order");
        let again: Vec<FunctionRows> = encoded
            .functions()
            .map(|function| FunctionRows::try_from(&function.expect("a function")).expect("rows"))
            .collect();
        assert_eq!(again.iter().collect::<Vec<_>>(), pushed);
    }
});
