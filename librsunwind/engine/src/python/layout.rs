//! Where the fields of CPython's structures are. 3.13 and later say so themselves, at the beginning
//! of `_PyRuntime`; of those before, all releases of a minor version have them at the same places.

use crate::interpreter::memory::{Fields, Memory};
use crate::wire::code::LineFormat;

/// How the entries of a thread are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// 3.9: nowhere. Each native frame of the loop runs one frame, which lies in the heap, and has
    /// pointers into it.
    Unplaced,
    /// 3.10: a chain of `CFrame`s, of a frame each.
    One {
        /// Of a thread state.
        innermost: u64,
        /// Also of a thread state, which has the outermost one itself.
        root: u64,
        /// Of a `CFrame`.
        previous: u64,
        /// Of a frame: how many values are on its stack, four bytes; -1 while it is run.
        depth: u64,
        /// Of a frame, a byte: 0 while it is said to be run.
        state: u64,
        /// Of a frame: whose it is, if it is a generator's.
        generator: u64,
    },
    /// 3.11: likewise, each with the innermost of its frames, of which the outermost has a mark.
    Marked {
        /// As above.
        innermost: u64,
        /// As above.
        root: u64,
        /// As above.
        previous: u64,
        /// The frame, of a `_PyCFrame`.
        frame: u64,
        /// Of a frame, a byte.
        is_entry: u64,
    },
    /// From 3.12 on: the outermost frame of each lies on the C stack, and says so.
    OnStack {
        /// Of a frame, a byte.
        owner: u64,
        /// From the pointer in the thread state to the innermost frame's; none if it is that one
        /// (from 3.13 on).
        by_way_of: Option<u64>,
        /// Of a thread state, from 3.15 on: a frame behind the outermost one, which is no entry.
        base: Option<u64>,
    },
}

/// Where instances of classes have their attributes: in a dictionary of their own, or as values,
/// whose names their class has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// To 3.10: the class says where they have a pointer to a dictionary.
    Dictionary,
    /// 3.11: before the instance is a pointer to its values, and one to its dictionary.
    Apart,
    /// 3.12: before the instance is a pointer to either.
    Either,
    /// From 3.13 on: values lie behind the instance, as long as a byte says so.
    Behind,
}

/// Where all thread states are in lists; from 3.15 on they have no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Of `_PyRuntime`: the first interpreter.
    pub interpreters: u64,
    /// Of an interpreter: the next one.
    pub next_interpreter: u64,
    /// Of an interpreter: its first thread state.
    pub first: u64,
    /// Of a thread state: the next one.
    pub next: u64,
}

/// How a frame says where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// To 3.10: counted from the first instruction, in units of so many bytes.
    Counted(i64),
    /// From 3.11 on: its address. The code object has its instructions at this offset.
    Address(u64),
}

/// How it is known whether a thread has its interpreter's lock (the GIL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// To 3.11: the thread state that runs is the thread's. Where that is written, before the key
    /// of the thread states; the key itself is not right in subinterpreters.
    RunningBeforeKey(u64),
    /// From 3.12 on: a bit of the word at this offset of a thread state.
    Status(u64),
    /// Of a free-threaded build: likewise, while there is a lock.
    Optional {
        /// As above.
        status: u64,
        /// From a thread state to its interpreter, to the lock of that, and to whether that is in
        /// use, four bytes.
        in_use: [u64; 3],
    },
}

/// Of a thread state's status: the bit `active`, which is set when the lock was taken, and cleared
/// before it is given up; and `unbound`, without which one that is being taken away would still be
/// active.
const ACTIVE: u64 = 1 << 4;
const UNBOUND: u64 = 1 << 2;

const fn is_active(status: u64) -> bool {
    status & (ACTIVE | UNBOUND) == ACTIVE
}

/// Where coroutines have what; they are generators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coroutines {
    /// Of a coroutine: its frame, which is part of it.
    pub frame: u64,
    /// Likewise, a byte: how its frame is.
    pub state: u64,
    /// What that is while it awaits another awaitable.
    pub awaits: [u8; 2],
    /// Of a frame: where the top of its stack is.
    pub stack: u64,
    /// How far below the top of its stack what it awaits is.
    pub awaited: u64,
}

