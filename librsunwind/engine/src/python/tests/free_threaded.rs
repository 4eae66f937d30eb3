//! Free-threaded builds: what some say of themselves at the beginning of `_PyRuntime`, as it was
//! found there, and threads and code objects as they have them.

use super::{CODE, LINES, NAME, TYPE, check_of, code_object, described};
use crate::interpreter::made::{BASE, Made};
use crate::interpreter::memory::Memory;
use crate::python::layout::{self, Copies, Layout, Lock, Position};

const TABLES: [(u64, &[u64]); 3] = [
    (
        13,
        &[
            51187696, 1, 328384, 608, 632, 215616, 7272, 7264, 7344, 7400, 7664, 7648, 7656, 16,
            7760, 0, 7784, 7776, 312, 0, 8, 16, 72, 152, 160, 232, 32, 80, 8, 0, 56, 72, 70, 224,
            128, 136, 144, 152, 84, 68, 112, 120, 216, 32, 24, 432, 40, 104, 184, 48, 40, 32, 56,
            40, 32, 64, 48, 56, 40, 32, 48, 32, 40, 56, 32, 48, 80, 48, 32, 56, 248,
        ],
    ),
    (
        14,
        &[
            51251184, 1, 362368, 784, 808, 246720, 7280, 7272, 7344, 7360, 7408, 7712, 7696, 7704,
            16, 7808, 0, 7832, 7824, 8024, 17628, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0,
            56, 80, 78, 64, 72, 240, 128, 136, 144, 152, 84, 68, 112, 120, 232, 224, 32, 24, 432,
            40, 104, 184, 56, 48, 32, 56, 40, 32, 216, 40, 56, 48, 64, 48, 56, 40, 32, 48, 32, 40,
            56, 32, 48, 80, 48, 32, 56, 288, 192, 176, 40, 88, 83, 0, 8, 24, 304, 8108, 0,
        ],
    ),
    (
        15,
        &[
            51314881, 1, 405760, 912, 936, 247104, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584,
            16, 7744, 0, 7768, 7760, 7960, 17628, 888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32,
            36, 40, 136, 288, 0, 88, 8, 0, 56, 80, 78, 64, 72, 240, 128, 136, 144, 152, 84, 68,
            112, 120, 232, 224, 32, 24, 440, 40, 104, 184, 48, 304, 968, 904, 56, 48, 32, 56, 40,
            32, 216, 40, 56, 48, 64, 48, 56, 40, 32, 48, 32, 40, 56, 32, 48, 80, 48, 32, 56, 72,
            176, 112, 120, 216, 104, 176, 40, 88, 83, 0, 8, 24, 344, 8044,
        ],
    ),
];

/// Where each has what.
pub fn layouts() -> impl Iterator<Item = Layout> {
    TABLES.iter().map(|(minor, words)| {
        let made = Made::new();
        made.put_word(BASE, u64::from_le_bytes(*b"xdebugpy"));
        for (place, word) in (1..).zip(*words) {
            made.put_word(BASE + place * 8, *word);
        }
        layout::of(&made, *minor, BASE).unwrap()
    })
}

#[test]
fn objects_begin_with_whose_they_are() {
    let all: Vec<Layout> = layouts().collect();
    let code = |layout: &Layout| {
        let texts = [layout.file, layout.name, layout.lines];
        (texts, layout.first_line, layout.version, layout.position)
    };
    let later = ([128, 144, 152], 84, Some(108), Position::Address(232));
    assert_eq!(code(&all[1]), later);
    for (layout, state_head) in all.iter().zip([0, 6, 6]) {
        let texts = (layout.ascii, layout.characters, layout.state_head);
        assert_eq!((layout.head, texts), (16, (56, 72, state_head)));
    }
    let copies = |number, all| Some(Copies { number, all });
    let found: Vec<_> = all.iter().map(|layout| layout.copies).collect();
    assert_eq!(found, [None, copies(72, 224), copies(72, 224)]);
}

