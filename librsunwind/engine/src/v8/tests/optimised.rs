//! The characters that calls in optimised code come from.

use super::super::frame::{Instruction, Native, Standing};
use super::super::heap::Heap;
use super::super::layout::{Layout, Positions};
use super::super::lines::Lines;
use super::super::proof::{Found, Owner, Runs};
use super::super::rows::write_lines;
use super::super::{met, optimised::forget};
use super::{
    BYTECODES, CODE, FUNCTION, MAPS, MORE, NAME, NEW, OLD, SCOPE, SCRIPT, SHARED, TEXT, TYPES,
};
use super::{function, small};
use crate::interpreter::made::Made;
use crate::interpreter::memory::Memory;
use crate::wire::code::{Code, LineFormat};
use std::sync::{Mutex, MutexGuard, PoisonError};

const TABLE: u64 = MORE;
pub(super) const DATA: u64 = MORE + 0x80;
const INLINED: u64 = MORE + 0x100;
/// The first instruction; the next code begins behind 256 bytes.
pub(super) const START: u64 = MORE + 0x200;
pub(super) const SIZE: u64 = 200;
const TURBOFAN: u64 = 13;

/// Numbers as V8 writes them: seven bits a byte, the sign last.
fn zigzag(number: i64, to: &mut Vec<u8>) {
    let mut left = (number << 1 ^ number >> 63).cast_unsigned();
    while left > 0x7f {
        to.push(left as u8 | 0x80);
        left >>= 7;
    }
    to.push(left as u8);
}

/// A position: a character, in that of the functions that are part of another one, or in itself.
fn source(character: usize, inlined: Option<u64>) -> u64 {
    (character as u64 + 1) << 1 | inlined.map_or(0, |number| number + 1) << 31
}

/// The function of the other tests, with code of a compiler that calls: at 10 from its second line,
/// at 100 from its third, and at 150 from a function in a function in the second.
pub(super) fn optimised(layout: &Layout, compiler: u64) -> Made {
    let made = function(layout, "f");
    let at = |text: &str| TEXT.find(text).unwrap();
    made.object(CODE, 190);
    made.put_word(CODE + 8, DATA | 1);
    made.put_word(CODE + 16, TABLE | 1);
    made.put_word(CODE + 40, START);
    made.put_word(CODE + 48, SIZE << 32 | 0x100 | compiler);
    let rows = [
        (10, source(at("{"), None)),
        (100, source(at("third"), None)),
        (150, source(7, Some(1))),
    ];
    let (mut table, mut before) = (Vec::new(), (-1, 0));
    for (offset, source) in rows {
        zigzag(offset - before.0, &mut table);
        zigzag(source.cast_signed() - before.1, &mut table);
        before = (offset, source.cast_signed());
    }
    made.array(TABLE, 200, 16, &table);
    made.object(DATA, 179);
    made.put_word(DATA + layout.inlined, INLINED | 1);
    let inlined = [source(at("{") + 1, None), 0, source(3, Some(0)), 1];
    let bytes: Vec<u8> = inlined.iter().flat_map(|word| word.to_le_bytes()).collect();
    made.array(INLINED, 200, 16, &bytes);
    made.put_word(START - layout.before_code.map, (MAPS + 16) | 1);
    made.put_word(START - layout.before_code.code, CODE | 1);
    made
}

/// What was found is kept for the whole process, which may run several tests at once.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    forget();
    met::forget();
    guard
}

/// The line of a call that returns to so many bytes behind the beginning.
pub(super) fn line(layout: &Layout, made: &Made, offset: u64) -> Option<u32> {
    let heap = Heap {
        memory: made,
        layout,
    };
    let pc = START + offset;
    let is_exact = false;
    let shared = heap.shared(FUNCTION | 1)?;
    let character = heap.character(shared, Instruction { pc, is_exact })?;
    let function = heap.function(shared)?;
    let (mut lines, mut rows) = (Lines::none(), [0; 100]);
    let _ = heap.lines(&function, &mut lines, made.bytes.as_ptr() as u64);
    let length = write_lines(&lines, &mut rows);
    let code = Code {
        first_line: lines.first,
        format: LineFormat::Steps,
        lines: &rows[..length],
        ..Code::default()
    };
    let line = code.line(character - function.range?.0);
    assert_eq!(line, lines.at(character));
    Some(line)
}

#[test]
fn calls_have_the_lines_of_the_function_itself() {
    let _alone = alone();
    for layout in [OLD, NEW] {
        let made = optimised(&layout, TURBOFAN);
        // Twice, since what was found is kept.
        for _ in 0..2 {
            let found = [11, 100, 101, 150, 151, 200].map(|offset| line(&layout, &made, offset));
            assert_eq!(found, [103, 103, 104, 104, 103, 103].map(Some));
            let none = [0, 1, 10, 201, 300].map(|offset| line(&layout, &made, offset));
            assert_eq!(none, [None; 5]);
        }
    }
}