/// What threads of a free-threaded build run, from 3.14 on: each its own copy of the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Of a frame: the number of the copy, four bytes; 0 is what the code object has itself.
    pub number: u64,
    /// Of a code object: a pointer to how many there are, and the pointers to them.
    pub all: u64,
}

/// What is read of an object at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtOnce {
    /// Of a frame: its code object, where it stands, the number of the copy of its instructions
    /// (where there is none, anything), and the frame that called it.
    pub frame: Fields<4>,
    /// The same, and what tells an entry to 3.10: of 3.9 how much room the frame has; of 3.10
    /// whether it is run, in three words.
    pub first: Fields<7>,
    /// Of a frame from 3.11 on: what tells an entry, and the frame that called it.
    pub link: Fields<2>,
    /// Of a code object: its type, first line, version (where it has none, anything), name, file
    /// and line table.
    pub code: Fields<6>,
    /// Of a bytes object: how many, and the first of them.
    pub bytes: Fields<2>,
}

impl AtOnce {
    const NOTHING: Self = Self {
        frame: Fields::at([0; 4]),
        first: Fields::at([0; 7]),
        link: Fields::at([0; 2]),
        code: Fields::at([0; 6]),
        bytes: Fields::at([0; 2]),
    };

    const fn of(layout: &Layout) -> Self {
        let number = match layout.copies {
            Some(copies) => copies.number,
            None => layout.code,
        };
        let (code, instruction, previous) = (layout.code, layout.instruction, layout.previous);
        let [a, b, c] = match layout.entries {
            Entries::One {
                depth,
                state,
                generator,
                ..
            } => [depth, state, generator],
            _ => [ROOM; 3],
        };
        let telling = match layout.entries {
            Entries::Marked { is_entry, .. } => is_entry,
            Entries::OnStack { owner, .. } => owner,
            Entries::Unplaced | Entries::One { .. } => previous,
        };
        let version = match layout.version {
            Some(version) => version,
            None => layout.first_line,
        };
        Self {
            frame: Fields::at([code, instruction, number, previous]),
            first: Fields::at([code, instruction, number, previous, a, b, c]),
            link: Fields::at([telling, previous]),
            code: Fields::at([
                layout.of_object(TYPE),
                layout.first_line,
                version,
                layout.name,
                layout.file,
                layout.lines,
            ]),
            bytes: Fields::at([layout.of_object(SIZE), layout.of_object(BYTES)]),
        }
    }
}

/// Of every object: its type. Of those of variable size: how many items. Of a bytes object.
const TYPE: u64 = 8;
pub(super) const SIZE: u64 = 16;
pub(super) const BYTES: u64 = 32;
/// Of a frame to 3.9: how many words it has room for.
const ROOM: u64 = 16;

/// Offsets, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Those that are read at once.
    pub(super) at_once: AtOnce,
    /// By how much objects begin with more than in other builds: in a free-threaded one they tell
    /// whose they are.
    pub head: u64,
    /// By how many bits the state of a string begins with more.
    pub state_head: u32,
    /// Copies of the instructions.
    pub copies: Option<Copies>,
    /// How entries are found.
    pub entries: Entries,
    /// Of a thread state: `thread_id`, which is `pthread_self()`.
    pub thread_id: u64,
    /// Of a thread state: what leads to the innermost frame.
    pub innermost: u64,
    /// How a thread with the lock is known.
    pub lock: Lock,
    /// How thread states are found, if not by their key.
    pub threads: Option<Threads>,
    /// Of a frame: the frame that called it.
    pub previous: u64,
    /// Of a frame: its code object.
    pub code: u64,
    /// Of a frame: where it stands.
    pub instruction: u64,
    /// Of a frame: where its variables begin.
    pub variables: u64,
    /// Of a code object: its name, qualified from 3.11 on.
    pub name: u64,
    /// Of a code object.
    pub file: u64,
    /// Likewise, four bytes.
    pub first_line: u64,
    /// Likewise, a number that no other code object of the interpreter has had (`co_version`, four
    /// bytes), or 0: from 3.12 on.
    pub version: Option<u64>,
    /// Likewise, the line table.
    pub lines: u64,
    /// What the line table is.
    pub format: LineFormat,
    /// What [`Layout::instruction`] is.
    pub position: Position,
    /// Where coroutines have what: from 3.14 on.
    pub coroutines: Option<Coroutines>,
    /// Where instances have their attributes.
    pub attributes: Attributes,
    /// Of a class: the names of the values of its instances.
    pub value_names: u64,
    /// Of strings that are ASCII: their characters.
    pub ascii: u64,
    /// Of other strings: likewise.
    pub characters: u64,
}