#[test]
fn names_and_lines_of_code_objects_are_read() {
    for layout in layouts() {
        for (name, width) in [("plain.name", 1), ("Ж.деление", 2)] {
            let made = code_object(&layout, name, width);
            let (found, file, first_line, _, lines) = described(&layout, &made).unwrap();
            assert_eq!(
                (&*found, &*file, first_line),
                (name, "/some/where/file.py", 77)
            );
            assert_eq!(lines, [0xd8, 1, 2, 0xd8, 3, 4]);
            assert_ne!(check_of(&layout, &made, TYPE), 0);
            assert_eq!(check_of(&layout, &made, NAME), 0, "another type");
        }
    }
}

/// A lock is there only while something needs it.
#[test]
fn a_thread_that_runs_has_the_lock_if_there_is_one() {
    for layout in layouts() {
        let Lock::Optional { status, in_use } = layout.lock else {
            panic!("{layout:?}");
        };
        // The interpreter is large: its lock lies here, as seen from there.
        let (thread, lock) = (BASE + 0x100, BASE + 0x800);
        let interpreter = BASE + 0x900 - in_use[1];
        let made = Made::new();
        made.put_word(thread + in_use[0], interpreter);
        made.put_word(interpreter + in_use[1], lock);
        let both = || (layout.owner(&made, thread), layout.has_lock(&made, thread));
        made.put_word(thread + layout.thread_id, 0x7f77);
        assert_eq!(both(), (Some((0x7f77, false)), false));
        made.put_word(lock + in_use[2], 7 << 32 | 1);
        assert_eq!(both(), (Some((0x7f77, false)), false));
        made.put_word(thread + status, 1 << 4);
        assert_eq!(both(), (Some((0x7f77, true)), true));
        made.put_word(lock + in_use[2], 7 << 32);
        assert_eq!(both(), (Some((0x7f77, true)), false));
        made.put_word(thread + status, 1 << 4 | 1 << 2);
        assert_eq!(both(), (None, false), "it is being taken away");
    }
}

/// A frame says in which copy of its instructions it is, and the code object where that begins.
#[test]
fn where_a_frame_is_in_its_own_copy_is_found() {
    const FRAME: u64 = BASE + 0x2000;
    const LIST: u64 = LINES;
    for layout in layouts() {
        let made = Made::new();
        let own = match layout.position {
            Position::Address(start) => CODE + start,
            Position::Counted(_) => panic!("{layout:?}"),
        };
        // A reference that is not counted has a mark.
        made.put_word(FRAME + layout.code, CODE | 1);
        let at = |instruction: u64| {
            made.put_word(FRAME + layout.instruction, instruction);
            let place = layout.place(&made, FRAME).unwrap();
            let start = match place.copy {
                0 => Some(0),
                _ => layout.start_of(&made, &place),
            };
            (place.code, place.copy, place.position(start))
        };
        assert_eq!(at(own + 10), (CODE, 0, 10));
        assert_eq!(at(own - 2), (CODE, 0, 0), "it has not begun");
        let Some(copies) = layout.copies else {
            continue;
        };
        let copy = 0x7f12_3450_0000;
        made.put_word(FRAME + copies.number, 0x77 << 32 | 2);
        made.put_word(CODE + copies.all, LIST);
        for (index, word) in [4, own, 0, copy, 0].into_iter().enumerate() {
            made.put_word(LIST + index as u64 * 8, word);
        }
        assert_eq!(at(copy + 10), (CODE, 2, 10));
        made.put_word(LIST + 24, 0);
        assert_eq!(at(copy + 10), (CODE, 2, u32::MAX), "it is not there");
        let list = Replaced(&made, CODE + copies.all);
        made.put_word(LIST + 24, copy);
        let place = layout.place(&made, FRAME).unwrap();
        assert_eq!(layout.start_of(&list, &place), None, "another list by now");
    }
}

/// Memory in which another list stands once the first has been read.
struct Replaced<'m>(&'m Made, u64);

impl Memory for Replaced<'_> {
    fn load(&self, address: u64) -> Option<u64> {
        self.0.load(address)
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        self.0.put_word(self.1, LINES + 0x100);
        self.0.copy(address, to)
    }
}
