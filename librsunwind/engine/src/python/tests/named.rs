//! Threads of `threading` in made-up memory, whole and damaged. The beginning of it is the thread
//! state, as the fuzz target has it: what is made here is in its corpus, too.

use super::{Objects, free_threaded, layout_of};
use crate::interpreter::made::{BASE, Made};
use crate::python::layout::{Attributes, Entries, Layout};
use crate::python::names::LONGEST;

const RECORD: u64 = BASE + 0x180;
const FRAME: u64 = BASE + 0x200;
/// A frame of the interpreter's own, from 3.12 on.
const ENTRY: u64 = BASE + 0x300;
const CODE: u64 = BASE + 0x400;
const FUNCTION: u64 = BASE + 0x500;
const FILE: u64 = BASE + 0x580;
const THREAD: u64 = BASE + 0x680;
const CLASS: u64 = BASE + 0x800;
const KEYS: u64 = BASE + 0xc00;
const VALUES: u64 = BASE + 0xd00;
const DICTIONARY: u64 = BASE + 0xd80;
const TEXTS: u64 = BASE + 0xe00;
const NAME: u64 = BASE + 0xf00;
const END: u64 = BASE + 0x1000;
const STRING: u64 = 0x77;

/// How an instance has its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    /// As values.
    Values,
    /// In a dictionary, whose keys others have, too.
    Shared,
    /// In a dictionary of its own.
    Own,
}

const ALL: [Has; 3] = [Has::Values, Has::Shared, Has::Own];

fn put_string(made: &Made, layout: &Layout, address: u64, text: &str, width: u64) {
    made.put_word(address + layout.of_object(8), STRING);
    made.put_text(layout, address, text, width);
}

/// A thread state whose only frame runs a thread of that name.
fn named(layout: &Layout, has: Has, name: &str, width: u64) -> Made {
    let made = Made::new();
    made.put_word(BASE + layout.innermost, FRAME);
    match layout.entries {
        Entries::One { innermost, .. } => made.put_word(BASE + innermost, RECORD),
        Entries::Marked {
            innermost, frame, ..
        } => {
            made.put_word(BASE + innermost, RECORD);
            made.put_word(RECORD + frame, FRAME);
        }
        Entries::OnStack {
            by_way_of, owner, ..
        } => {
            made.put_word(FRAME + layout.previous, ENTRY);
            made.put(ENTRY + owner, &[3]);
            made.put_word(BASE + layout.innermost, RECORD);
            made.put_word(RECORD + by_way_of.unwrap_or(0), FRAME);
        }
        Entries::Unplaced => {}
    }
    made.put_word(FRAME + layout.code, CODE);
    made.put_word(FRAME + layout.variables, THREAD);
    let is_qualified = layout.attributes != Attributes::Dictionary;
    let function = if is_qualified {
        "Thread._bootstrap"
    } else {
        "_bootstrap"
    };
    made.put_word(CODE + layout.name, FUNCTION);
    put_string(&made, layout, FUNCTION, function, 1);
    made.put_word(CODE + layout.file, FILE);
    put_string(&made, layout, FILE, "/usr/lib/python3/threading.py", 1);
    let [kind, size, flags, in_it] = [8, 32, 168, 288].map(|offset| layout.of_object(offset));
    let behind = layout.of_object(16);
    made.put_word(THREAD + kind, CLASS);
    made.put_word(CLASS + size, behind);
    let managed = u64::from(is_qualified) << 4;
    made.put_word(CLASS + flags, 1 << 9 | managed | 1 << 2);
    made.put_word(CLASS + in_it, behind);
    made.put_word(CLASS + layout.value_names, KEYS);
    put_keys(&made, layout, has == Has::Own);
    put_string(&made, layout, TEXTS, "_target", 1);
    put_string(&made, layout, TEXTS + 0x40, "_name", 1);
    let head = match layout.attributes {
        Attributes::Behind => 8,
        _ => 0,
    };
    let values = match (layout.attributes, has) {
        (_, Has::Own) => 0,
        (Attributes::Behind, Has::Values) => {
            made.put_word(THREAD + behind, 1 << 24);
            THREAD + behind
        }
        _ => VALUES,
    };
    let dictionary = match (layout.attributes, has) {
        (Attributes::Either, Has::Values) => VALUES - 1,
        (Attributes::Apart | Attributes::Behind, Has::Values) => 0,
        _ => DICTIONARY,
    };
    if layout.attributes == Attributes::Apart && has == Has::Values {
        made.put_word(THREAD - 32, VALUES);
    }
    let place = if is_qualified {
        THREAD - 24 + layout.head
    } else {
        THREAD + behind
    };
    made.put_word(place, dictionary);
    made.put_word(DICTIONARY + layout.of_object(32), KEYS);
    made.put_word(DICTIONARY + layout.of_object(40), values);
    if values != 0 {
        made.put_word(values + head + 8, NAME);
    }
    put_string(&made, layout, NAME, name, width);
    made
}