const PY_3_9: Layout = Layout {
    entries: Entries::Unplaced,
    instruction: 104,
    variables: 360,
    value_names: 864,
    format: LineFormat::Python39,
    position: Position::Counted(1),
    ..PY_3_10
};

const PY_3_10: Layout = Layout {
    at_once: AtOnce::NOTHING,
    head: 0,
    state_head: 0,
    copies: None,
    entries: Entries::One {
        innermost: 48,
        root: 264,
        previous: 8,
        depth: 80,
        state: 108,
        generator: 88,
    },
    thread_id: 176,
    innermost: 24,
    lock: Lock::RunningBeforeKey(16),
    threads: None,
    previous: 24,
    code: 32,
    instruction: 96,
    variables: 352,
    name: 112,
    file: 104,
    first_line: 40,
    version: None,
    lines: 120,
    format: LineFormat::Python310,
    position: Position::Counted(2),
    coroutines: None,
    attributes: Attributes::Dictionary,
    value_names: 872,
    ascii: 48,
    characters: 72,
};

const PY_3_11: Layout = Layout {
    at_once: AtOnce::NOTHING,
    head: 0,
    state_head: 0,
    copies: None,
    entries: Entries::Marked {
        innermost: 56,
        root: 336,
        previous: 16,
        frame: 8,
        is_entry: 68,
    },
    thread_id: 152,
    innermost: 56,
    lock: Lock::RunningBeforeKey(16),
    threads: None,
    previous: 48,
    code: 32,
    instruction: 56,
    variables: 72,
    name: 128,
    file: 112,
    first_line: 72,
    version: None,
    lines: 136,
    format: LineFormat::Python311,
    position: Position::Address(184),
    coroutines: None,
    attributes: Attributes::Apart,
    value_names: 872,
    ascii: 48,
    characters: 72,
};

const PY_3_12: Layout = Layout {
    at_once: AtOnce::NOTHING,
    head: 0,
    state_head: 0,
    copies: None,
    entries: Entries::OnStack {
        owner: 70,
        by_way_of: Some(0),
        base: None,
    },
    thread_id: 136,
    innermost: 56,
    lock: Lock::Status(24),
    threads: None,
    previous: 8,
    code: 0,
    instruction: 56,
    variables: 72,
    name: 128,
    file: 112,
    first_line: 68,
    version: Some(68 + BEHIND_FIRST_LINE),
    lines: 136,
    format: LineFormat::Python311,
    position: Position::Address(192),
    coroutines: None,
    attributes: Attributes::Either,
    value_names: 880,
    ascii: 40,
    characters: 56,
};

/// Where a code object has its version, from where it has its first line, from 3.12 on; the table
/// does not say.
const BEHIND_FIRST_LINE: u64 = 24;

/// The layout of an interpreter of that minor version of 3, whose `_PyRuntime` is there; `None` of
/// a version that is not known.
pub fn of(memory: &impl Memory, minor: u64, runtime: u64) -> Option<Layout> {
    let layout = match minor {
        9 => PY_3_9,
        10 => PY_3_10,
        11 => PY_3_11,
        12 => PY_3_12,
        13..=15 => told(minor, |index| memory.at(runtime, index.checked_mul(8)?))?,
        _ => return None,
    };
    Some(Layout {
        at_once: AtOnce::of(&layout),
        ..layout
    })
}

/// Where all thread states are, of an interpreter of that minor version of 3.
pub fn threads(memory: &impl Memory, minor: u64, runtime: u64) -> Option<Threads> {
    let told = |index: u64| memory.at(runtime, index.checked_mul(8)?);
    let (interpreters, first) = match minor {
        9 | 10 => (32, 8),
        11 => (40, 16),
        12 => (40, 72),
        13..=15 => {
            let next = if minor == 13 { 21 } else { NEXT_THREAD };
            return threads_told(next, |index| told(index).filter(|offset| *offset < FAR));
        }
        _ => return None,
    };
    Some(Threads {
        interpreters,
        next_interpreter: 0,
        first,
        next: 8,
    })
}

