//! Code objects and frames in made-up memory, whole and damaged.

mod free_threaded;
mod named;

use super::code::{Part, Place};
use super::entries::Entry;
use super::layout::{self, Coroutines, Entries, Layout};
use super::tasks::Awaiting;
use crate::interpreter::made::{BASE, Made, random, some_word};
use crate::interpreter::memory::Memory;
use crate::python::recent::{Codes, WORDS};
use crate::wire::code::{LONGEST_LINES, LineFormat};

const TYPE: u64 = BASE + 0x10;
const CODE: u64 = BASE + 0x100;
const NAME: u64 = BASE + 0x400;
const FILE: u64 = BASE + 0x1000;
const LINES: u64 = BASE + 0x1800;

trait Objects {
    fn put_text(&self, layout: &Layout, address: u64, text: &str, width: u64);
    fn put_bytes(&self, layout: &Layout, address: u64, bytes: &[u8]);
}

impl Objects for Made {
    fn put_text(&self, layout: &Layout, address: u64, text: &str, width: u64) {
        let is_ascii = text.is_ascii();
        let state = width << 2 | 1 << 5 | u64::from(is_ascii) << 6;
        let [length_at, state_at] = [16, 32].map(|offset| address + layout.of_object(offset));
        self.put_word(length_at, text.chars().count() as u64);
        self.put_word(state_at, state << layout.state_head);
        let start = if is_ascii {
            layout.ascii
        } else {
            layout.characters
        };
        for (index, character) in text.chars().enumerate() {
            let bytes = u32::from(character).to_le_bytes();
            let place = address + start + index as u64 * width;
            self.put(place, &bytes[..width as usize]);
        }
    }

    fn put_bytes(&self, layout: &Layout, address: u64, bytes: &[u8]) {
        self.put_word(address + layout.of_object(16), bytes.len() as u64);
        self.put(address + layout.of_object(32), bytes);
    }
}

fn layout_of(minor: u64) -> Layout {
    layout::of(&Made::new(), minor, BASE).unwrap()
}

/// A code object of that name.
fn code_object(layout: &Layout, name: &str, width: u64) -> Made {
    let made = Made::new();
    made.put_word(CODE + layout.of_object(8), TYPE);
    made.put_word(CODE + layout.name, NAME);
    made.put_word(CODE + layout.file, FILE);
    made.put_word(CODE + layout.lines, LINES);
    made.put(CODE + layout.first_line, &77u32.to_le_bytes());
    made.put_text(layout, NAME, name, width);
    made.put_text(layout, FILE, "/some/where/file.py", 1);
    made.put_bytes(layout, LINES, &[0xd8, 1, 2, 0xd8, 3, 4]);
    made
}

/// What tells it from others, for a walk that has met none.
fn check_of(layout: &Layout, made: &Made, code_type: u64) -> u64 {
    layout.check(made, CODE, code_type, &mut Codes::new(&mut [0; WORDS]))
}

/// Describes it into an owned record.
fn described(layout: &Layout, made: &Made) -> Option<(String, String, u32, LineFormat, Vec<u8>)> {
    let mut told: Option<(_, _, _, _, Vec<u8>)> = None;
    let mut is_done = false;
    layout.describe(made, CODE, |part| {
        assert!(!is_done);
        match part {
            Part::Code(code, is_last) => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let (name, file) = (text(code.name), text(code.file));
                let lines = code.lines.to_vec();
                told = Some((name, file, code.first_line, code.format, lines));
                is_done = is_last;
            }
            Part::Lines(more, is_last) => {
                let lines = &mut told.as_mut()?.4;
                assert_eq!((more.offset as usize, more.number), (lines.len(), 0));
                lines.extend_from_slice(more.lines);
                is_done = is_last;
            }
        }
        Some(())
    })?;
    assert!(is_done);
    told
}

