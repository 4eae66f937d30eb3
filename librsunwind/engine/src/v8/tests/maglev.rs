//! Calls in Maglev's code, in a made-up heap.

use super::super::optimised::forget;
use super::optimised::{DATA, SIZE, START, alone, line, optimised};
use super::{BYTECODES, MORE, NEW, OLD, SHARED, small};
use crate::interpreter::made::Made;
use crate::v8::layout::Layout;

const MAGLEV: u64 = 12;
/// What frames become.
const FRAMES: u64 = MORE + 0x400;
/// Behind the instructions.
const ROWS: u64 = START + SIZE;
/// Where the ways back begin.
const fn entries(layout: &Layout) -> u64 {
    DATA + layout.inlined + 32
}

/// The function of the other tests, with code that calls at three places: from the first one can
/// go back to the bytecode at 11, from the last to that at 0, from the second nowhere.
fn made(layout: &Layout, (place, number, registers): (usize, usize, usize)) -> Made {
    let made = optimised(layout, MAGLEV);
    made.put_word(SHARED + 8, BYTECODES | 1);
    made.put_word(DATA + 8, small(18));
    made.array(FRAMES, 200, 16, &[7, 0x81, 0x82, 3, 2, 2, 9, 7, 5, 4, 4, 9]);
    made.put_word(DATA + 16, FRAMES | 1);
    let configuration = 1 | registers << 1 | place << 4 | number << 7;
    made.put_word(ROWS, 3 << 32 | 0x77);
    made.put_word(ROWS + 8, 5 << 32 | configuration as u64);
    let mut rows = Vec::new();
    for (at, way) in [(10u32, 2u32), (60, 0), (100, 1)] {
        rows.extend(&at.to_le_bytes()[..place]);
        rows.extend(&way.to_le_bytes()[..number]);
        rows.extend(&[0xaa; 4][..place]);
        rows.extend(&[0xbb; 8][..1 + registers]);
    }
    made.put(ROWS + 16, &rows);
    for (index, bytecode) in [(0, 0), (1, 11)] {
        made.put_word(entries(layout) + index * 24, small(bytecode));
        made.put_word(entries(layout) + index * 24 + 8, small(0));
    }
    made
}

#[test]
fn calls_have_the_lines_of_the_bytecodes_to_go_back_to() {
    let _alone = alone();
    for layout in [OLD, NEW] {
        for sizes in [(1, 1, 0), (1, 1, 2), (2, 1, 4), (4, 2, 1)] {
            let made = made(&layout, sizes);
            // Twice, since what was found is kept.
            for _ in 0..2 {
                let found = [10, 60, 100, 11, 9, 101].map(|offset| line(&layout, &made, offset));
                assert_eq!(
                    found,
                    [Some(104), None, Some(102), None, None, None],
                    "{sizes:?}"
                );
            }
            forget();
            made.put(ROWS + 16, &[11]);
            assert_eq!(line(&layout, &made, 10), None, "other rows");
        }
    }
}

#[test]
fn calls_in_others_that_are_part_of_it_have_no_lines() {
    let _alone = alone();
    let made = made(&OLD, (1, 1, 0));
    let described = entries(&OLD) + 24 + 8;
    for (place, expected) in [
        (7, None),
        (0, Some(104)),
        (12, None),
        (u32::MAX as u64 >> 1, None),
    ] {
        forget();
        made.put_word(described, small(place));
        assert_eq!(line(&OLD, &made, 10), expected, "{place}");
    }
    made.put_word(described, small(0));
    made.put_word(DATA + 8, small(8));
    assert_eq!(line(&OLD, &made, 10), None, "behind the end");
    let unknown = Layout {
        knows_maglev: false,
        ..OLD
    };
    forget();
    made.put_word(DATA + 8, small(18));
    assert_eq!(line(&OLD, &made, 10), Some(104));
    forget();
    assert_eq!(line(&unknown, &made, 10), None);
}

#[test]
fn damage_is_survived() {
    let _alone = alone();
    let made = made(&NEW, (1, 1, 0));
    let places = (DATA..DATA + 0x90).chain(ROWS..ROWS + 40);
    made.damaged(places.chain(FRAMES..FRAMES + 28), |damaged| {
        let _ = line(&NEW, damaged, 10);
    });
}