/// Where `_PyRuntime` has the thread state that has the lock, up to 3.11.
pub const fn running(minor: u64) -> Option<u64> {
    match minor {
        9 | 10 => Some(568),
        11 => Some(576),
        _ => None,
    }
}

/// Offsets in `_PyRuntime` and in interpreters, which are large, are below this.
const FAR: u64 = 1 << 24;

/// The place in the table, from 3.14 on, of where a thread state has the next one.
const NEXT_THREAD: u64 = 24;

fn threads_told(next: u64, offset: impl Fn(u64) -> Option<u64>) -> Option<Threads> {
    Some(Threads {
        interpreters: offset(5)?,
        next_interpreter: offset(8)?,
        first: offset(9)?,
        next: offset(next)?,
    })
}

impl Layout {
    /// Whether a thread has the lock, from 3.12 on; its thread state says so.
    pub fn has_lock(&self, memory: &impl Memory, thread: u64) -> bool {
        let is_active = |status| memory.at(thread, status).is_some_and(is_active);
        match self.lock {
            Lock::RunningBeforeKey(_) => false,
            Lock::Status(status) => is_active(status),
            Lock::Optional { status, in_use } => {
                let mut offsets = in_use.iter();
                let found = offsets.try_fold(thread, |at, offset| memory.at(at, *offset));
                is_active(status) && found.is_some_and(|word| word as u32 != 0)
            }
        }
    }

    /// Of a thread state that may go at any moment, from 3.12 on: whose it is, and whether that
    /// thread runs with it; `None` of one that is being taken away.
    pub fn owner(&self, memory: &impl Memory, thread: u64) -> Option<(u64, bool)> {
        /// Both are near each other, so that one copy has them.
        const MOST: usize = 1024;
        let (Lock::Status(status) | Lock::Optional { status, .. }) = self.lock else {
            return None;
        };
        let start = self.thread_id.min(status);
        let size = self.thread_id.max(status).checked_sub(start)?;
        let mut bytes = [0; MOST];
        let bytes = bytes.get_mut(..usize::try_from(size.checked_add(8)?).ok()?)?;
        memory.copy(thread.checked_add(start)?, bytes)?;
        let word = |offset: u64| {
            let at = usize::try_from(offset.checked_sub(start)?).ok()?;
            Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
        };
        let (owner, status) = (word(self.thread_id)?, word(status)?);
        (status & UNBOUND == 0).then_some((owner, is_active(status)))
    }

    /// Where something of an object is, which other builds have at that offset.
    pub(super) const fn of_object(&self, offset: u64) -> u64 {
        offset.wrapping_add(self.head)
    }
}

/// [`Layout::head`] of a free-threaded build.
const FREE_HEAD: u64 = 16;

