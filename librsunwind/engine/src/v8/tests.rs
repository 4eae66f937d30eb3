//! Functions in a made-up heap, whole and damaged.

mod compiled;
mod maglev;
mod met;
mod optimised;

use super::bytecodes::Lengths;
use super::frame::{Native, is_expression, is_functionless};
use super::heap::Heap;
use super::layout::{Baseline, BeforeCode, Layout, Positions, Types};
use super::lines::Lines;
use crate::interpreter::made::{BASE, Made, SIZE, random, some_word};
use crate::interpreter::memory::Memory;
use crate::interpreter::utf8::Utf8;

const TYPES: Types = Types {
    function: 2066,
    shared: 262,
    script: 167,
    scope: 261,
    bytecodes: 191,
};

const OLD: Layout = Layout {
    types: TYPES,
    function_shared: 24,
    shared_name: 16,
    shared_script: 32,
    positions: Positions::BehindNames,
    scope_names: 32,
    bytecode_positions: 32,
    bytecode_data: 54,
    baseline: Baseline {
        code: 190,
        bytecodes: 8,
        table: 16,
        flags: 48,
        compiler: 11,
        size: 52,
        lengths: Lengths {
            usual: b"11111235",
            twice: b"11111359",
        },
    },
    before_code: BeforeCode { map: 16, code: 8 },
    inlined: 16,
    knows_maglev: true,
    compiled_of: 24,
    compiled_number: 32,
    expression: 76,
};

const NEW: Layout = Layout {
    function_shared: 32,
    shared_name: 24,
    shared_script: 40,
    positions: Positions::At(32),
    scope_names: 48,
    ..OLD
};

const FUNCTION: u64 = BASE + 0x100;
const SHARED: u64 = BASE + 0x200;
const SCOPE: u64 = BASE + 0x300;
const SCRIPT: u64 = BASE + 0x400;
const NAME: u64 = BASE + 0x500;
const FILE: u64 = BASE + 0x600;
const SOURCE: u64 = BASE + 0x800;
const BYTECODES: u64 = BASE + 0xc00;
const TABLE: u64 = BASE + 0xd00;
const MORE: u64 = BASE + 0x1000;
/// Maps by the number of the type.
const MAPS: u64 = BASE + 0x1400;
const CODE: u64 = BASE + 0xe00;
const CODE_TABLE: u64 = BASE + 0xe80;
/// Of instructions, which nobody reads.
const INSTRUCTIONS: u64 = 0x7f00_0000_1000;

const ONE_BYTE: u32 = 0x28;
const TWO_BYTES: u32 = 0x20;

fn small(value: u64) -> u64 {
    value << 32
}

impl Made {
    /// Begins an object of a type.
    fn object(&self, address: u64, kind: u32) {
        let map = MAPS + u64::from(kind % 64) * 16;
        self.put_word(map + 8, u64::from(kind) << 32);
        self.put_word(address, map | 1);
    }

    /// An array of bytes, from an offset on.
    fn array(&self, address: u64, kind: u32, data: u64, bytes: &[u8]) {
        self.object(address, kind);
        self.put_word(address + 8, small(bytes.len() as u64));
        self.put(address + data, bytes);
    }

    fn text(&self, address: u64, text: &str) {
        let units: Vec<u16> = text.encode_utf16().collect();
        self.put_word(address + 8, small(units.len() as u64) | 0x77);
        let is_small = units.iter().all(|unit| *unit < 0x100);
        self.object(address, if is_small { ONE_BYTE } else { TWO_BYTES });
        let bytes: Vec<u8> = match is_small {
            true => units.iter().map(|unit| *unit as u8).collect(),
            false => units.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        };
        self.put(address + 16, &bytes);
    }
}

const TEXT: &str = "first\nsecond(\n{\r\n third;\n}\rlast";

