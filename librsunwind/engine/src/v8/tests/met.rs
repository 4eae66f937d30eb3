//! Frames like others shortly before.

use super::super::code::Place;
use super::super::frame::{Native, Standing};
use super::super::function::SCRIPT_ID;
use super::super::layout::Layout;
use super::super::met::{Met, Moment, forget};
use super::optimised::alone;
use super::{
    BYTECODES, FUNCTION, INSTRUCTIONS, MORE, NEW, OLD, SCRIPT, SHARED, TYPES, function, small,
};
use crate::interpreter::made::Made;

const FP: u64 = MORE + 0x100;
const THREAD: u64 = 7;
const NOW: Moment = Moment::at(THREAD, 1 << 30);

/// A frame of the function, in compiled code or the interpreter's.
fn frame(is_compiled: bool) -> (Native, Standing) {
    let frame = Native {
        pc: INSTRUCTIONS + 20,
        is_exact: false,
        is_compiled,
        sp: FP - 64,
        fp: FP,
        rdi: None,
        r9: None,
        r12: None,
    };
    let standing = Standing {
        function: FUNCTION | 1,
        fp: Some(FP),
        caller: None,
    };
    (frame, standing)
}

/// Finds what a frame runs, and keeps it.
fn find(layout: &Layout, made: &Made, (frame, standing): &(Native, Standing)) -> (u64, Place) {
    let shared = layout.shared(made, standing.function).unwrap();
    let check = layout.check(made, shared, THREAD);
    let place = layout.place(made, frame, standing, (shared, check));
    layout.keep(made, frame, (shared, check), &place, &NOW);
    (check, place)
}

fn met(layout: &Layout, made: &Made, frame: &(Native, Standing), moment: &Moment) -> Option<Met> {
    layout.met(made, &frame.0, &frame.1, moment)
}

/// The function, as the interpreter runs it.
fn interpreted(layout: &Layout) -> Made {
    let made = function(layout, "f");
    made.put_word(FP - 32, BYTECODES | 1);
    made.put_word(FP - 40, small(layout.bytecode_data - 1 + 5));
    made
}

#[test]
fn a_frame_like_one_before_runs_the_same() {
    let _alone = alone();
    for layout in [OLD, NEW] {
        for is_compiled in [false, true] {
            let (made, frame) = (interpreted(&layout), frame(is_compiled));
            forget();
            assert_eq!(met(&layout, &made, &frame, &NOW), None);
            let (check, place) = find(&layout, &made, &frame);
            let expected = Met {
                check,
                id: place.id,
                position: place.position,
            };
            assert_ne!(check, 0);
            assert_eq!(met(&layout, &made, &frame, &NOW), Some(expected));
            // It has gone on since.
            made.put_word(FP - 40, small(layout.bytecode_data - 1 + 9));
            let position = if is_compiled { place.position } else { 9 };
            let expected = Met {
                position,
                ..expected
            };
            assert_eq!(met(&layout, &made, &frame, &NOW), Some(expected));
        }
    }
}

#[test]
fn another_frame_is_not_met() {
    let _alone = alone();
    let (made, frame) = (interpreted(&OLD), frame(true));
    find(&OLD, &made, &frame);
    assert!(met(&OLD, &made, &frame, &NOW).is_some());
    let others = [
        Native {
            pc: INSTRUCTIONS + 21,
            ..frame.0
        },
        Native {
            is_exact: true,
            ..frame.0
        },
        Native {
            is_compiled: false,
            ..frame.0
        },
    ];
    for other in others {
        assert_eq!(met(&OLD, &made, &(other, frame.1), &NOW), None, "{other:?}");
    }
    let later = Moment::at(THREAD, 2 << 30);
    let by_another = Moment::at(THREAD + 1, 1 << 30);
    for moment in [later, by_another] {
        assert_eq!(met(&OLD, &made, &frame, &moment), None, "{moment:?}");
    }
}

#[test]
fn what_has_come_to_the_place_of_another_is_not_met() {
    let _alone = alone();
    let frame = frame(true);
    let changes: [fn(&Made); 4] = [
        // Another function, that of another script, and another script of that address.
        |made| made.put_word(FUNCTION + OLD.function_shared, (SHARED + 8) | 1),
        |made| made.put_word(SHARED + OLD.shared_script, (SCRIPT + 8) | 1),
        |made| made.put_word(SCRIPT + SCRIPT_ID, small(99)),
        |made| made.put_word(FUNCTION + OLD.function_shared, 0),
    ];
    for change in changes {
        let made = interpreted(&OLD);
        find(&OLD, &made, &frame);
        assert!(met(&OLD, &made, &frame, &NOW).is_some());
        change(&made);
        assert_eq!(met(&OLD, &made, &frame, &NOW), None);
    }
}

#[test]
fn a_function_without_a_script_is_not_kept() {
    let _alone = alone();
    let (made, frame) = (interpreted(&OLD), frame(true));
    made.object(SCRIPT, TYPES.scope);
    find(&OLD, &made, &frame);
    assert_eq!(met(&OLD, &made, &frame, &NOW), None);
}