/// What the interpreter says in its table.
fn told(minor: u64, word: impl Fn(u64) -> Option<u64>) -> Option<Layout> {
    const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
    let own = word(1)?;
    if word(0) != Some(COOKIE) || own >> 24 != 3 || own >> 16 & 0xff != minor {
        return None;
    }
    let is_free = word(2)? != 0;
    let within = |size: u64, index: u64| word(index).filter(|offset| *offset < size);
    let offset = |index| within(4096, index);
    // Of `_PyRuntime` and interpreters, which are large.
    let far = |index| within(FAR, index);
    // By their places in the table.
    let [innermost, thread_id, status, frame, owner, file, code]: [u64; 7] = match minor {
        13 => [23, 24, 27, 29, 33, 35, 43],
        14 => [26, 27, 30, 32, 36, 40, 48],
        _ => [26, 30, 33, 40, 44, 48, 56],
    };
    let (base, threads) = match minor {
        15 => {
            let threads = threads_told(NEXT_THREAD, far)?;
            (Some(offset(27)?), Some(threads))
        }
        _ => (None, None),
    };
    let first_line = offset(file.wrapping_add(4))?;
    let status = offset(status)?;
    // Behind the place of what leads to the lock are those of what it has.
    let lock = match (is_free, minor) {
        (false, _) => Lock::Status(status),
        (true, minor) => {
            let (interpreter, lock) = if minor == 13 { (22, 14) } else { (25, 15) };
            let in_use = [
                offset(interpreter)?,
                far(lock)?,
                offset(lock.wrapping_add(2))?,
            ];
            Lock::Optional { status, in_use }
        }
    };
    let copies = match is_free && minor > 13 {
        true => Some(Copies {
            number: offset(owner.wrapping_add(2))?,
            all: offset(code.wrapping_add(1))?,
        }),
        false => None,
    };
    let head = if is_free { FREE_HEAD } else { 0 };
    // By their places, too; how a frame is that awaits, and where it has what it awaits.
    let coroutines = match minor {
        14 => Some((84u64, 37, [0xff, 0xff], 8)),
        15 => Some((100, 45, [2, 3], 16)),
        _ => None,
    };
    let coroutines = match coroutines {
        Some((name, stack, awaits, awaited)) => Some(Coroutines {
            frame: offset(name.wrapping_add(1))?,
            state: offset(name.wrapping_add(2))?,
            awaits,
            stack: offset(stack)?,
            awaited,
        }),
        None => None,
    };
    Some(Layout {
        at_once: AtOnce::NOTHING,
        head,
        // A byte instead of two bits.
        state_head: if is_free && minor > 13 { 6 } else { 0 },
        copies,
        entries: Entries::OnStack {
            owner: offset(owner)?,
            by_way_of: None,
            base,
        },
        thread_id: offset(thread_id)?,
        innermost: offset(innermost)?,
        lock,
        threads,
        previous: offset(frame)?,
        code: offset(frame.wrapping_add(1))?,
        instruction: offset(frame.wrapping_add(2))?,
        variables: offset(frame.wrapping_add(3))?,
        name: offset(file.wrapping_add(2))?,
        file: offset(file)?,
        first_line,
        version: Some(first_line.wrapping_add(BEHIND_FIRST_LINE)),
        lines: offset(file.wrapping_add(3))?,
        format: LineFormat::Python311,
        position: Position::Address(offset(code)?),
        coroutines,
        attributes: Attributes::Behind,
        // The table does not say.
        value_names: head.wrapping_add(if minor < 15 { 880 } else { 888 }),
        ascii: head.wrapping_add(40),
        characters: head.wrapping_add(56),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(version: u64, free_threaded: u64) -> impl Fn(u64) -> Option<u64> {
        move |index| match index {
            0 => Some(u64::from_le_bytes(*b"xdebugpy")),
            1 => Some(version),
            2 => Some(free_threaded),
            // Each offset tells its place in the table.
            index => Some(index),
        }
    }

    #[test]
    fn what_the_interpreter_says_is_taken() {
        let layout = told(13, table(0x030d_00f0, 0)).unwrap();
        let found = [layout.innermost, layout.thread_id, layout.previous];
        assert_eq!(found, [23, 24, 29]);
        let found = [layout.code, layout.instruction, layout.file, layout.name];
        assert_eq!(found, [30, 31, 35, 37]);
        let found = [layout.lines, layout.first_line];
        assert_eq!((found, layout.position), ([38, 39], Position::Address(43)));
        let layout = told(14, table(0x030e_0af0, 0)).unwrap();
        let found = [layout.innermost, layout.thread_id, layout.previous];
        assert_eq!((found, layout.lock), ([26, 27, 32], Lock::Status(30)));
        let layout = told(15, table(0x030f_02f0, 0)).unwrap();
        let found = [layout.innermost, layout.thread_id, layout.previous];
        assert_eq!((found, layout.lock), ([26, 30, 40], Lock::Status(33)));
        let Entries::OnStack { owner, base, .. } = layout.entries else {
            panic!("{layout:?}");
        };
        assert_eq!((owner, base), (44, Some(27)));
    }

    #[test]
    fn other_builds_are_refused() {
        assert_eq!(told(13, table(0x030e_00f0, 0)), None);
        assert_eq!(told(13, |_| Some(5000)), None);
        let far = |index| match index {
            0..=2 => table(0x030d_00f0, 0)(index),
            _ => Some(5000),
        };
        assert_eq!(told(13, far), None);
    }
}