/// A function of that name, from `(` to `}`.
fn function(layout: &Layout, name: &str) -> Made {
    let made = Made::new();
    made.object(FUNCTION, TYPES.function + 3);
    made.put_word(FUNCTION + layout.function_shared, SHARED | 1);
    made.object(SHARED, TYPES.shared);
    made.put_word(SHARED + layout.shared_name, SCOPE | 1);
    made.put_word(SHARED + layout.shared_script, SCRIPT | 1);
    made.object(SCOPE, TYPES.scope);
    let flags = 1 << 12 | 1 << 14;
    let (start, end) = (TEXT.find('(').unwrap(), TEXT.find('}').unwrap());
    let range = [small(start as u64), small(end as u64)];
    // Two names of variables, each with a word behind; then its own.
    let words = match layout.positions {
        Positions::BehindNames => {
            let mut words = vec![small(flags), 0, small(2)];
            words.extend([FILE | 1, FILE | 1, 0, 0, NAME | 1, 0, FILE | 1]);
            words.extend(range);
            words
        }
        Positions::At(_) => {
            let mut words = vec![flags, 0, small(2)];
            words.extend(range);
            words.extend([FILE | 1, FILE | 1, 0, 0, NAME | 1, 0, FILE | 1]);
            words
        }
    };
    for (place, word) in (SCOPE + 8..).step_by(8).zip(words) {
        made.put_word(place, word);
    }
    made.object(SCRIPT, TYPES.script);
    made.put_word(SCRIPT + 8, SOURCE | 1);
    made.put_word(SCRIPT + 16, FILE | 1);
    made.put_word(SCRIPT + 24, small(100));
    made.put_word(SCRIPT + 64, small(7));
    made.text(NAME, name);
    made.text(FILE, "file:///some/where.mjs");
    made.text(SOURCE, TEXT);
    made.put_word(BYTECODES + layout.bytecode_positions, TABLE | 1);
    // A statement in each line, and an expression in the first.
    let third = TEXT.find("third").unwrap() - start;
    let table = [
        2,
        ((start + 1) * 4) as u8,
        2 * 5 + 1,
        4,
        2 * 6,
        (third * 4 - 4) as u8,
    ];
    made.array(TABLE, 200, 16, &table);
    // Four bytecodes, the third with a prefix.
    let code = [5, 0, 6, 0, 0, 0, 6, 0, 0, 0, 0, 4];
    made.array(BYTECODES, TYPES.bytecodes, layout.bytecode_data, &code);
    // In 20 bytes the frame is made.
    made.array(CODE_TABLE, 200, 16, &[20, 4, 0xc8, 1, 8, 16]);
    made.object(CODE, 190);
    made.put_word(CODE + 8, BYTECODES | 1);
    made.put_word(CODE + 16, CODE_TABLE | 1);
    made.put_word(CODE + 40, INSTRUCTIONS);
    made.put_word(CODE + 48, 300 << 32 | 0x50b);
    made.put_word(SHARED + 8, CODE | 1);
    made
}

#[derive(Debug, PartialEq, Eq)]
struct Described {
    name: String,
    file: String,
    first: u32,
    rows: Vec<u8>,
}

fn describe(layout: &Layout, made: &Made) -> Option<(u64, Described)> {
    let heap = Heap {
        memory: made,
        layout,
    };
    let function = heap.function(heap.shared(FUNCTION | 1)?)?;
    let (mut name, mut file, mut rows) = ([0; 100], [0; 100], [0; 100]);
    let mut lines = Lines::none();
    let _ = heap.lines(&function, &mut lines, made.bytes.as_ptr() as u64);
    let length = heap
        .bytecode_lines(BYTECODES, &lines, &mut rows)
        .unwrap_or(0);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((
        heap.check(&function),
        Described {
            name: text(heap.name_of(&function, &mut name)),
            file: text(heap.file_of(&function, &mut file)),
            first: lines.first,
            rows: rows[..length].to_vec(),
        },
    ))
}

