//! `.eh_frame_hdr` and `.eh_frame` of any content: a look-up, its lowering and a step end in an
//! answer, and the quick way through an entry says what gimli says.
//!
//! Input: where the index is (2 bytes), the pc (2 bytes), then the segment.
#![no_main]

use engine::cursor::Cursor;
use engine::memory::StackMemory;
use engine::registers::Registers;
use engine::rule_cache::RuleCache;
use engine::table::eh_frame::EhFrameTable;
use libfuzzer_sys::fuzz_target;
use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::LazyLock;

static CACHE: LazyLock<&'static RuleCache> = LazyLock::new(|| {
    // SAFETY: zeroed, of the right size and alignment, never freed.
    unsafe {
        RuleCache::from_zeroed(NonNull::new(alloc_zeroed(Layout::new::<RuleCache>())).unwrap())
    }
});

const BASE: u64 = 0x5555_0000_0000;

fuzz_target!(|data: &[u8]| {
    let Some((&[a, b, c, d], segment)) = data.split_first_chunk() else {
        return;
    };
    let hdr = BASE + u64::from(u16::from_le_bytes([a, b]));
    let pc = BASE + u64::from(u16::from_le_bytes([c, d]));
    let Some(table) = EhFrameTable::new(segment, BASE, hdr) else {
        return;
    };
    let quick = table.usual_rule(pc);
    let Ok(found) = table.find(pc) else {
        return;
    };
    let rule = table.lower(&found, pc, &CACHE.wide, || Some(0xc3));
    if let Some(quick) = quick {
        assert_eq!(quick, Ok(rule));
    }
    let _ = table.row(&found, pc);
    // Every register points into a stack of our own, so that some loads succeed.
    let stack: Vec<u64> = (0..512).collect();
    let middle = stack[256..].as_ptr() as u64;
    let mut registers = Registers::default();
    registers.general.fill(middle);
    let range = stack.as_ptr_range();
    let mut memory = StackMemory::new(range.start as u64, range.end as u64);
    memory.begin(middle);
    let mut cursor = Cursor::new(&registers);
    let _ = table.step(&found, &mut cursor, &mut memory);
});