#[test]
fn line_tables_of_any_length_are_told_in_parts() {
    let layout = layout_of(12);
    for length in [1, LONGEST_LINES, LONGEST_LINES + 1, LONGEST_LINES + 1000] {
        let made = code_object(&layout, "some_function", 1);
        let lines: Vec<u8> = (0..length).map(|at| at as u8).collect();
        made.put_bytes(&layout, LINES, &lines);
        assert_eq!(described(&layout, &made).map(|told| told.4), Some(lines));
    }
    // Nobody wants the rest.
    let made = code_object(&layout, "some_function", 1);
    made.put_bytes(&layout, LINES, &[0; LONGEST_LINES + 1]);
    let mut parts = 0;
    layout.describe(&made, CODE, |_| {
        parts += 1;
        None
    });
    assert_eq!(parts, 1);
}

#[test]
fn names_of_all_widths_are_read_in_all_versions() {
    for minor in 9..=12 {
        let layout = layout_of(minor);
        let long = "a".repeat(90);
        let cut = "𝄞".repeat(100);
        for (name, width) in [
            ("plain.name", 1),
            ("Töpfer", 1),
            ("Ж.деление", 2),
            ("𝄞", 4),
            ("x", 1),
            (long.as_str(), 1),
            (cut.as_str(), 4),
        ] {
            let made = code_object(&layout, name, width);
            let expected_format = match minor {
                9 => LineFormat::Python39,
                10 => LineFormat::Python310,
                _ => LineFormat::Python311,
            };
            let found = described(&layout, &made).unwrap();
            let file = "/some/where/file.py".to_owned();
            let lines = vec![0xd8, 1, 2, 0xd8, 3, 4];
            let expected = (name.to_owned(), file, 77, expected_format, lines);
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_code_object_has_another_number_if_anything_that_names_it_is_another() {
    let layout = layout_of(12);
    let check = |made: &Made| check_of(&layout, made, TYPE);
    let first = check(&code_object(&layout, "some_function", 1));
    assert_ne!(first, 0);
    assert_eq!(first, check(&code_object(&layout, "some_function", 1)));
    let mut seen = vec![first];
    for name in [
        "same_function",
        "some_functiom",
        "some_functio",
        "x",
        "y",
        "xy",
    ] {
        seen.push(check(&code_object(&layout, name, 1)));
    }
    // Only in the middle, at each of its characters.
    let long = "x".repeat(60);
    for at in 0..=long.len() {
        let mut name = long.clone();
        name.replace_range(at..(at + 1).min(long.len()), "y");
        seen.push(check(&code_object(&layout, &name, 1)));
    }
    let made = code_object(&layout, "some_function", 1);
    made.put(CODE + layout.first_line, &78u32.to_le_bytes());
    seen.push(check(&made));
    let made = code_object(&layout, "some_function", 1);
    made.put_bytes(&layout, LINES, &[0xd8, 1, 2, 0xd8, 3, 5]);
    seen.push(check(&made));
    let made = code_object(&layout, "some_function", 1);
    made.put_text(&layout, FILE, "/some/where/life.py", 1);
    seen.push(check(&made));
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
    // What is behind a short text is not part of it.
    let made = code_object(&layout, "xy", 1);
    let before = check(&made);
    made.put(NAME + layout.ascii + 2, b"garbage");
    assert_eq!(check(&made), before);
    // A hash that is known stands for the whole text.
    let made = code_object(&layout, "some_function", 1);
    let hash = NAME + layout.of_object(24);
    made.put_word(hash, u64::MAX);
    assert_eq!(check(&made), first, "not known");
    made.put_word(hash, 77);
    let before = check(&made);
    made.put_word(hash, 78);
    assert_ne!(check(&made), before);
    // A file that is known is not read again, but in the next walk.
    let mut known = [0; WORDS];
    let mut known = Codes::new(&mut known);
    let made = code_object(&layout, "some_function", 1);
    assert_eq!(layout.check(&made, CODE, TYPE, &mut known), first);
    assert_eq!(known.find(CODE), Some(first));
    made.put_text(&layout, FILE, "/some/where/life.py", 1);
    assert_ne!(check(&made), first);
    assert_eq!(layout.check(&made, CODE, TYPE, &mut known), first);
    // What is none.
    assert_eq!(check_of(&layout, &made, TYPE + 8), 0);
    made.put(CODE + layout.first_line, &0u32.to_le_bytes());
    assert_ne!(check(&made), 0);
    let file = made.load(CODE + layout.file).unwrap();
    made.put_word(CODE + layout.file, made.load(CODE + layout.name).unwrap());
    assert_eq!(check(&made), 0, "what calls a class's __init__");
    made.put_word(CODE + layout.file, file);
    made.put_bytes(&layout, LINES, &[]);
    assert_eq!(check(&made), 0, "the interpreter's own");
}

/// Of a code object with a version nothing else is read than itself.
#[test]
fn a_version_tells_code_objects_apart() {
    let layout = layout_of(12);
    let made = code_object(&layout, "some_function", 1);
    let check = || check_of(&layout, &made, TYPE);
    let mut seen = vec![check()];
    for version in [1u32, 2, 77] {
        made.put(CODE + layout.version.unwrap(), &version.to_le_bytes());
        seen.push(check());
    }
    made.put_word(CODE + layout.name, 8);
    seen.push(check());
    made.put_word(CODE + layout.lines, 8);
    seen.push(check());
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() == count && !seen.contains(&0), "{seen:x?}");
}

/// Every byte of everything is damaged in turn, in several ways: nothing is read outside, nothing
/// panics, nothing is endless.
#[test]
fn damage_is_survived() {
    for minor in 9..=12 {
        let layout = layout_of(minor);
        for name in ["some_function", "Ж.деление"] {
            let width = if name.is_ascii() { 1 } else { 2 };
            let whole = code_object(&layout, name, width);
            let mut differ = 0;
            let objects = [(CODE, 0x100), (NAME, 0x60), (FILE, 0x60), (LINES, 0x40)];
            let places = objects.into_iter().flat_map(|(at, size)| at..at + size);
            whole.damaged(places, |damaged| {
                let _ = check_of(&layout, damaged, TYPE);
                differ += u32::from(described(&layout, damaged).is_none());
            });
            assert!(differ > 50, "{differ}");
        }
    }
}

/// Frames, entries and thread states of random words.
#[test]
fn garbage_has_no_end_of_frames_that_is_waited_for() {
    let mut next = random();
    for _ in 0..60 {
        // Mostly addresses in it, so that chains go on, and go in circles.
        let made = Made::of_words(|| match next() % 4 {
            0 => next(),
            _ => some_word(&mut next),
        });
        for minor in 9..=12 {
            let layout = layout_of(minor);
            let thread = BASE + next() % 0x1000;
            let mut entry = layout.innermost(&made, thread);
            for _ in 0..10 {
                let Some(known) = entry else { break };
                let _: Option<Place> = layout.place(&made, known.frame);
                let mut place = next() % 0x400;
                layout.placed(&made, &known, BASE..BASE + next() % 0x4000, &mut place);
                entry = layout.outer(&made, &known);
            }
        }
    }
}

/// The native frames of three frames of 3.9 and of one that has not begun.
#[test]
fn native_frames_have_what_they_point_into() {
    const SIZE: u64 = 160;
    let layout = layout_of(9);
    let made = Made::new();
    let frame = |number: u64| BASE + 0x1000 + number * 0x400;
    let native = |number: u64| BASE + number * SIZE..BASE + (number + 1) * SIZE;
    for number in 1..=3 {
        let caller = if number == 3 { 0 } else { frame(number + 1) };
        made.put_word(frame(number) + layout.previous, caller);
        made.put_word(frame(number) + 16, 4);
        made.put_word(frame(number) + layout.code, 0x7000 + number);
        made.put_word(frame(number) + layout.instruction, 0x8000 + number);
    }
    let entry = layout.innermost(&made, BASE + 0x2f00);
    assert_eq!(entry, None, "no frame");
    made.put_word(BASE + 0x2f00 + layout.innermost, frame(1));
    let first = layout.innermost(&made, BASE + 0x2f00).unwrap();
    assert_eq!((first.address, first.frame), (Entry::UNPLACED, frame(1)));
    let placed = |entry: &Entry, number| {
        let mut places = [0, 40, 48, 7, u64::MAX];
        let found = places
            .each_mut()
            .map(|place| layout.placed(&made, entry, native(number), place));
        assert!(found.iter().all(|it| *it == found[0]), "{found:?}");
        let found = found[0]?;
        Some((found, found.address - BASE, found.count))
    };
    // What begins has its caller's registers alone.
    made.put_word(native(0).end - 24, frame(1));
    assert_eq!(placed(&first, 0), None);
    // The innermost by a place in its stack, at the end of its room; not behind it.
    made.put_word(native(1).start + 40, frame(1) + 360 + 33);
    assert_eq!(placed(&first, 1), None);
    made.put_word(native(1).start + 40, frame(1) + 360 + 32);
    let (innermost, at, count) = placed(&first, 1).unwrap();
    assert_eq!((at, count), (SIZE, 1));
    let rest = layout.outer(&made, &innermost).unwrap();
    assert_eq!((rest.address, rest.frame), (Entry::UNPLACED, frame(2)));
    // The native frame of the next was missed.
    made.put_word(native(2).start, frame(3));
    let (both, at, count) = placed(&rest, 2).unwrap();
    assert_eq!((at, count), (2 * SIZE, 2));
    // What is known is of the innermost of both, and is so when it was kept.
    for (entry, number) in [(innermost, 1), (both, 2)] {
        assert_eq!(entry.innermost, layout.frame(&made, frame(number)));
        assert_eq!(Entry::from_words(&entry.to_words()), entry);
    }
    assert!(both.innermost.is_some());
    assert_eq!(layout.outer(&made, &both), None, "that was all");
    // One that is hardly there has no words of its own.
    assert_eq!(layout.placed(&made, &rest, BASE..BASE + 8, &mut 0), None);
}

/// Of 3.10: two entries, the outer one with a generator that was only made the caller of another.
#[test]
fn a_frame_that_is_not_run_has_no_entry() {
    let layout = layout_of(10);
    let Entries::One {
        innermost,
        root,
        previous,
        depth,
        state,
        generator,
    } = layout.entries
    else {
        panic!("{layout:?}");
    };
    let made = Made::new();
    let thread = BASE + 0x2000;
    let [inner, outer] = [BASE + 0x100, BASE + 0x200];
    let [thrown, passes, main] = [0x400, 0x500, 0x600].map(|at| BASE + at);
    made.put_word(thread + innermost, inner);
    made.put_word(thread + layout.innermost, thrown);
    made.put_word(inner + previous, outer);
    made.put_word(outer + previous, thread + root);
    for (one, caller, values) in [(thrown, passes, -1), (passes, main, 1), (main, 0, -1)] {
        made.put_word(one + layout.previous, caller);
        made.put(one + depth, &i32::to_le_bytes(values));
    }
    for one in [thrown, passes] {
        made.put_word(one + generator, 0x77);
    }
    let entries = || {
        let first = layout.innermost(&made, thread)?;
        let second = layout.outer(&made, &first)?;
        assert_eq!(layout.outer(&made, &second), None, "that was all");
        Some([first, second].map(|entry| (entry.frame, entry.count)))
    };
    assert_eq!(entries(), Some([(thrown, 1), (passes, 2)]));
    // A function, as one sees it that traces its lines.
    made.put_word(thrown + generator, 0);
    made.put(thrown + depth, &0i32.to_le_bytes());
    assert_eq!(entries(), Some([(thrown, 1), (passes, 2)]));
    made.put_word(thrown + generator, 0x77);
    // A frame that begins, as a tracing function sees it.
    made.put(thrown + depth, &0i32.to_le_bytes());
    made.put(thrown + state, &[0xfe]);
    assert_eq!(entries(), Some([(thrown, 1), (passes, 2)]));
}

/// Of 3.11: two entries, the outer one with a generator that was only made the caller of another.
#[test]
fn a_mark_from_an_earlier_entry_does_not_end_one() {
    let layout = layout_of(11);
    let Entries::Marked {
        innermost,
        root,
        previous,
        frame,
        is_entry,
    } = layout.entries
    else {
        panic!("{layout:?}");
    };
    let made = Made::new();
    let thread = BASE + 0x2000;
    let [inner, outer] = [BASE + 0x100, BASE + 0x200];
    let [thrown, passes, called, main] = [0x400, 0x500, 0x600, 0x700].map(|at| BASE + at);
    made.put_word(thread + innermost, inner);
    for (record, next, of) in [(inner, outer, thrown), (outer, thread + root, passes)] {
        made.put_word(record + previous, next);
        made.put_word(record + frame, of);
    }
    for (one, caller, mark) in [
        (thrown, passes, 1),
        (passes, called, 1),
        (called, main, 0),
        (main, 0, 1),
    ] {
        made.put_word(one + layout.previous, caller);
        made.put(one + is_entry, &[mark]);
    }
    let counts = || {
        let first = layout.innermost(&made, thread)?;
        let second = layout.outer(&made, &first)?;
        assert_eq!(layout.outer(&made, &second), None, "that was all");
        Some((first.count, second.count))
    };
    assert_eq!(counts(), Some((1, 3)));
    // Nobody is called by the next entry: the first mark counts.
    made.put_word(thread + root + frame, BASE);
    assert_eq!(counts(), Some((1, 1)));
}

/// A task that a future stands for, which another task awaits, two coroutines deep.
#[test]
fn a_task_is_awaited_by_way_of_futures_and_coroutines() {
    const TABLE: u64 = BASE;
    let layout = Layout {
        coroutines: Some(Coroutines {
            frame: 72,
            state: 67,
            awaits: [2, 3],
            stack: 64,
            awaited: 16,
        }),
        ..layout_of(12)
    };
    let made = Made::new();
    for (place, offset) in [(2, 96), (3, 108), (4, 109), (5, 128), (11, 936)] {
        made.put_word(TABLE + place * 8, offset);
    }
    let object = |number: u64| BASE + 0x800 + number * 0x200;
    let [running, future, waits] = [0, 1, 2].map(object);
    let [own, outer, inner] = [3, 4, 5].map(object);
    let thread = object(6);
    made.put_word(thread + 936, running);
    made.put_word(running + 128, own);
    made.put_word(running + 96, future);
    made.put_word(future + 96, waits);
    made.put(waits + 108, &[1]);
    made.put_word(waits + 128, outer);
    for (coroutine, state, awaited) in [(outer, 2, inner | 1), (inner, 3, future)] {
        made.put_word(coroutine + 8, 0x77);
        made.put(coroutine + 67, &[state]);
        made.put_word(coroutine + 72 + 64, coroutine + 0x180);
        made.put_word(coroutine + 0x180 - 16, awaited);
    }
    let entry = Entry::from_words(&[0, 0, 1, thread, 0, 0, 0, 0]);
    let all = || {
        let mut task = Awaiting::of(&made, &layout, &entry, TABLE)?;
        assert_eq!(task.outermost, own + 72);
        let frames = std::iter::from_fn(|| task.next(&made, &layout));
        Some(frames.map(|frame| frame - 72).collect::<Vec<_>>())
    };
    assert_eq!(all(), Some(vec![inner, outer]));
    made.put(outer + 67, &[0]);
    assert_eq!(all(), Some(vec![outer]), "it has not begun");
    made.put(outer + 67, &[2]);
    made.put_word(outer + 0x180 - 16, outer);
    assert_eq!(all(), Some(vec![]), "endless");
    made.put(outer + 67, &[0]);
    made.put(running + 109, &[1]);
    assert_eq!(all(), Some(vec![]), "several await it");
    made.put(running + 109, &[0]);
    made.put_word(waits + 96, waits);
    assert_eq!(all().map(|frames| frames.len()), Some(63), "itself");
    made.put_word(thread + 936, 0);
    assert_eq!(all(), None, "no task");
}

#[test]
fn versions_that_are_not_known_are_refused() {
    // Later ones have a table, at whose place there is nothing here.
    for minor in [0, 8, 13, 14, 15, 16, 99] {
        let refused = layout::of(&Made::new(), minor, BASE);
        assert_eq!(refused, None, "3.{minor}");
        assert_eq!(
            layout::of(&Made::new(), minor, 8).is_none(),
            !(9..=12).contains(&minor)
        );
    }
}