#[test]
fn what_was_kept_is_of_that_code_alone() {
    let _alone = alone();
    let made = optimised(&OLD, TURBOFAN);
    assert_eq!(line(&OLD, &made, 11), Some(103));
    // Another table of that length, in the same place.
    let mut table = Vec::new();
    zigzag(11, &mut table);
    zigzag(
        source(TEXT.find("third").unwrap(), None).cast_signed(),
        &mut table,
    );
    made.put(TABLE + 16, &table);
    assert_eq!(line(&OLD, &made, 11), Some(104));
    made.put_word(START - OLD.before_code.code, SHARED | 1);
    assert_eq!(line(&OLD, &made, 11), None);
}

#[test]
fn other_code_and_endless_chains_have_no_lines() {
    let _alone = alone();
    for compiler in [0, 11, 12, 14] {
        assert_eq!(line(&OLD, &optimised(&OLD, compiler), 11), None);
    }
    let made = optimised(&OLD, TURBOFAN);
    made.put_word(INLINED + 16, source(3, Some(1)));
    assert_eq!(line(&OLD, &made, 151), None, "each is in the other");
    made.put_word(INLINED + 8, small(16));
    assert_eq!(line(&OLD, &made, 151), None, "behind the end");
    made.put_word(START - OLD.before_code.map, 0x7f00_0000_0001);
    assert_eq!(line(&OLD, &made, 11), None, "nothing that looks so is read");
}

#[test]
fn damage_is_survived() {
    let _alone = alone();
    let made = optimised(&NEW, TURBOFAN);
    made.damaged((CODE..CODE + 64).chain(MORE..START), |damaged| {
        let _ = line(&NEW, damaged, 151);
    });
    assert_eq!(TYPES.shared, 262, "its map says where maps are");
}

/// What a copied frame was at.
const STACK: u64 = MORE + 0x400;
/// A function around that of the other tests.
const OUTER: u64 = MORE + 0x900;
const OUTER_SCOPE: u64 = MORE + 0xa00;

/// Whose a copied frame is.
fn owner(
    layout: &Layout,
    made: &Made,
    (pc, is_compiled): (u64, bool),
    function: u64,
    by_bytecodes: fn(u64) -> Option<u64>,
    callers: [Option<u64>; 2],
) -> Owner {
    let frame = Native {
        pc,
        is_exact: false,
        is_compiled,
        sp: STACK - 64,
        fp: STACK,
        rdi: None,
        r9: None,
        r12: None,
    };
    let standing = Standing {
        function,
        fp: Some(STACK),
        caller: None,
    };
    layout.owner(made, &frame, &standing, by_bytecodes, callers)
}

/// The function of the other tests.
fn found(runs: Runs, is_named: bool) -> Owner {
    Owner::Found(Found {
        shared: SHARED,
        runs,
        is_named,
        is_within: false,
    })
}

const NOBODY: [Option<u64>; 2] = [None; 2];
const ANYBODY: [Option<u64>; 2] = [None, Some(SHARED)];

fn gone(_: u64) -> Option<u64> {
    None
}

fn known(array: u64) -> Option<u64> {
    (array == BYTECODES).then_some(SHARED)
}

#[test]
fn a_copied_frame_of_the_interpreters_is_whose_bytecodes_it_has() {
    const INTERPRETED: (u64, bool) = (0x1000, false);
    for layout in [OLD, NEW] {
        // The baseline compiler has made code of them since.
        let made = function(&layout, "f");
        made.put_word(STACK - 32, BYTECODES | 1);
        let of = |function, by_bytecodes, callers| {
            owner(&layout, &made, INTERPRETED, function, by_bytecodes, callers)
        };
        let runs = Runs::Bytecodes(BYTECODES);
        assert_eq!(of(FUNCTION | 1, gone, NOBODY), found(runs, true));
        assert_eq!(of(NAME | 1, gone, NOBODY), Owner::Unknown);
        assert_eq!(of(NAME | 1, known, NOBODY), found(runs, false));
        // Found among the functions of a script.
        let all = MORE + 0x500;
        made.put_word(SCRIPT + 88, all | 1);
        made.object(all, 150);
        made.put_word(all + 8, small(3));
        made.put_word(all + 16, 3);
        made.put_word(all + 24, SCOPE | 3);
        assert_eq!(of(NAME | 1, gone, ANYBODY), Owner::Unknown);
        made.put_word(all + 32, SHARED | 3);
        assert_eq!(of(NAME | 1, gone, ANYBODY), found(runs, false));
        // Another function is there by now, or where the known one was.
        made.put_word(SHARED + 8, BYTECODES | 1);
        made.object(BYTECODES + 0x80, TYPES.bytecodes);
        made.put_word(STACK - 32, BYTECODES + 0x81);
        let other = |_| Some(SHARED);
        assert_eq!(of(FUNCTION | 1, other, NOBODY), Owner::Unknown);
        made.put_word(STACK - 32, NAME | 1);
        assert_eq!(of(FUNCTION | 1, other, NOBODY), Owner::Own);
    }
}

