//! Reads arbitrary bytes as line tables of CPython. Nothing may panic, and beyond the code there is
//! no line, but in those of 3.9.
#![no_main]
use engine::wire::code::{Code, LineFormat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((head, lines)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let formats = [
        LineFormat::Python39,
        LineFormat::Python310,
        LineFormat::Python311,
    ];
    for format in formats {
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
            // To 3.9 the last line goes on to the end.
            assert!(line == 0 || position < beyond || format == LineFormat::Python39);
        }
    }
});
