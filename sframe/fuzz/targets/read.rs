//! Any bytes: nothing panics, and the look-up finds what a walk over all functions finds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sframe::{Address, Function, IndexedSection, Row, Section};

const ADDRESS: Address = Address(0x7fff_ffff_f000);

fuzz_target!(|bytes: &[u8]| {
    let Ok(section) = Section::new(bytes, ADDRESS) else {
        return;
    };
    let len = section.header().section_len();
    assert_eq!(Section::len_from_header(bytes), Ok(len));
    assert!(len <= bytes.len() as u64);
    let verified = section.verify();
    let mut memory = [0; 40];
    let hints = usize::from(bytes.last().copied().unwrap_or(0)).min(memory.len());
    let indexed = IndexedSection::new(section, &mut memory[..hints]);
    let functions: Vec<Function<'_>> = section.functions().filter_map(Result::ok).collect();
    for function in functions.iter().take(64) {
        for offset in [
            0,
            1,
            11,
            15,
            function.size() / 2,
            function.size().wrapping_sub(1),
            function.size(),
        ] {
            let pc = function.start().wrapping_offset(offset.into());
            let found = section.lookup(pc);
            let _ = indexed.lookup(pc);
            // The one row of a repeated block is put right by the look-up, and not by this walk.
            if verified.is_ok() && are_apart(&functions) && !functions.iter().any(is_short_block) {
                assert_eq!(found, Ok(walk(&functions, pc)));
                assert_eq!(indexed.lookup(pc), found);
            }
        }
    }
    for pc in [Address(0), ADDRESS, Address(u64::MAX), Address(1 << 63)] {
        let _ = (section.lookup(pc), indexed.lookup(pc));
    }
});

fn is_short_block(function: &Function<'_>) -> bool {
    function.rep_size().is_some() && function.row_count() == 1
}

/// Where functions overlap, which of them is found is not said.
fn are_apart(functions: &[Function<'_>]) -> bool {
    let mut ranges: Vec<(i64, i64)> = functions
        .iter()
        .map(|f| (f.start().distance_from(ADDRESS), i64::from(f.size())))
        .collect();
    ranges.sort_unstable();
    let empty = ranges.iter().filter(|(_, size)| *size == 0).count();
    empty < 16
        && ranges
            .windows(2)
            .all(|pair| i128::from(pair[0].0) + i128::from(pair[0].1) <= i128::from(pair[1].0))
}

fn walk(functions: &[Function<'_>], pc: Address) -> Option<Row> {
    let contains = |function: &&Function<'_>| {
        let offset = i128::from(pc.distance_from(ADDRESS))
            - i128::from(function.start().distance_from(ADDRESS));
        (0..i128::from(function.size())).contains(&offset)
    };
    let function = functions.iter().find(contains)?;
    if function.is_outermost() {
        return function.row_at(0).expect("a row");
    }
    let mut offset = pc.distance_from(function.start()) as u32;
    if let Some(size) = function.rep_size() {
        offset %= u32::from(size.get());
    }
    let rows = function.rows().map(|row| row.expect("a row"));
    rows.take_while(|(start, _)| *start <= offset)
        .last()
        .map(|(_, row)| row)
}
