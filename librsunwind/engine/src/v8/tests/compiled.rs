//! The lines of what the baseline compiler made.

use super::super::frame::Instruction;
use super::super::heap::Heap;
use super::super::layout::Layout;
use super::super::lines::Lines;
use super::{BYTECODES, CODE, CODE_TABLE, FUNCTION, INSTRUCTIONS, MORE, NEW, OLD, SHARED};
use super::{function, small};
use crate::interpreter::made::Made;

/// The lines of what the baseline compiler made of a function, and where in it a frame stands.
pub fn lines(layout: &Layout, made: &Made, pc: u64, is_exact: bool) -> Option<(Vec<u8>, u32)> {
    let heap = Heap {
        memory: made,
        layout,
    };
    let function = heap.function(heap.shared(FUNCTION | 1)?)?;
    let (code, position) = heap.baseline(SHARED, Instruction { pc, is_exact })?;
    let (mut of_source, mut rows) = (Lines::none(), [0; 100]);
    let _ = heap.lines(&function, &mut of_source, made.bytes.as_ptr() as u64);
    let length = heap.baseline_lines(&code, &of_source, &mut rows)?;
    Some((rows[..length].to_vec(), position))
}

#[test]
fn baseline_code_has_the_lines_of_its_bytecodes() {
    for layout in [OLD, NEW] {
        let made = function(&layout, "f");
        let line = |offset: u64, is_exact| {
            let (rows, position) = lines(&layout, &made, INSTRUCTIONS + offset, is_exact)?;
            let code = crate::wire::code::Code {
                first_line: 102,
                format: crate::wire::code::LineFormat::Steps,
                lines: &rows,
                ..Default::default()
            };
            Some(code.line(position))
        };
        let exact = [0, 20, 231, 232, 299, 300].map(|offset| line(offset, true));
        assert_eq!(
            exact,
            [102, 102, 102, 104, 104, 0].map(|line| Some(line).filter(|line| *line > 0))
        );
        // A call's last byte says where it is.
        let called = [0, 232, 233, 300, 301].map(|offset| line(offset, false));
        assert_eq!(
            called,
            [0, 102, 104, 104, 0].map(|line| Some(line).filter(|line| *line > 0))
        );
    }
}

#[test]
fn tables_that_do_not_belong_together_give_no_line() {
    let is_there = |damage: &dyn Fn(&Made)| {
        let made = function(&OLD, "f");
        damage(&made);
        lines(&OLD, &made, INSTRUCTIONS + 30, true).is_some()
    };
    assert!(is_there(&|_| {}));
    let via_data = |made: &Made| {
        made.object(MORE, 77);
        made.put_word(MORE + 8, BYTECODES | 1);
        made.put_word(CODE + 8, MORE | 1);
    };
    assert!(is_there(&via_data), "bytecodes behind an InterpreterData");
    let one_more = |made: &Made| made.put_word(CODE_TABLE + 8, small(7));
    assert!(!is_there(&one_more));
    let one_less = |made: &Made| made.put_word(CODE_TABLE + 8, small(5));
    assert!(!is_there(&one_less));
    let of_no_length = |made: &Made| made.put(BYTECODES + OLD.bytecode_data, &[9]);
    assert!(!is_there(&of_no_length));
    let of_another_compiler = |made: &Made| made.put_word(CODE + 48, 300 << 32 | 0x50c);
    assert!(!is_there(&of_another_compiler));
    let not_compiled = |made: &Made| made.put_word(SHARED + 8, BYTECODES | 1);
    assert!(!is_there(&not_compiled));
}