#[test]
fn a_frame_is_a_regular_expressions_by_the_number_in_it() {
    let made = Made::new();
    let fp = BASE + 0x40;
    made.put_word(fp - 8, OLD.expression);
    made.put_word(fp - 16, OLD.expression + 2);
    let frame = Native {
        pc: INSTRUCTIONS,
        is_exact: true,
        is_compiled: true,
        sp: fp - 64,
        fp,
        rdi: None,
        r9: None,
        r12: None,
    };
    let is_one = |frame: Native| is_expression(&made, &frame, OLD.expression);
    assert!(
        is_one(frame)
            && is_one(Native {
                sp: fp - 8,
                ..frame
            })
    );
    let others: [fn(&mut Native); 6] = [
        |frame| frame.is_compiled = false,
        |frame| frame.fp -= 8,
        |frame| frame.fp += 1,
        // Its own frame is yet to come, or was left.
        |frame| frame.sp = frame.fp,
        |frame| frame.sp = frame.fp + 64,
        |frame| (frame.sp, frame.fp) = (0, 8),
    ];
    for (number, change) in others.iter().enumerate() {
        let mut other = frame;
        change(&mut other);
        assert!(!is_one(other), "{number}");
    }
}

#[test]
fn frames_of_v8s_own_code_that_have_no_function_are_told_by_their_number() {
    let made = Made::new();
    let fp = BASE + 0x100;
    let frame = Native {
        pc: 0,
        is_exact: false,
        is_compiled: false,
        sp: fp - 64,
        fp,
        rdi: None,
        r9: None,
        r12: None,
    };
    let is_one = |kind: u64, frame: Native| {
        made.put_word(fp - 8, kind);
        is_functionless(&made, &frame)
    };
    assert!(is_one(2, frame) && is_one(126, frame));
    // A tagged pointer, another pointer, and what is no kind.
    assert!(!is_one(fp + 1, frame) && !is_one(fp, frame));
    assert!(!is_one(0, frame) && !is_one(128, frame));
    // In compiled code, or one that was interrupted, which may not have its frame; and where the
    // register is something else, which is not looked at.
    let others: [fn(&mut Native); 6] = [
        |frame| frame.is_compiled = true,
        |frame| frame.is_exact = true,
        |frame| frame.fp += 1,
        |frame| frame.fp = 0,
        |frame| frame.sp = frame.fp,
        |frame| frame.sp = frame.fp + 64,
    ];
    for (number, change) in others.iter().enumerate() {
        let mut other = frame;
        change(&mut other);
        assert!(!is_functionless(&Unread, &other), "{number}");
    }
}

/// Of which nothing may be read.
struct Unread;

impl Memory for Unread {
    fn load(&self, address: u64) -> Option<u64> {
        panic!("read at {address:#x}")
    }
    fn copy(&self, address: u64, _: &mut [u8]) -> Option<()> {
        panic!("read at {address:#x}")
    }
}

#[test]
fn functions_are_read_in_both_layouts() {
    for layout in [OLD, NEW] {
        for name in ["plain", "Töpfer", "Ж.деление", "𝄞"] {
            let (_, found) = describe(&layout, &function(&layout, name)).unwrap();
            assert_eq!(found.name, name);
            assert_eq!(found.file, "/some/where.mjs");
            // Of the script's first line, 100 from 0.
            assert_eq!(found.first, 102);
            let code = crate::wire::code::Code {
                first_line: found.first,
                format: crate::wire::code::LineFormat::Steps,
                lines: &found.rows,
                ..Default::default()
            };
            let lines = [0, 4, 5, 10, 11, 200].map(|position| code.line(position));
            assert_eq!(lines, [102, 102, 102, 102, 104, 104], "{:?}", found.rows);
        }
    }
}

#[test]
fn a_function_has_another_number_if_it_is_another() {
    for layout in [OLD, NEW] {
        let made = function(&layout, "f");
        let (first, _) = describe(&layout, &made).unwrap();
        let at = match layout.positions {
            Positions::BehindNames => SCOPE + 8 + 10 * 8,
            Positions::At(at) => SCOPE + at,
        };
        made.put_word(at, small(14));
        let (moved, _) = describe(&layout, &made).unwrap();
        made.put_word(SCRIPT + 64, small(8));
        let (other, _) = describe(&layout, &made).unwrap();
        assert!(first != moved && moved != other && first != other);
    }
}

