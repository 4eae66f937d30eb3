//! Notes of any content, mapped anywhere: what they lead to is in their own module.
#![no_main]

use engine::notes::{BuildId, languages};
use libfuzzer_sys::fuzz_target;

const SIZE: u64 = 40;

fuzz_target!(|data: &[u8]| {
    for start in [0, 0x5555_0000_0000, u64::MAX - 0xffff] {
        let module = start..start.saturating_add(0xf000);
        let mut count = 0;
        for described in languages(data, start.wrapping_add(0x2a8), module.clone(), SIZE) {
            count += 1;
            if let Ok(at) = described {
                assert!(module.start <= at && at + SIZE <= module.end && at % 8 == 0);
            }
        }
        assert!(count <= data.len() / 21);
    }
    if let Some(id) = BuildId::among(data) {
        assert!((1..=32).contains(&id.as_bytes().len()));
    }
});
