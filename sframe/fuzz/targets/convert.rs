//! Any bytes as `.eh_frame`: nothing panics, and the rows made of it, if the encoder takes them,
//! are given back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sframe::{Abi, Address, EhFrame, Encoder, FunctionRows, Section, Version};

const ADDRESS: Address = Address(0x40_0000);

fuzz_target!(|bytes: &[u8]| {
    let Some((first, eh_frame)) = bytes.split_first() else {
        return;
    };
    let abis = [Abi::Amd64, Abi::Aarch64Little, Abi::Aarch64Big, Abi::S390x];
    let abi = abis[usize::from(*first) % abis.len()];
    let conversion = EhFrame::new(eh_frame, ADDRESS, abi)
        .text(Address(0x1000))
        .data(Address(0x50_0000))
        .convert();
    let mut encoder = Encoder::new(Version::V3, abi)
        .expect("an encoder")
        .unsorted();
    let rows = conversion
        .functions
        .iter()
        .filter_map(|function| function.rows.as_ref().ok());
    let pushed: Vec<&FunctionRows> = rows.filter(|rows| encoder.push(rows).is_ok()).collect();
    let Ok(encoded) = encoder.finish(ADDRESS) else {
        return;
    };
    let section = Section::new(&encoded, ADDRESS).expect("a section");
    let again: Vec<FunctionRows> = section
        .functions()
        .map(|function| FunctionRows::try_from(&function.expect("a function")).expect("rows"))
        .collect();
    assert_eq!(again.iter().collect::<Vec<_>>(), pushed);
});