#[test]
fn an_object_that_was_moved_is_followed() {
    let made = function(&OLD, "f");
    made.object(MORE, TYPES.function);
    made.put_word(MORE + OLD.function_shared, SHARED | 1);
    made.put_word(FUNCTION, MORE);
    assert_eq!(describe(&OLD, &made).unwrap().1.name, "f");
    made.put_word(MORE, BASE + 8);
    assert!(describe(&OLD, &made).is_none(), "not twice");
}

#[test]
fn strings_of_all_forms_are_read() {
    let made = function(&OLD, "abcdef");
    let heap = Heap {
        memory: &made,
        layout: &OLD,
    };
    let read = |word| {
        let mut room = [0; 64];
        let mut out = Utf8::new(&mut room);
        heap.write(word, &mut out)?;
        let text = out.text()?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let form = |place: u64, kind: u32, length: u64, words: [u64; 2]| {
        let at = MORE + place * 32;
        made.object(at, kind);
        made.put_word(at + 8, small(length));
        made.put_word(at + 16, words[0]);
        made.put_word(at + 24, words[1]);
        at | 1
    };
    let thin = form(0, 0x2d, 6, [NAME | 1, 0]);
    assert_eq!(read(thin).as_deref(), Some("abcdef"));
    let sliced = form(1, 0x2b, 3, [NAME | 1, small(2)]);
    assert_eq!(read(sliced).as_deref(), Some("cde"));
    let cons = form(2, 0x29, 9, [thin, sliced]);
    assert_eq!(read(cons).as_deref(), Some("abcdefcde"));
    let external = form(3, 0x2a, 4, [0, NAME + 16]);
    assert_eq!(read(external).as_deref(), Some("abcd"));
    let uncached = form(4, 0x3a, 4, [0, NAME + 16]);
    assert_eq!(read(uncached), None);
    let endless = form(5, 0x2d, 4, [(MORE + 5 * 32) | 1, 0]);
    assert_eq!(read(endless), None);
    let deep = form(6, 0x29, 4, [(MORE + 6 * 32) | 1, sliced]);
    assert_eq!(read(deep), None);
}

/// Every byte of everything is damaged in turn, in several ways: nothing is read outside, nothing
/// panics, nothing is endless.
#[test]
fn damage_is_survived() {
    for layout in [OLD, NEW] {
        let made = function(&layout, "some.name");
        let whole = describe(&layout, &made);
        let mut differ = 0;
        let places = (FUNCTION..MORE).chain(MAPS..MAPS + 64 * 16);
        made.damaged(places, |damaged| {
            differ += u32::from(describe(&layout, damaged) != whole);
            let _ = compiled::lines(&layout, damaged, INSTRUCTIONS + 30, true);
        });
        assert!(differ > 500, "{differ}");
    }
}

/// Heaps of random words, most of which are pointers into it.
#[test]
fn garbage_has_no_end_that_is_waited_for() {
    let mut next = random();
    let kinds = [2066u32, 262, 167, 261, 191, 0x28, 0x29, 0x2b, 0x2d];
    let mut functions = 0;
    for _ in 0..200 {
        let made = Made::of_words(|| match next() % 8 {
            0 => next(),
            1 => small(next() % 4096),
            2 => u64::from(kinds[next() as usize % kinds.len()]) << 32 | 1,
            _ => some_word(&mut next) | 1,
        });
        for layout in [OLD, NEW] {
            let heap = Heap {
                memory: &made,
                layout: &layout,
            };
            for at in (BASE..BASE + SIZE as u64).step_by(64) {
                let Some(function) = heap.function(at) else {
                    continue;
                };
                functions += 1;
                let mut lines = Lines::none();
                let _ = heap.lines(&function, &mut lines, next());
                let mut room = [0; 64];
                let _ = heap.name_of(&function, &mut room);
                let _ = heap.bytecode_lines(at, &lines, &mut room);
                let _ = heap.check(&function);
            }
        }
    }
    assert!(functions > 1000, "{functions}");
    assert_eq!(Made::new().load(BASE + SIZE as u64), None);
}