#[test]
fn a_copied_frame_of_compiled_code_is_whose_code_it_is() {
    const COMPILED: (u64, bool) = (START + 11, true);
    for layout in [OLD, NEW] {
        let made = optimised(&layout, TURBOFAN);
        made.put_word(DATA + layout.compiled_of, SHARED | 1);
        made.put_word(DATA + layout.compiled_number, small(35));
        let at = |at, function, by_bytecodes, callers| {
            owner(&layout, &made, at, function, by_bytecodes, callers)
        };
        let of = |function, by_bytecodes, callers| at(COMPILED, function, by_bytecodes, callers);
        let runs = Runs::Optimised(35);
        assert_eq!(of(FUNCTION | 1, gone, NOBODY), found(runs, true));
        assert_eq!(of(NAME | 1, gone, NOBODY), Owner::Unknown);
        assert_eq!(of(NAME | 1, gone, ANYBODY), found(runs, false));
        let behind = (START + SIZE + 1, true);
        assert_eq!(at(behind, FUNCTION | 1, gone, NOBODY), Owner::Unknown);
        // By way of a wrapper.
        made.object(MORE + 0x300, 180);
        made.put_word(MORE + 0x308, SHARED | 1);
        made.put_word(DATA + layout.compiled_of, MORE + 0x301);
        assert_eq!(of(FUNCTION | 1, gone, NOBODY), found(runs, true));
        made.put_word(DATA + layout.compiled_of, NAME | 1);
        assert_eq!(of(FUNCTION | 1, gone, NOBODY), Owner::Unknown);
        // Of the baseline compiler.
        made.put_word(CODE + 8, BYTECODES | 1);
        let compiler = u64::from(layout.baseline.compiler);
        made.put_word(CODE + 48, SIZE << 32 | 0x100 | compiler);
        made.put_word(STACK - 32, BYTECODES | 1);
        let runs = Runs::Bytecodes(BYTECODES);
        assert_eq!(of(FUNCTION | 1, gone, NOBODY), found(runs, true));
        assert_eq!(of(NAME | 1, known, ANYBODY), found(runs, false));
        assert_eq!(of(NAME | 1, gone, ANYBODY), Owner::Unknown);
        // Code that is there by now, of other bytecodes than those that the frame has.
        made.put_word(STACK - 32, (BYTECODES + 0x80) | 1);
        assert_eq!(of(FUNCTION | 1, known, ANYBODY), Owner::Unknown);
    }
}

#[test]
fn a_copied_frame_may_be_of_a_part_of_its_caller() {
    for layout in [OLD, NEW] {
        let made = function(&layout, "f");
        made.put_word(STACK - 32, BYTECODES | 1);
        made.object(OUTER, TYPES.shared);
        made.put_word(OUTER + layout.shared_name, OUTER_SCOPE | 1);
        made.put_word(OUTER + layout.shared_script, SCRIPT | 1);
        for offset in (0..14 * 8).step_by(8) {
            let word = made.load(SCOPE + offset).unwrap();
            made.put_word(OUTER_SCOPE + offset, word);
        }
        let start = match layout.positions {
            Positions::BehindNames => 8 + 10 * 8,
            Positions::At(at) => at,
        };
        let is_within = |caller| {
            let callers = [Some(caller), Some(OUTER)];
            match owner(&layout, &made, (0x1000, false), NAME | 1, known, callers) {
                Owner::Found(found) => found.is_within,
                other => panic!("{other:?}"),
            }
        };
        assert!(!is_within(OUTER), "the same place");
        made.put_word(OUTER_SCOPE + start, 0);
        assert!(is_within(OUTER));
        assert!(!is_within(SHARED), "it calls itself");
        made.put_word(OUTER_SCOPE + start + 8, small(3));
        assert!(!is_within(OUTER), "beside it");
        made.put_word(OUTER_SCOPE + start + 8, small(1000));
        made.put_word(OUTER + layout.shared_script, NAME | 1);
        assert!(!is_within(OUTER), "in another script");
    }
}
