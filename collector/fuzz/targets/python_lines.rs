//! Reads arbitrary bytes as line tables of CPython. Nothing may panic, and beyond the code there is
//! no line.
#![no_main]
use engine::wire::code::{Code, LineFormat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((head, lines)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    for format in [LineFormat::Python310, LineFormat::Python311] {
        let code = Code {
            first_line: u32::from_le_bytes(*head),
            format,
            lines,
            ..Code::default()
        };
        // An entry is for 255 bytes of code at most.
        let beyond = lines.len() as u32 * 255;
        for position in [0, 1, 2, 100, beyond / 2, beyond, u32::MAX] {
            let line = code.line(position);
            assert!(line == 0 || position < beyond);
        }
    }
});
