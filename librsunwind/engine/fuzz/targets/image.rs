//! ELF headers of any content: what is read from them stays within what they say, and
//! nothing panics.
#![no_main]

use engine::address::RuntimeAddress;
use engine::elf_image;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for base in [0x5555_0000_0000, 0, u64::MAX - 4095] {
        let Some(image) = elf_image::parse(data, RuntimeAddress(base)) else {
            continue;
        };
        let module = image.module;
        assert!(module.start < module.end);
        for table in [module.eh_frame_hdr, module.sframe] {
            if table.is_present() {
                assert!(table.readable.0 <= table.start && table.start < table.readable.1);
                assert!(table.end <= table.readable.1);
                assert!(module.start <= table.readable.0 && table.readable.1 <= module.end);
            }
        }
    }
});