/// Two keys; the values too, if they are in that table.
fn put_keys(made: &Made, layout: &Layout, is_own: bool) {
    let (entries, size, key) = match layout.attributes {
        Attributes::Dictionary => {
            made.put_word(KEYS + 8, 8);
            made.put_word(KEYS + 32, 2);
            (KEYS + 48, 24, 8)
        }
        _ => {
            made.put_word(KEYS + 8, 2 << 16 | 3 << 8 | 3);
            made.put_word(KEYS + 24, 2);
            (KEYS + 40, 16, 0)
        }
    };
    for index in 0..2 {
        made.put_word(entries + index * size + key, TEXTS + index * 0x40);
    }
    if is_own {
        made.put_word(entries + size + key + 8, NAME);
    }
}

/// Of all versions; what a later one says itself is where 3.12 has it, but for free-threaded
/// builds.
fn layouts() -> Vec<Layout> {
    let later = Layout {
        attributes: Attributes::Behind,
        ..layout_of(12)
    };
    let known = (9..=12).map(layout_of).chain([later]);
    known.chain(free_threaded::layouts()).collect()
}

fn name_of(made: &Made, layout: &Layout) -> Option<String> {
    let mut room = [0; LONGEST];
    let name = layout.thread_name(made, FRAME, &mut room)?;
    Some(String::from_utf8_lossy(name).into_owned())
}

#[test]
fn names_of_threads_are_read_in_all_versions() {
    for layout in layouts() {
        for has in ALL {
            for (name, width) in [("worker 1 (serve)", 1), ("Töpfer", 1), ("Ж", 2), ("𝄞", 4)] {
                let made = named(&layout, has, name, width);
                let found = name_of(&made, &layout);
                assert_eq!(found.as_deref(), Some(name), "{has:?} {layout:?}");
            }
        }
    }
}

#[test]
fn what_is_no_name_of_a_thread_is_none() {
    for layout in layouts() {
        for has in ALL {
            let whole = || named(&layout, has, "worker", 1);
            let none = |change: &dyn Fn(&Made)| {
                let made = whole();
                change(&made);
                assert_eq!(name_of(&made, &layout), None, "{has:?} {layout:?}");
            };
            none(&|made| put_string(made, &layout, FUNCTION, "Thread.bootstrap__", 1));
            none(&|made| put_string(made, &layout, FILE, "/home/me/my_own.py", 1));
            none(&|made| put_string(made, &layout, TEXTS + 0x40, "_nama", 1));
            none(&|made| made.put_word(TEXTS + 0x40 + layout.of_object(8), STRING + 8));
            none(&|made| made.put_word(NAME + layout.of_object(8), STRING + 8));
            none(&|made| put_string(made, &layout, NAME, "", 1));
            none(&|made| made.put_word(CLASS + layout.of_object(168), 0));
            none(&|made| made.put_word(FRAME + layout.variables, 0));
        }
    }
}

/// Every byte is damaged in turn: a name, or none, but never a fault or a loop without an end.
#[test]
fn damaged_threads_are_survived() {
    for layout in layouts() {
        for has in ALL {
            let whole = named(&layout, has, "worker", 1);
            let mut none = 0;
            whole.damaged(FRAME..END, |damaged| {
                none += u32::from(name_of(damaged, &layout).is_none());
            });
            assert!(none > 100, "{none}");
        }
    }
}

/// What the fuzz target begins with is a thread with a name, and from its beginning on.
#[test]
fn the_seeds_are_threads_with_names() {
    for minor in 9..=12 {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/python");
        let path = format!("{corpus}/thread_3_{minor}");
        if std::env::var_os("RSUNWIND_WRITE_SEEDS").is_some() {
            let made = named(&layout_of(minor), Has::Values, "worker", 1);
            let memory = &made.bytes.borrow()[..(END - BASE) as usize];
            let version = [minor as u8 - 9];
            std::fs::write(&path, [&version, memory].concat()).unwrap();
        }
        let seed = std::fs::read(path).unwrap();
        let (layout, made) = (layout_of(minor), Made::new());
        made.put(BASE, &seed[1..]);
        let entry = layout.innermost(&made, BASE).unwrap();
        assert_eq!((u64::from(seed[0]) + 9, entry.frame), (minor, FRAME));
        assert_eq!(name_of(&made, &layout).as_deref(), Some("worker"));
    }
}
